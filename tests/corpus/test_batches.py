"""Batch i holds the tokens that the paper's rule gives it, and depends on nothing but i."""

from __future__ import annotations

from collections import Counter
from typing import Any
from weakref import ref

import numpy as np
import pytest
import torch
from helpers import CPU, tiny, tiny_corpus
from hypothesis import assume, given
from hypothesis import strategies as st

from unroll.base import randomness
from unroll.base.errors import CorpusError
from unroll.corpus.batches import Batches, Schedule


@st.composite
def schedules(draw: st.DrawFn, **fixed: Any) -> Schedule:
    k1, k2, rows = draw(st.integers(1, 12)), draw(st.integers(1, 12)), draw(st.integers(1, 6))
    train = draw(st.integers(rows * (k2 + 1), rows * (k2 + 1) + 80))
    return Schedule(tiny(**{"k1": k1, "k2": k2, "rows": rows, "seed": draw(st.integers(0, 99))} | fixed), train)


def fleet_batches(corpus_tokens: int = 200, **changes: Any) -> tuple[Batches, np.ndarray]:
    """The batches of one run, and its train set."""
    experiment, corpus = tiny(**changes), tiny_corpus(tokens=corpus_tokens)
    return Batches([experiment], [corpus], CPU), corpus.train_ids(experiment.split_seed)


def windows(schedule: Schedule, numbers: range) -> Counter[int]:
    return Counter(int(start) for number in numbers for start in schedule.starts(number))


