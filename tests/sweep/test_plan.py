"""The plan: every run in one legal fleet, as many side by side as pay and fit, whatever order they are named in."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import tiny, tiny_corpus
from hypothesis import given
from hypothesis import strategies as st

from unroll import Corpus, Experiment, grid
from unroll.base import limits
from unroll.base.errors import ConfigurationError, RunError
from unroll.engines import devices
from unroll.experiment.experiment import from_tables, to_tables
from unroll.sweep import measuring, plan
from unroll.sweep.deduplicate import distinct, natural
from unroll.sweep.measuring import Pace
from unroll.sweep.plan import Plan
from unroll.training import fleet, memory

CORPORA = {symbols: tiny_corpus(symbols=symbols, tokens=300) for symbols in (5, 14, 17, 20, 26)}


@st.composite
def runs(draw: st.DrawFn) -> tuple[Experiment, Corpus]:
    """Runs that differ in what a fleet shares, and in what it does not."""
    state = draw(st.sampled_from(["learned", "carried"]))
    experiment = tiny(
        state=state,
        loss=draw(st.sampled_from(["equal", "last"])),
        k1=draw(st.sampled_from([2, 5, 7])),
        k2=draw(st.sampled_from([4, 5])),
        sample=draw(st.sampled_from(["windowed", "progressive"])),
        hidden=draw(st.sampled_from([5, 6])),
        cell=draw(st.sampled_from(["lstm", "gru"])),
        seed=draw(st.integers(0, 3)),
        batches=draw(st.sampled_from([5, 9])),
        threads=draw(st.sampled_from([1, 2])),
        learning_rate=draw(st.sampled_from([0.1, 0.01])),
    )
    corpus = CORPORA[draw(st.sampled_from(sorted(CORPORA)))]
    return corpus.described_in(experiment), corpus


some = st.lists(runs(), min_size=1, max_size=25)


def planned(chosen: Sequence[tuple[Experiment, Corpus]], most: int | None) -> tuple[Plan, dict[str, Experiment]]:
    trainings = distinct(e for e, _ in chosen)
    corpora = {t.name: next(c for e, c in chosen if e in t.asked) for t in trainings}
    experiments = {t.name: t.experiment for t in trainings}
    return plan.make(experiments, corpora, most), experiments


@given(some, st.integers(1, 6))
def test_every_run_is_in_exactly_one_fleet_and_every_fleet_is_legal_and_within_the_limit(
    chosen: list[tuple[Experiment, Corpus]], most: int
) -> None:
    made, experiments = planned(chosen, most)
    assert sorted(run for own in made.fleets for run in own.runs) == sorted(experiments)
    assert len({own.name for own in made.fleets}) == len(made.fleets)
    for own in made.fleets:
        members = [experiments[name] for name in own.runs]
        assert fleet.why_not(members, [e.unique for e in members]) == []
        assert len({(e.device, e.threads, e.scheme.gap) for e in members}) == 1
        assert 1 <= len(members) <= most
        assert {(own.device, own.kernel, own.precision, own.threads)} == {
            ("cpu", devices.resolve(e).kernel, e.precision, e.threads) for e in members
        }


@given(some, st.integers(1, 6), st.randoms())
def test_the_order_of_the_requests_changes_nothing(
    chosen: list[tuple[Experiment, Corpus]], most: int, drawn: Any
) -> None:
    other = list(chosen)
    drawn.shuffle(other)
    assert planned(chosen, most) == planned(other, most)


@given(some)
def test_as_few_fleets_as_the_limit_allows_of_nearly_one_size(chosen: list[tuple[Experiment, Corpus]]) -> None:
    made, experiments = planned(chosen, 3)
    names = list(experiments)
    own = [experiments[name] for name in names]
    for group in fleet.groups(own, [e.unique for e in own]):
        members = {names[i] for i in group}
        sizes = sorted(len(f.runs) for f in made.fleets if members.issuperset(f.runs))
        assert sum(sizes) == len(members)
        assert len(sizes) == -(-len(members) // 3)
        assert sizes[-1] - sizes[0] <= 1


@given(some, st.integers(1, 6))
def test_a_plan_survives_its_file(chosen: list[tuple[Experiment, Corpus]], most: int) -> None:
    made, _ = planned(chosen, most)
    made = replace(made, refused={"x": "too short"}, measured=(plan.Measurement(("1",), (Pace(1, 0.5, None),)),))
    assert Plan.from_json(made.to_json(), "plan.json") == made
    for own in made.fleets:
        if len(own.runs) > 1:
            split = made.split(own.name, "no room")
            assert Plan.from_json(split.to_json(), "plan.json") == split


@given(some)
def test_experiments_survive_as_json(chosen: list[tuple[Experiment, Corpus]]) -> None:
    for experiment, _ in chosen:
        assert from_tables(json.loads(json.dumps(to_tables(experiment))), "sweep.json") == experiment


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: "null",
        lambda text: text.replace('"threads": 1', '"threads": "1"'),
        lambda text: text.replace('"device": "cpu"', '"device": 7'),
        lambda text: text.replace('"why"', '"wherefore"'),
        lambda text: json.dumps(json.loads(text) | {"fleets": 2 * json.loads(text)["fleets"]}),
        lambda text: "[" * 100_000,
    ],
)
def test_a_damaged_plan_is_refused(spoil: Any) -> None:
    made, _ = planned([(CORPORA[5].described_in(tiny(threads=1)), CORPORA[5])], None)
    with pytest.raises(RunError, match=r"plan\.json is damaged"):
        Plan.from_json(spoil(made.to_json()), "plan.json")


# --- how many side by side ----------------------------------------------------------------------------------------


def pretend(monkeypatch: pytest.MonkeyPatch, cost: Any) -> list[int]:
    """Let a batch of M runs take cost(M) milliseconds a run; the sizes that were tried."""
    tried: list[int] = []

    def pace(experiments: Sequence[Experiment], corpora: Sequence[Corpus], between: Any) -> Pace:
        tried.append(len(experiments))
        return Pace(len(experiments), cost(len(experiments)), None)

    monkeypatch.setattr(measuring, "pace", pace)
    return tried


def seeds(count: int, **settings: Any) -> list[tuple[Experiment, Corpus]]:
    return [(CORPORA[5].described_in(tiny(seed=seed, **settings)), CORPORA[5]) for seed in range(count)]


def test_more_runs_side_by_side_are_tried_until_a_run_batch_no_longer_gets_cheaper(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = pretend(monkeypatch, lambda M: max(8 / M, 1.0))
    made, _ = planned(seeds(100), None)
    assert tried == [1, 2, 4, 8, 16, 32]
    assert {len(own.runs) for own in made.fleets} == {7, 8}
    assert made.fleets[0].milliseconds == 1.0
    assert made.measured == (
        plan.Measurement(tuple(f.name for f in made.fleets), tuple(Pace(M, max(8 / M, 1.0), None) for M in tried)),
    )
    assert "8 with 1, 4 with 2, 2 with 4, 1 with 8" in made.fleets[0].why


def test_where_one_run_alone_is_fastest_each_trains_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = pretend(monkeypatch, lambda M: 1.0 + M)
    made, _ = planned(seeds(5), None)
    assert tried == [1, 2, 4]
    assert [len(own.runs) for own in made.fleets] == [1] * 5


def test_a_gain_of_less_than_a_twentieth_is_not_worth_it() -> None:
    assert measuring.best([Pace(1, 1.0, None), Pace(2, 0.96, None), Pace(4, 0.94, None), Pace(8, 0.9, None)]).runs == 4


def test_what_would_take_too_long_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = pretend(monkeypatch, lambda M: 500 / M**0.5)
    made, _ = planned(seeds(64), None)
    assert tried == [1]  # five batches of half a second; with two runs side by side it would be five seconds more
    assert "more would have taken too long to try" in made.fleets[0].why
    tried = pretend(monkeypatch, lambda M: 100 / M**0.5)
    planned(seeds(64), None)
    assert tried == [1, 2, 4, 8]  # 3.6 seconds, and the next would take 2.8


def test_one_run_of_a_shape_and_a_given_limit_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = pretend(monkeypatch, lambda M: 1.0)
    assert planned(seeds(1), None)[0].fleets[0].milliseconds is None
    planned(seeds(9), 4)
    assert tried == []


def test_measuring_runs_the_very_runs_and_takes_seconds_at_most() -> None:
    paces = measuring.measure([e for e, _ in seeds(6, kernel="stacked", threads=1)], [CORPORA[5]] * 6, 6)
    assert [p.runs for p in paces][:2] == [1, 2]
    assert all(p.milliseconds > 0 for p in paces)


@pytest.mark.parametrize("error", [torch.cuda.OutOfMemoryError("CUDA out of memory."), MemoryError()])
def test_memory_that_ends_while_measuring_ends_the_trial(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def cost(M: int) -> float:
        if M > 4:
            raise error
        return 1 / M

    pretend(monkeypatch, cost)
    made, _ = planned(seeds(12), None)
    assert {len(own.runs) for own in made.fleets} == {4}


def test_no_more_runs_than_the_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    (experiment, corpus), *_ = chosen = seeds(7)
    rest = memory.fleet_bytes([experiment], [corpus]) - memory.run_bytes(experiment, corpus.unique)
    for room in (1, 2, 3):
        limit = rest + int((room + 0.5) * memory.run_bytes(experiment, corpus.unique))
        monkeypatch.setattr(memory, "available", lambda device, limit=limit: limit)
        made, _ = planned(chosen, 5)
        assert max(len(own.runs) for own in made.fleets) == room
        assert all(own.bytes <= limit for own in made.fleets)
        assert f"hold no more than {room}" in made.fleets[0].why
    monkeypatch.setattr(memory, "available", lambda device: 0)
    assert {len(own.runs) for own in planned(chosen, 5)[0].fleets} == {1}  # it is tried all the same


def test_the_order_of_shuffled_windows_counts_as_memory_once_for_runs_that_share_it() -> None:
    corpus = tiny_corpus(tokens=3000)
    plain, one, two, twin = (
        corpus.described_in(tiny(k1=1, seed=seed, shuffle=shuffle, learning_rate=rate))
        for seed, shuffle, rate in ((1, False, 0.1), (1, True, 0.1), (2, True, 0.1), (1, True, 0.2))
    )
    order = memory.order_bytes(one, corpus)
    assert 4 * 2600 < order < 4 * 2700  # a window a token, four bytes each
    assert memory.order_bytes(plain, corpus) == 0
    without = memory.fleet_bytes([plain, plain], [corpus] * 2)
    assert memory.fleet_bytes([one, two], [corpus] * 2) == without + 2 * order
    assert memory.fleet_bytes([one, twin], [corpus] * 2) == without + order
    limit = memory.shared_bytes([one], [corpus]) + int(2.5 * (memory.run_bytes(one, corpus.unique) + order))
    assert plan.fit([one, two] * 3, [corpus] * 6, limit) == 2


def test_no_more_runs_than_folders_can_be_held_open(monkeypatch: pytest.MonkeyPatch) -> None:
    for files, largest in ((3, 3), (1, 1), (0, 1)):
        monkeypatch.setattr(limits, "files_left", lambda files=files: files)
        made, _ = planned(seeds(7), 5)
        assert max(len(own.runs) for own in made.fleets) == largest
        assert f"no more than {largest} folders can be held open (ulimit -n)" in made.fleets[0].why
        assert "hold no more than" not in made.fleets[0].why


def test_a_limit_below_1_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="most must be at least 1"):
        planned(seeds(2), 0)


def test_a_split_fleet_is_two_halves_under_new_names_and_said() -> None:
    made, _ = planned(seeds(7), 7)
    halves = made.split("1", "no room.")
    assert [own.name for own in halves.fleets] == ["1a", "1b"]
    assert halves.fleets[0].runs + halves.fleets[1].runs == made.fleets[0].runs
    assert [len(own.runs) for own in halves.fleets] == [4, 3]
    assert halves.changes == ("Fleet 1 did not fit and was split into 1a and 1b: no room.",)


def test_runs_that_cannot_be_trained_are_refused_with_the_reason_and_the_others_planned() -> None:
    short = tiny_corpus(tokens=40)
    made, _ = planned([*seeds(2), (short.described_in(tiny()), short)], 5)
    assert sum(len(own.runs) for own in made.fleets) == 2
    ((name, reason),) = made.refused.items()
    assert "The test set needs more than k2 = 5 tokens" in reason
    assert name in made.names


# --- what memory is needed, against reality -----------------------------------------------------------------------

MEASURED = """
import sys, numpy, torch, unroll
from pathlib import Path
from unroll.engines.choice import engine_of
from unroll.training.learner import Learner

