"""The loss by position in the test set: from zeros, and from the states that training carries.

Both read the same text once, from its first token to its last. The positions stand in bins that end at 2, 5, 10, 20 …
times k2. What is left after the first bins is the loss of a model that started from zeros and read a prefix of 2·k2,
5·k2 … tokens before anything counted.

Shapes: M runs, N tokens, R carried rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from unroll.model.network import States
from unroll.runs.perplexities import middle, perplexities, token_nll
from unroll.training.learner import Learner

TIMES_K2 = (1, 2, 5, 10, 20, 50, 100, 200, 500)


@dataclass(frozen=True)
class ByPosition:
    """One run at one evaluation: nats a token in each bin."""

    zero: tuple[float, ...]
    carried: tuple[float, ...]  # the mean over the rows' states
    perplexity: float  # from carried states: the median over rows, as an evaluation has it


def edges(tokens: int, k2: int) -> list[int]:
    """The first position of every bin, and the end of the last. No bin holds the first k2 tokens, which never count.

    >>> edges(600, 100)
    [100, 200, 500, 600]
    """
    return [*(times * k2 for times in TIMES_K2 if times * k2 < tokens), tokens]


def by_position(
    learner: Learner, runs: Sequence[int], texts: Sequence[Tensor], between: Callable[[], None] = lambda: None
) -> dict[int, ByPosition]:
    """The loss by position of the runs of a fleet that carry states, as they are now."""
    if not runs:
        return {}
    model = learner.model.runs(runs)
    k2 = learner.experiments[0].scheme.k2
    slots = torch.tensor(runs, device=learner.model.device)
    first: States = tuple(tuple(s[slots] for s in state) for state in learner.carried)
    zero = token_nll(model, texts, k2, "progressive", between=between)
    carried = token_nll(model, texts, k2, "progressive", first=first, between=between)
    return {
        m: ByPosition(_binned(from_zeros, k2), _binned(from_carried, k2), middle(perplexities(from_carried)).perplexity)
        for m, from_zeros, from_carried in zip(runs, zero, carried, strict=True)
    }


def _binned(nll_NR: Tensor, k2: int) -> tuple[float, ...]:
    """The mean of each bin, over positions and rows. The first row of `nll_NR` is position k2."""
    ends = edges(len(nll_NR) + k2, k2)
    bins = pairwise(ends)
    return tuple(float(nll_NR[begin - k2 : end - k2].mean()) for begin, end in bins)
