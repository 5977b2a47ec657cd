"""Which setting to take: the best one expected after a full run, or one that counts as equal and costs less.

`quality` takes what is equal within half a hundredth of the nats a token, `speed` and `memory` what is within a
twentieth. Of these `quality` and `speed` take what needs the fewest multiplications, `memory` the smallest weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from unroll.runs import sizes
from unroll.sweep.advice import candidates
from unroll.sweep.advice.pilot import Finalist
from unroll.sweep.comparison import paired
from unroll.sweep.comparison.paired import Placed

EQUAL = {"quality": candidates.ALIKE, "speed": 0.05, "memory": 0.05}  # of the nats of the best
SAME_SIZE = 1.1  # times the numbers of another model
UNTOLD = 4.0  # times that: what seeds do not tell from the best counts as equal within it


@dataclass(frozen=True)
class Verdict:
    """The settings of the last stage in their order, and the one to take."""

    finalists: tuple[Finalist, ...]  # the best first, by what is expected after a full run
    placed: tuple[Placed[int], ...]  # each one's place, compared with the first; names are positions
    taken: Finalist
    full: int  # batches of the full run
    need: str

    @property
    def position(self) -> int:
        """The place of the one that is taken."""
        return self.finalists.index(self.taken)


def decide(found: tuple[Sequence[Finalist], int], need: str) -> Verdict:
    """The one to take, by what counts most."""
    finalists, full = found
    by_seed = {n: {seed: _exp(nats) for seed, nats in one.expected.items()} for n, one in enumerate(finalists)}
    order = paired.ranked(by_seed)
    placed = [Placed(n, p.perplexity, p.seeds, p.missing, p.ratio, p.sure) for n, p in enumerate(order)]
    ranked = [finalists[p.name] for p in order]
    best = mean(ranked[0])
    equal = [one for one, place in zip(ranked, placed, strict=True) if _equal(one, place, best, need)]
    taken = min(equal or ranked[:1], key=_size if need == "memory" else _price)
    return Verdict(tuple(ranked), tuple(placed), taken, full, need)


def choices(decided: Verdict) -> dict[str, Finalist]:
    """What each need would take."""
    return {need: decide((decided.finalists, decided.full), need).taken for need in EQUAL}


def mean(one: Finalist) -> float:
    """Expected nats a token after a full run."""
    return paired.mean(one.expected.values())


def weights(one: Finalist) -> int:
    """How many numbers its weights are."""
    return sizes.weights_numbers(one.experiment, one.experiment.unique or 1)


def _size(one: Finalist) -> tuple[float, float]:
    """Its weights, to a tenth or so: a learned first state more or less is no size."""
    return float(round(math.log(weights(one), SAME_SIZE))), mean(one)


def _price(one: Finalist) -> tuple[float, ...]:
    return (*candidates.cost(one.experiment), mean(one))


def _equal(one: Finalist, place: Placed[int], best: float, need: str) -> bool:
    if place.missing:
        return False
    nats, share = mean(one), EQUAL[need]
    told = place.ratio is not None and place.is_apart
    return candidates.alike(nats, best, share) or (not told and candidates.alike(nats, best, UNTOLD * candidates.ALIKE))


def _exp(nats: float) -> float:
    return math.inf if nats == math.inf else paired.exp(nats)
