"""How many batches fit into a budget of time: rounds, in which every run is trained to one batch, then to a later one.

Equal budgets stay equal, since a round ends when all runs stand at its batch. What a batch and an evaluation take is
measured anew in each round, on the machine as it is then. The first round is short; each one after it takes
about half of the time that is left, and the last one all of it. So a machine that gets twice as slow in any round costs
no more than what was left for it: the rounds after it are shorter.
"""

from __future__ import annotations

from dataclasses import dataclass

from unroll.training.bookkeeping import evaluation_points

LEAST_SECONDS = 30.0  # of a budget
FIRST = 0.12  # of the budget: the round that measures what training takes
HALF, MOST = 0.5, 0.35  # of what is left, and of the budget, that a round takes at most
LAST = 0.1  # of the budget: where no more is left, the round is the last
WORTH = 1.02  # a round that makes runs no longer than this is left out, unless somebody says otherwise
LATE = 1.06  # of the time for training: a round that is still at work then is cut short
LEAST_BATCHES, MOST_BATCHES = 4, 10_000_000


@dataclass(frozen=True)
class Cost:
    """What training takes here, for all runs together, in seconds of a clock on the wall."""

    batch: float  # a batch of every run
    point: float  # an evaluation of every run
    round: float = 0.0  # once a round: folders, processes, the last evaluation
    spread: int | None = None  # how many evaluations are spread over a run; the paper's grid otherwise

    def seconds(self, done: int, batches: int) -> float:
        """What a round takes that begins after `done` batches."""
        points = sum(point > done for point in evaluation_points(batches, self.spread))
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
        dearer = max(self.batch, before.batch), max(self.point, before.point), max(self.round, before.round)
        return Cost(*dearer, self.spread)


def measured(
    done: int, batches: int, wall: float, training: float, evaluating: float, spread: int | None = None
) -> Cost:
    """What a round took, from its clocks; those of fleets in several processes may add up to more than the wall's.

    No clock of a run counts what is written at each evaluation, and what begins and ends a fleet: half for each.
    """
    points = max(sum(point > done for point in evaluation_points(batches, spread)), 1)
    share = min(1.0, wall / max(training + evaluating, 1e-9))
    rest = max(0.0, wall - training - evaluating)
    batch = share * training / max(batches - done, 1)
    return Cost(batch, (share * evaluating + rest / 2) / points, rest / 2, spread)


@dataclass
class Rounds:
    """The rounds of one budget, as far as they are known."""

    budget: float
    done: int = 0  # the batch at which all runs stand
    latest: Cost | None = None  # of the last round, or by a trial before the first
    before: Cost | None = None  # of the round before it
    most: int = MOST_BATCHES  # of a run: no round goes beyond
    first: float = FIRST  # of the budget: the round that measures what training takes
    worth: float = WORTH  # a round that makes runs no longer than this is left out

    def ended(self, batches: int, cost: Cost) -> None:
        """All runs stand at this batch, and it cost this to bring them there."""
        self.before = self.latest if self.done else None  # a trial is no round
        self.latest, self.done = cost, batches

    def next(self, left: float) -> int | None:
        """To which batch the next round goes, with this much time left for training; None where it is over."""
        assert self.latest is not None
        cost = self.latest.or_slower(self.before or self.latest)
        if not self.done:
            return min(cost.batches(0, min(left, self.first * self.budget)), self.most) or None
        if self.done >= self.most:
            return None
        share = left if left <= LAST * self.budget else min(HALF * left, MOST * self.budget)
        batches = cost.batches(self.done, share)
        if batches < self.worth * self.done:  # what happens once a round takes more than its share
            batches = cost.batches(self.done, left)
        return min(batches, self.most) if batches >= max(self.worth * self.done, self.done + 1) else None