@given(schedules())
def test_row_j_of_batch_i_starts_at_its_share_of_the_train_set_plus_i_k1(schedule: Schedule) -> None:
    rows, k1, N = schedule.experiment.rows, schedule.experiment.scheme.k1, schedule.train_tokens
    for i in range(schedule.batches_an_epoch):
        assert schedule.starts(i).tolist() == [j * N // rows + i * k1 for j in range(rows)]


@given(schedules())
def test_an_epoch_ends_before_the_last_rows_window_would_run_past_the_end(schedule: Schedule) -> None:
    scheme, last = schedule.experiment.scheme, schedule.batches_an_epoch - 1
    assert schedule.starts(last)[-1] + scheme.k2 + 1 <= schedule.train_tokens
    assert schedule.row_starts[-1] + (last + 1) * scheme.k1 + scheme.k2 + 1 > schedule.train_tokens
    assert schedule.starts(last + 1).tolist() == schedule.row_starts.tolist()


@given(schedules(rotation="random"), st.integers(0, 5))
def test_random_rotation_is_drawn_anew_each_epoch_and_holds_through_it(schedule: Schedule, epoch: int) -> None:
    first = epoch * schedule.batches_an_epoch
    amounts = {schedule.rotation(first + i) for i in range(schedule.batches_an_epoch)}
    assert len(amounts) == 1
    assert 0 <= amounts.pop() < schedule.train_tokens
    assert schedule.rotation(0) == 0


def test_random_rotations_differ_between_epochs_and_seeds() -> None:
    amounts = {
        Schedule(tiny(seed=seed), 5000).rotation(epoch * Schedule(tiny(), 5000).batches_an_epoch)
        for seed in range(5)
        for epoch in range(1, 5)
    }
    assert len(amounts) >= 18


@given(schedules(rotation="continue"), st.integers(0, 40))
def test_continue_lets_each_row_read_on_where_it_stopped(schedule: Schedule, number: int) -> None:
    N, k1 = schedule.train_tokens, schedule.experiment.scheme.k1
    here = (schedule.starts(number) + schedule.rotation(number)) % N
    following = (schedule.starts(number + 1) + schedule.rotation(number + 1)) % N
    assert ((here + k1 - following) % N == 0).all()


@given(schedules(shuffle=True), st.integers(0, 3))
def test_shuffle_permutes_exactly_the_same_windows_each_epoch(schedule: Schedule, epoch: int) -> None:
    E = schedule.batches_an_epoch
    plain = Schedule(tiny(k1=schedule.experiment.scheme.k1, k2=schedule.experiment.scheme.k2,
                          rows=schedule.experiment.rows), schedule.train_tokens)  # fmt: skip
    assert windows(schedule, range(epoch * E, (epoch + 1) * E)) == windows(plain, range(E))
    assert schedule.rotation(epoch * E) == 0


def test_shuffled_windows_are_the_places_that_the_seed_sorts() -> None:
    experiment = tiny(shuffle=True, seed=5)
    schedule = Schedule(experiment, 300)
    for number in range(3 * schedule.batches_an_epoch):
        epoch, i = divmod(number, schedule.batches_an_epoch)
        order = np.argsort(randomness.uniform(5, "shuffle", epoch, schedule.windows), kind="stable")
        batch, row = np.divmod(order[i * experiment.rows : (i + 1) * experiment.rows], experiment.rows)
        assert schedule.starts(number).tolist() == (schedule.row_starts[row] + batch * experiment.scheme.k1).tolist()


def test_places_beyond_what_32_bits_hold_are_reached_by_windows_that_are_shuffled() -> None:
    train = 3 << 30
    schedule = Schedule(tiny(shuffle=True, k1=1 << 20, rows=2), train)
    starts = [schedule.starts(number) for number in range(schedule.batches_an_epoch)]
    last = train // 2 + ((schedule.batches_an_epoch - 1) << 20)
    assert last > 1 << 31
    assert np.concatenate(starts).max() == last


def test_runs_that_shuffle_alike_share_one_order_and_none_outlives_its_epoch() -> None:
    alike = [Schedule(tiny(shuffle=True, seed=1, learning_rate=rate), 300) for rate in (0.1, 0.2)]
    other = Schedule(tiny(shuffle=True, seed=2), 300)
    before: list[ref[Any]] = []
    for number in (0, alike[0].batches_an_epoch):
        for schedule in (*alike, other):
            schedule.starts(number)
        orders = [schedule._order[1] for schedule in (*alike, other) if schedule._order]
        assert orders[0] is orders[1]
        assert orders[0] is not orders[2]
        assert [old() for old in before] == [None] * len(before)
        before = [ref(order) for order in orders]
        del orders


def test_shuffled_orders_differ_between_epochs_and_seeds() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        schedule = Schedule(tiny(shuffle=True, seed=seed), 300)
        E = schedule.batches_an_epoch
        return [int(s) for i in range(epoch * E, (epoch + 1) * E) for s in schedule.starts(i)]

    assert len({tuple(order(seed, epoch)) for seed in range(3) for epoch in range(3)}) == 9


@given(schedules(state="carried"), st.integers(0, 30))
def test_reset_epoch_resets_every_row_at_an_epochs_first_batch_only(schedule: Schedule, number: int) -> None:
    assert schedule.resets(number).tolist() == [number % schedule.batches_an_epoch == 0] * schedule.experiment.rows


def test_reset_never_never_resets() -> None:
    schedule = Schedule(tiny(state="carried", reset="never"), 100)
    assert not any(schedule.resets(number).any() for number in range(100))


def test_a_probability_resets_each_row_by_its_own_draw() -> None:
    schedule = Schedule(tiny(state="carried", reset=0.25, rows=10), 1000)
    drawn = np.stack([schedule.resets(number) for number in range(1000)])
    assert abs(drawn.mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / drawn.size)
    assert np.abs(np.corrcoef(drawn.T) - np.eye(10)).max() < 0.15
    assert Schedule(tiny(state="carried", reset=1.0), 100).resets(3).all()


@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from(["random", "continue"]), st.integers(0, 60))
def test_a_batch_holds_its_windows_of_the_rotated_train_set(k1: int, k2: int, rotation: str, number: int) -> None:
    batches, train = fleet_batches(k1=k1, k2=k2, rotation=rotation)
    (schedule,) = batches.schedules
    batch = batches[number]
    rotated = np.roll(train, -schedule.rotation(number))
    for row, start in enumerate(schedule.starts(number)):
        window = rotated[start : start + k2 + 1]
        assert batch.inputs_MTB[0, :, row].tolist() == window[:-1].tolist()
        assert batch.targets_MKB[0, :, row].tolist() == window[1:].tolist()


def test_a_window_may_wrap_around_the_end_of_the_train_set() -> None:
    batches, train = fleet_batches(k1=3, k2=8, rotation="continue", rows=2)
    (schedule,) = batches.schedules
    wrapped = [
        n for n in range(200) if ((schedule.starts(n) + schedule.rotation(n)) % len(train)).max() + 9 > len(train)
    ]
    assert wrapped
    for number in wrapped:
        for row, start in enumerate(schedule.starts(number) + schedule.rotation(number)):
            places = (start + np.arange(8)) % len(train)
            assert batches[number].inputs_MTB[0, :, row].tolist() == train[places].tolist()