def kilobytes(what):
    return int(next(line for line in Path("/proc/self/status").read_text().splitlines() if what in line).split()[1])

torch.set_num_threads(1)
ids = numpy.random.default_rng(0).integers(80, size=9000)
text = unroll.Corpus.from_text("".join(chr(33 + i) for i in ids))
cpu = torch.device("cpu")
Learner(unroll.grid(hidden=8, dense=8, rows=4, k2=5), [text], engine_of(cpu, "stacked")).step()
Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins again from here
before = kilobytes("VmRSS")
learner = Learner(unroll.grid(seed=[1, 2], rows=32, **eval(sys.argv[1])), [text] * 2, engine_of(cpu, "stacked"))
learner.step(), learner.step()
print(1024 * (kilobytes("VmHWM") - before))
"""


@pytest.mark.parametrize(
    "settings",
    [{"hidden": 192}, {"hidden": 128, "layers": 2}, {"hidden": 256, "scheme": 2}, {"hidden": 128, "cell": "gru"}],
    ids=str,
)
def test_the_estimate_of_a_runs_memory_is_near_what_it_takes(settings: dict[str, Any]) -> None:
    done = subprocess.run([sys.executable, "-c", MEASURED, repr(settings)], capture_output=True, text=True, check=True)
    (experiment, _) = grid(seed=[1, 2], rows=32, **settings)
    assert 0.75 < 2 * memory.run_bytes(experiment, 80) / int(done.stdout) < 2.0


def test_a_tenth_of_the_memory_is_left_free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory, "_free_in_system", lambda: 1000.0)
    monkeypatch.setattr(memory, "_free_in_container", lambda: 500.0)
    assert memory.available(torch.device("cpu")) == 450
    monkeypatch.setattr(limits, "memory_left", lambda: 200.0)
    assert memory.available(torch.device("cpu")) == 180
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2000, 4000))
    assert memory.available(torch.device("cuda")) == 1800


def test_names_are_readable_safe_and_different_and_sort_as_people_count() -> None:
    grids = [(title, e) for title in ("A Book (draft)", "../x y") for e in grid(k1=[20, 100], seed=[0, 1])]
    names = [t.name for t in distinct(replace(e, title=title, sha256=title) for title, e in grids)]
    assert names[0] == "A-Book-draft-multi-loss-k1_20-k2_100-lstm1x512-seed0"
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") for name in names)
    assert not any(name.startswith((".", "-")) for name in names)
    assert names.index("A-Book-draft-multi-loss-k1_20-k2_100-lstm1x512-seed1") == 1
    assert sorted(["k1_100", "k1_20"], key=natural) == ["k1_20", "k1_100"]
    twins = [replace(e, title=title, sha256=title) for title in ("Book", "book") for e in grid(seed=0)]
    assert len({t.name.casefold() for t in distinct(twins)}) == 2


BUSY = {1: 6.12, 2: 75.5, 4: 11.0, 6: 5.0}


@pytest.mark.parametrize("spoiled", [1, 2, 4, 6])
def test_a_trial_that_other_work_spoiled_is_tried_again(spoiled: int, monkeypatch: pytest.MonkeyPatch) -> None:
    times = dict.fromkeys(BUSY, 0)

    def pace(experiments: Sequence[Experiment], corpora: Sequence[Corpus], between: Any) -> Pace:
        runs = len(experiments)
        times[runs] += 1
        return Pace(runs, 0.6 / runs * (30 if runs == spoiled and times[runs] == 1 else 1), None)

    monkeypatch.setattr(measuring, "pace", pace)
    paces = measuring.measure([e for e, _ in seeds(6)], [CORPORA[5]] * 6, 6)
    assert [(p.runs, p.milliseconds) for p in paces] == [(runs, 0.6 / runs) for runs in (1, 2, 4, 6)]
    assert times == {runs: 1 + (runs == spoiled) for runs in BUSY}


def test_a_machine_that_stays_busy_is_tried_a_few_times_and_the_plan_is_called_doubtful(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[int] = []

    def pace(experiments: Sequence[Experiment], corpora: Sequence[Corpus], between: Any) -> Pace:
        tried.append(len(experiments))
        return Pace(len(experiments), BUSY[len(experiments)], None)

    monkeypatch.setattr(measuring, "pace", pace)
    made, _ = planned(seeds(6), None)
    assert all(fleet.why.endswith("doubtful: the machine seems busy") for fleet in made.fleets)
    assert len(tried) < 15


def test_a_plan_measured_on_a_quiet_machine_is_not_doubted() -> None:
    for paces in ([1.0, 0.6, 0.5, 0.49], [23.0, 22.0, 22.5], [6.0, 3.0, 1.5, 0.75], [5.0, 6.0, 9.0]):
        assert measuring.doubtful([Pace(2**n, ms, None) for n, ms in enumerate(paces)]) == []


@given(some, st.integers(1, 6), st.integers(2, 5))
def test_where_fleets_train_at_once_none_of_the_devices_is_left_without_one(
    chosen: list[tuple[Experiment, Corpus]], most: int, at_once: int
) -> None:
    trainings = distinct(e for e, _ in chosen)
    corpora = {t.name: next(c for e, c in chosen if e in t.asked) for t in trainings}
    experiments = {t.name: t.experiment for t in trainings}
    alone = plan.make(experiments, corpora, most)
    spread = plan.make(experiments, corpora, most, at_once={e.device: at_once for e in experiments.values()})
    assert sorted(spread.names) == sorted(alone.names)
    names = list(experiments)
    resolved = [devices.resolve(experiments[name]) for name in names]
    groups = [{names[n] for n in group} for group in fleet.groups(resolved, [corpora[n].unique for n in names])]
    for group in groups:
        few = [own for own in alone.fleets if set(own.runs) <= group]
        more = [own for own in spread.fleets if set(own.runs) <= group]
        assert len(few) <= len(more)
        assert len(more) == len(group) or len(more) % at_once == 0
        sizes = [len(own.runs) for own in more]
        assert max(sizes) - min(sizes) <= 1
