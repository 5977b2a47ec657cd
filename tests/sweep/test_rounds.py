"""A budget is kept, on a clock that is played, whatever a batch costs and while the machine changes its pace."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unroll.sweep.paced import rounds
from unroll.sweep.paced.rounds import Cost, Rounds
from unroll.training.bookkeeping import evaluation_points


@dataclass
class Machine:
    """A machine on which a round takes what `truth` says, times how slow the machine is then."""

    truth: Cost
    slow: list[float]
    clock: float
    lengths: list[int] = field(default_factory=list)

    def train(self, done: int, batches: int) -> Cost:
        slow = self.slow[min(len(self.lengths), len(self.slow) - 1)]
        points = sum(point > done for point in evaluation_points(batches))
        training, evaluating = slow * self.truth.batch * (batches - done), slow * self.truth.point * points
        wall = training + evaluating + slow * self.truth.round
        self.clock += wall
        self.lengths.append(batches)
        return rounds.measured(done, batches, wall, training, evaluating)

    def spend(self, budget: float, reserve: float) -> float:
        """The share of the budget that all of it takes."""
        known = Rounds(budget, latest=self.truth)
        while batches := known.next(budget - reserve - self.clock):
            known.ended(batches, self.train(known.done, batches))
        return (self.clock + reserve) / budget


@given(
    budget=st.sampled_from([90.0, 600.0, 3600.0]),
    batches=st.integers(300, 30_000),
    points=st.integers(100, 400),
    once=st.floats(0, 0.015),
    paces=st.lists(st.floats(0.8, 1.25), min_size=1, max_size=12),
)
def test_a_budget_is_kept_within_a_tenth(
    budget: float, batches: int, points: int, once: float, paces: list[float]
) -> None:
    machine = Machine(Cost(budget / batches, budget / points, budget * once), paces, 0.1 * budget)
    assert 0.9 <= machine.spend(budget, 0.05 * budget) <= 1.1
    assert machine.lengths == sorted(set(machine.lengths))  # every round makes the runs longer


@pytest.mark.parametrize("change", range(6))
@pytest.mark.parametrize("pace", [0.5, 2.0])
def test_a_machine_that_becomes_half_or_twice_as_fast_between_two_rounds_keeps_it(change: int, pace: float) -> None:
    machine = Machine(Cost(0.02, 1.5, 2.0), [1.0] * change + [pace], 20.0)
    assert 0.9 <= machine.spend(600.0, 20.0) <= 1.12


def test_rounds_are_few() -> None:
    machine = Machine(Cost(0.02, 1.5, 2.0), [1.0], 20.0)
    machine.spend(600.0, 20.0)
    assert 3 <= len(machine.lengths) <= 8


def test_what_a_round_took_is_measured_by_its_clocks() -> None:
    truth = Cost(0.5, 3.0, 2.0)
    points = sum(point > 100 for point in evaluation_points(200))
    cost = rounds.measured(100, 200, truth.seconds(100, 200), 50.0, 3.0 * points)
    assert (cost.batch, cost.point, cost.round) == pytest.approx((0.5, 3.0 + 1.0 / points, 1.0))
    assert cost.seconds(100, 200) == pytest.approx(truth.seconds(100, 200))


def test_fleets_in_processes_of_their_own_are_counted_by_the_wall() -> None:
    cost = rounds.measured(0, 100, wall=60.0, training=100.0, evaluating=20.0)
    assert cost.batch == pytest.approx(0.5)
    assert cost.round == 0


@given(cost=st.floats(1e-4, 1.0), point=st.floats(0, 10.0), done=st.integers(0, 5000), seconds=st.floats(0, 5000))
def test_a_round_has_room_in_its_time_and_none_is_left_for_one_batch_more(
    cost: float, point: float, done: int, seconds: float
) -> None:
    priced = Cost(cost, point)
    batches = priced.batches(done, seconds)
    assert batches == done or priced.seconds(done, batches) <= seconds
    assert priced.seconds(done, batches + 1) > seconds or batches == rounds.MOST_BATCHES


def test_no_round_begins_for_which_there_is_no_time() -> None:
    assert Rounds(600.0, 100, Cost(1.0, 0.0, 50.0)).next(20.0) is None
    assert Rounds(600.0, 100, Cost(1.0, 0.0)).next(0.9) is None