def test_only_the_scored_positions_have_targets() -> None:
    batches, _ = fleet_batches(k2=6, k3=2)
    assert batches[0].targets_MKB.shape == (1, 2, 3)
    whole, _ = fleet_batches(k2=6)
    assert torch.equal(batches[4].targets_MKB, whole[4].targets_MKB[:, -2:])


def test_the_gap_holds_the_tokens_between_two_windows_of_a_carried_run() -> None:
    batches, train = fleet_batches(k1=9, k2=4, state="carried")
    batch = batches[0]
    assert batch.gap_MTB is not None
    for row, start in enumerate(batches.schedules[0].row_starts):
        assert batch.gap_MTB[0, :, row].tolist() == train[start + 4 : start + 9].tolist()
    assert torch.equal(
        batches[1].inputs_MTB[0, 0], torch.from_numpy(train[batches.schedules[0].row_starts + 9].astype("int64"))
    )
    assert fleet_batches(k1=9, k2=4)[0][0].gap_MTB is None, "a learned state needs no gap"
    assert fleet_batches(k1=4, k2=4, state="carried")[0][0].gap_MTB is None


@given(st.lists(st.integers(0, 200), min_size=1, max_size=6), st.booleans())
def test_a_batch_is_a_pure_function_of_its_number(numbers: list[int], shuffle: bool) -> None:
    asked_before, _ = fleet_batches(shuffle=shuffle)
    for number in numbers:
        fresh, _ = fleet_batches(shuffle=shuffle)
        for a, b in zip(asked_before[number], fresh[number], strict=True):
            assert a is b or (torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b)


@given(st.integers(1, 10), st.integers(1, 10))
def test_labels_are_reused_about_k2_over_k1_times(k1: int, k2: int) -> None:
    """Away from the ends of a row's share, every token is a label in k2/k1 windows, rounded up or down."""
    schedule = Schedule(tiny(k1=k1, k2=k2, rows=1), 120)
    labels = Counter(
        int(start) + i
        for n in range(schedule.batches_an_epoch)
        for start in schedule.starts(n)
        for i in range(1, k2 + 1)
    )
    inner = range(k2 + k1, 120 - k2 - k1)
    assume(len(inner) > k1)
    uses = [labels[token] for token in inner]
    assert set(uses) <= {k2 // k1, -(-k2 // k1)}
    whole = uses[: len(uses) // k1 * k1]
    assert np.mean(whole) == pytest.approx(k2 / k1)


def test_each_run_of_a_fleet_reads_its_own_text_at_its_own_pace() -> None:
    runs = [tiny(k1=2), tiny(k1=4, seed=5), tiny(k1=3, split_seed=2)]
    corpora = [tiny_corpus(0), tiny_corpus(1, symbols=9, tokens=150), tiny_corpus(0)]
    together = Batches(runs, corpora, CPU)
    for m, (run, corpus) in enumerate(zip(runs, corpora, strict=True)):
        alone = Batches([run], [corpus], CPU)
        for number in (0, 1, 30, 77):
            assert torch.equal(together[number].inputs_MTB[m], alone[number].inputs_MTB[0])
            assert torch.equal(together[number].targets_MKB[m], alone[number].targets_MKB[0])


def test_a_train_set_too_small_for_its_rows_is_refused_with_the_numbers() -> None:
    Schedule(tiny(rows=4, k2=9), 40)
    with pytest.raises(
        CorpusError, match=r"4 rows of windows of k2 \+ 1 = 10 tokens need a train set of 37 tokens; this one has 35"
    ):
        Schedule(tiny(rows=4, k2=9), 35)
    assert Schedule(tiny(rows=4, k2=9), 37).batches_an_epoch == 1, "what the message asks for is enough"


@given(
    st.integers(0, 400),
    st.integers(1, 40),
    st.sampled_from([{}, {"rotation": "continue"}, {"shuffle": True}, {"state": "carried", "reset": 0.3}]),
)
def test_a_stretch_of_batches_is_each_of_them(first: int, count: int, settings: dict[str, Any]) -> None:
    schedule = Schedule(tiny(**settings), 270)
    starts, resets = schedule.window_starts(first, count), schedule.all_resets(first, count)
    assert starts.shape == resets.shape == (count, 3)
    for n in range(count):
        np.testing.assert_array_equal(starts[n], schedule.starts(first + n) + schedule.rotation(first + n))
        np.testing.assert_array_equal(resets[n], schedule.resets(first + n))
