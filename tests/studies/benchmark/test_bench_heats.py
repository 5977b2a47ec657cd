"""Times are taken in turn, and one contestant's failure is its own."""

from __future__ import annotations

import gc
import math
import weakref

import pytest
import torch
from bench_cases import CPU, TIMING, contestant, entries, tiny_corpus, tiny_shape

from unroll.studies.benchmark import heats, measurement
from unroll.studies.benchmark.contestants import PEERS, ContestantBuilder, Entry, ReadyContestant
from unroll.studies.benchmark.heats import Timing, reason, run_group
from unroll.studies.benchmark.record import Record, Row
from unroll.training import memory


def run(group: list[Entry], build: object, timing: Timing = TIMING) -> tuple[list[Row], list[Row]]:
    reported: list[Row] = []
    return run_group(group, build, CPU, timing, reported.append), reported  # type: ignore[arg-type]


def test_contestants_take_turns_and_the_order_is_reversed_every_other_block(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(heats, "_steps", lambda *_: 1)
    rows, _ = run(entries("a", "b", "c"), lambda e: contestant(lambda: seen.append(e.contestant)))
    assert seen == list("abc") + list("cba") + list("abc")
    assert [len(row.ms) for row in rows] == [3, 3, 3]


def test_a_blocks_time_is_shared_by_its_steps_and_its_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heats, "_steps", lambda *_: 10)
    monkeypatch.setattr(heats, "seconds", lambda step, steps, device: 0.2 * steps)
    rows, _ = run([Entry(tiny_shape(), "unroll-fleet", "float32", 4)], lambda e: contestant())
    assert rows[0].ms == pytest.approx((50.0,) * 3)
    assert (rows[0].steps, rows[0].kernel, rows[0].median) == (10, "some kernel", pytest.approx(50.0))


@pytest.mark.parametrize(("each", "steps"), [(0.001, 300), (0.07, 5), (2.0, 1)])
def test_a_block_has_as_many_steps_as_fill_its_seconds(
    each: float, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heats, "seconds", lambda step, count, device: each * count)
    assert heats._steps(contestant(), CPU, Timing(0.3, 3, 1)) == steps


def test_a_contestant_that_fails_is_a_row_that_says_why_and_the_others_go_on() -> None:
    def build(entry: Entry) -> ReadyContestant:
        if entry.contestant == "unbuilt":
            raise ModuleNotFoundError("No module named 'flashrnn'")
        if entry.contestant == "broken":
            count = iter(range(10**9))

            def step() -> None:
                if next(count) > 3:
                    raise RuntimeError("an illegal\n  memory access")

            return contestant(step)
        return contestant(
            loss=math.nan if entry.contestant == "diverged" else None if entry.contestant == "mute" else 1.0
        )

    rows, reported = run(entries("unbuilt", "broken", "good", "diverged", "mute"), build)
    problems = {row.contestant: row.problem for row in rows}
    assert problems == {
        "unbuilt": "ModuleNotFoundError: No module named 'flashrnn'",
        "broken": "RuntimeError: an illegal memory access",
        "good": None,
        "diverged": "its loss was not finite",
        "mute": "its loss was not finite",
    }
    assert [row.median is not None for row in rows] == [False, False, True, False, False]
    assert sorted(row.contestant for row in reported) == sorted(problems)


def test_ctrl_c_is_no_failure_of_a_contestant() -> None:
    def build(entry: Entry) -> ReadyContestant:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(entries("a"), build)


def test_who_does_not_fit_beside_the_others_runs_in_the_next_heat_and_who_fits_nowhere_fails() -> None:
    class Held:
        """Something large."""

    alive: weakref.WeakSet[Held] = weakref.WeakSet()
    heats: list[list[str]] = []

    def build(entry: Entry) -> ReadyContestant:
        if entry.contestant == "huge" or (entry.contestant in ("large", "wide") and alive):
            raise torch.OutOfMemoryError("CUDA out of memory")
        if not alive:
            heats.append([])
        heats[-1].append(entry.contestant)
        held = Held()
        alive.add(held)
        return contestant(lambda: held and None)

    rows, _ = run(entries("small", "large", "huge", "tiny", "wide"), build)
    assert heats == [["small", "tiny"], ["large"], ["wide"]]
    assert [row.contestant for row in rows if row.problem] == ["huge"]
    gc.collect()
    assert not alive, "what a heat held is let go"


def test_running_out_of_memory_is_seen_through_another_error() -> None:
    def hidden() -> None:
        try:
            raise torch.OutOfMemoryError("CUDA out of memory")
        except torch.OutOfMemoryError:
            raise RuntimeError("capture was cut short")  # noqa: B904

    with pytest.raises(RuntimeError, match="cut short") as caught:
        hidden()
    assert memory.ran_out(caught.value)
    assert not memory.ran_out(RuntimeError("something else"))
    assert reason(ValueError()) == "ValueError"
    assert len(reason(ValueError("x" * 5000))) == heats.LENGTH


def test_what_is_known_is_kept_after_every_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unroll.studies.benchmark.floors.SIZES", {"cpu": 16})
    kept: list[Record] = []
    groups = [tuple(entries("a", "b")), tuple(entries("c"))]
    record = measurement.measure(
        "comparison", groups, lambda e: contestant(), CPU, TIMING, {"kernel": "auto"}, keep=kept.append
    )
    assert [len(r.rows) for r in kept] == [2, 3]
    assert kept[-1] == record
    assert list(record.rates) == ["float32"]
    assert record.settings["care"]["blocks"] == 3
    assert record.machine["torch"] == torch.__version__


def test_real_contestants_race_on_a_cpu_and_one_that_needs_cuda_says_so() -> None:
    shape = tiny_shape()
    group = [
        Entry(shape, "unroll", "float32"),
        Entry(shape, "unroll-fleet", "float32", 2),
        Entry(shape, "unroll", "float7"),
        *(Entry(shape, name, way.precision) for name, way in PEERS.items() if name in ("lstm-eager", "flashrnn")),
    ]
    rows, _ = run(group, ContestantBuilder(tiny_corpus(shape), CPU).build)
    assert [row.problem is None for row in rows] == [True, True, False, True, False]
    assert "precision must be one of" in str(rows[2].problem)
    assert all(row.loss == pytest.approx(math.log(16), abs=0.5) for row in rows if not row.problem)
