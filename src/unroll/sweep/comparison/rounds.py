"""How many batches fit into a budget of time: rounds, in which every run is trained to one batch, then to a later one.

Equal budgets stay equal, since a round ends when all runs stand at its batch. What a batch and an evaluation take is
measured anew in each round, on the machine as it is then. The first round is a pilot; each one after it takes about
half of the time that is left, and the last one all of it. So a machine that gets twice as slow in any round costs no
more than what was left for it: the rounds after it are shorter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unroll.training.bookkeeping import evaluation_points

LEAST_SECONDS = 30.0  # of a budget
PILOT = 0.06  # of the budget
HALF, MOST = 0.5, 0.35  # of what is left, and of the budget, that a round takes at most
LAST = 0.1  # of the budget: where no more is left, the round is the last
WORTH = 1.02  # a round that makes runs no longer than this is left out
LATE = 1.06  # of the time for training: a round that is still at work then is cut short
LEAST_BATCHES, MOST_BATCHES = 4, 10_000_000


@dataclass(frozen=True)
class Cost:
    """What training takes here, for all runs together, in seconds of a clock on the wall."""

    batch: float  # a batch of every run
    point: float  # an evaluation of every run
    round: float = 0.0  # once a round: folders, processes, the last evaluation

    def seconds(self, done: int, batches: int) -> float:
        """What a round takes that begins after `done` batches."""
        points = sum(point > done for point in evaluation_points(batches))
        return self.round + self.batch * (batches - done) + self.point * points

    def batches(self, done: int, seconds: float) -> int:
        """To which batch a round may go that begins after `done` and has this much time; `done` where it has none.

        >>> Cost(1.0, 0.0).batches(10, 5.0)
        15
        """
        low, high = done, done + 1
        while high <= MOST_BATCHES and self.seconds(done, high) <= seconds:
            low, high = high, 2 * high
        high = min(high, MOST_BATCHES + 1)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.seconds(done, middle) <= seconds else (low, middle)
        return low

    def or_slower(self, before: Cost) -> Cost:
        """The dearer of two rounds in each respect: a machine that was slow a moment ago may be so again."""
        return Cost(max(self.batch, before.batch), max(self.point, before.point), max(self.round, before.round))


def measured(done: int, batches: int, wall: float, training: float, evaluating: float) -> Cost:
    """What a round took, from its clocks; those of fleets in several processes may add up to more than the wall's."""
    points = max(sum(point > done for point in evaluation_points(batches)), 1)
    share = min(1.0, wall / max(training + evaluating, 1e-9))
    once = max(0.0, wall - training - evaluating)
    return Cost(share * training / max(batches - done, 1), share * evaluating / points, once)


def pilot(cost: Cost, budget: float) -> int:
    """The batches of the first round."""
    return max(LEAST_BATCHES, cost.batches(0, PILOT * budget + cost.round))


def following(cost: Cost, done: int, left: float, budget: float) -> int | None:
    """To which batch the next round goes, with this much time left for training; None where it is over."""
    share = left if left <= LAST * budget else min(HALF * left, MOST * budget)
    batches = cost.batches(done, share)
    if batches < WORTH * done:  # what happens once a round takes more than a half of what is left
        batches = cost.batches(done, left)
    return batches if batches >= max(WORTH * done, done + 1) else None


def carried_through(
    budget: float, reserve: float, clock: Callable[[], float], train: Callable[[int, int], Cost], first: int
) -> int:
    """The rounds, to their end: `train(done, batches)` trains one, `clock` says what is spent. Returns the batches.

    The drive of a comparison does the same, with its reports; this is the rule alone.
    """
    done, cost = first, train(0, first)
    before = cost
    while batches := following(cost.or_slower(before), done, budget - reserve - clock(), budget):
        before, cost, done = cost, train(done, batches), batches
    return done
