"""The learning rate is multiplied by a number whenever evaluations bring no new lowest perplexity for a while."""

from __future__ import annotations

import math
from collections.abc import Sequence

from unroll.experiment.settings import at_least
from unroll.experiment.spelled import SHARE, Key

DEPENDS_ON_LENGTH = False
WATCHES = True
KEYS = {"by": Key(0.5, SHARE), "patience": Key(3, at_least(1)), "final": Key(0.0, SHARE)}


def factor(
    batch: int, batches: int, history: Sequence[tuple[int, float]], by: float, patience: int, final: float
) -> float:
    """1, then times `by` after every `patience` evaluations in a row without a new lowest, but never below `final`."""
    lowest, waited, falls = math.inf, 0, 0
    for _, perplexity in history:
        waited = 0 if perplexity < lowest else waited + 1
        lowest = min(lowest, perplexity)
        if waited == patience:
            falls, waited = falls + 1, 0
    return max(by**falls, final)
