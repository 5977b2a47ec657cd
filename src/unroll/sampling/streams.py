"""What a text is drawn from, and what is drawn of many at a step.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unroll.experiment.decoding import Decoding
from unroll.model import conditioning
from unroll.model.steppers import Ids

Ends = Callable[[int, int], bool]


def never(stream: int, token: int) -> bool:
    """No token ends a stream before its length."""
    return False


@dataclass(frozen=True)
class Stream:
    """What one text is drawn from. A prompt has at least one token."""

    prompt: Ids
    length: int
    decoding: Decoding
    seed: int


class Drawn(NamedTuple):
    """One token of each stream that drew at this step, by its place among the streams."""

    streams: list[int]
    ids: list[int]
    logprobs: list[float]  # under the model's own distribution, before temperature and truncation
    logits_BV: NDArray[np.float64] | None  # None where they stayed on the device that drew


def read(prompt: Ids, k2: int, procedure: str) -> Ids:
    """What must be read of a prompt: a window holds k2 tokens, so of a longer one only the last k2 matter to it."""
    return prompt[-k2:] if conditioning.forgets(procedure) else prompt
