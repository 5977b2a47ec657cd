"""What goes wrong in a sweep: failures are recorded while the others go on; what does not fit is split, and said."""

from __future__ import annotations

import csv
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sweeping
import torch
from paths import TESTS
from sweeping import drive, small

from unroll.base import limits
from unroll.base.errors import RunError, SaveError
from unroll.engines.judged_update import JudgedUpdate
from unroll.runs.folder import RunFolder
from unroll.sweep.folder import SweepFolder
from unroll.sweep.launchers import Begun, Noted, RunEnded
from unroll.sweep.sweep import Planned, results
from unroll.training.learner import Learner


def state(folder: Path) -> dict[str, str]:
    return {row["run"]: row["state"] for row in results(SweepFolder(folder))}


def table(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "table.csv").read_text().splitlines()))


def test_a_run_that_cannot_be_trained_is_recorded_with_the_reason_and_the_others_go_on(tmp_path: Path) -> None:
    drive(tmp_path, small(k2=[6, 200], seed=[0, 1]))
    folder = SweepFolder(tmp_path)
    assert sorted(state(tmp_path).values()) == ["failed", "failed", "finished", "finished"]
    assert len(folder.failures) == 2
    for name, failure in folder.failures.items():
        assert "k2_200" in name
        assert "needs more than k2 = 200 tokens" in failure["reason"]
        assert not folder.run(name).path.exists()
    rows = table(tmp_path)
    assert [row["reason"] != "" for row in rows] == [row["k2"] == "200" for row in rows]


def test_a_fault_of_the_program_fails_its_fleet_alone_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = small(scheme=[1, 2], seed=[0, 1])
    drive(tmp_path / "whole", asked)
    step = Learner.step

    def faulty(learner: Learner) -> None:
        if learner.experiments[0].scheme.loss == "last" and learner.count == 5:
            raise ZeroDivisionError("of all things")
        step(learner)

    monkeypatch.setattr(Learner, "step", faulty)
    drive(tmp_path / "out", asked)
    failures = SweepFolder(tmp_path / "out").failures
    assert [failure["reason"] for failure in failures.values()] == ["ZeroDivisionError: of all things"] * 2
    assert all("in faulty" in failure["traceback"] for failure in failures.values())
    assert sorted(state(tmp_path / "out").values()) == ["failed"] * 2 + ["finished"] * 2
    monkeypatch.undo()
    begun = [report.batch for report in drive(tmp_path / "out", None) if isinstance(report, Begun)]
    assert begun == [3]  # from its checkpoint
    assert not (tmp_path / "out" / "failures.json").exists()
    assert sweeping.result(tmp_path / "out") == sweeping.result(tmp_path / "whole")


def test_a_full_disk_ends_the_sweep_with_one_line_and_it_can_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = small(seed=[0, 1])
    drive(tmp_path / "whole", asked)

    def full(*_: Any) -> None:
        raise SaveError("Could not save: No space left on device.")

    monkeypatch.setattr(RunFolder, "save", full)
    with pytest.raises(SaveError):
        drive(tmp_path / "out", asked)
    monkeypatch.undo()
    drive(tmp_path / "out", None)
    assert sweeping.result(tmp_path / "out") == sweeping.result(tmp_path / "whole")


def test_a_disk_too_full_for_what_is_left_of_a_sweep_is_said_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = small(seed=[0, 1, 2])
    drive(tmp_path / "whole", asked, most=1)
    for report in (events := sweeping.follow(tmp_path / "out", asked, most=1)):
        if isinstance(report, RunEnded):
            break
    events.close()
    ended = sweeping.ended(tmp_path / "out")
    stamps = sweeping.stamps(tmp_path / "out", ended)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(RunError, match="has 0 MB free; this run may need 1 MB"):
        drive(tmp_path / "out", None)
    assert sweeping.ended(tmp_path / "out") == ended
    assert sweeping.stamps(tmp_path / "out", ended) == stamps
    drive(tmp_path / "whole", None)  # nothing is left that would need room
    monkeypatch.undo()
    drive(tmp_path / "out", None)
    assert sweeping.result(tmp_path / "out") == sweeping.result(tmp_path / "whole")


def test_a_failure_that_is_recorded_does_not_outrank_a_run_that_has_ended(tmp_path: Path) -> None:
    drive(tmp_path, small(seed=[0, 1]))
    folder = SweepFolder(tmp_path)
    folder.failures = {name: {"reason": "Its process was killed."} for name in state(tmp_path)}
    assert set(state(tmp_path).values()) == {"finished"}
    shutil.rmtree(sorted((tmp_path / "runs").iterdir())[0])
    assert sorted(state(tmp_path).values()) == ["failed", "finished"]


def test_a_finished_run_that_is_damaged_later_is_told_in_the_table(tmp_path: Path) -> None:
    drive(tmp_path, small(seed=[0, 1]))
    victim = sorted((tmp_path / "runs").iterdir())[0]
    (victim / "metrics.jsonl").write_text("{")
    drive(tmp_path, None)
    rows = results(SweepFolder(tmp_path))
    assert [row["state"] for row in rows] == ["failed", "finished"]
    assert "ends at batch 0, but the run finished after 10" in rows[0]["reason"]


def test_a_run_that_diverges_is_a_result_and_changes_nothing_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = small(seed=range(3))
    drive(tmp_path / "healthy", asked)
    begin, alive = Learner.__init__, JudgedUpdate._alive
    seeds: dict[Any, list[int]] = {}

    def noted(learner: Learner, experiments: Any, *rest: Any) -> None:
        begin(learner, experiments, *rest)
        seeds[learner.update] = [experiment.seed for experiment in experiments]

    def spoiled(update: JudgedUpdate, loss_M: torch.Tensor, *rest: Any) -> Any:
        bad_M = torch.tensor([seed == 1 for seed in seeds[update]])
        return alive(update, torch.where(bad_M & (update.fleet.number == 5), torch.nan, loss_M), *rest)

    monkeypatch.setattr(Learner, "__init__", noted)
    monkeypatch.setattr(JudgedUpdate, "_alive", spoiled)
    reports = drive(tmp_path / "sick", asked)
    monkeypatch.undo()
    ended = [report.status for report in reports if isinstance(report, RunEnded)]
    assert sorted((status["state"], status["batch"]) for status in ended) == [("finished", 10)] * 2 + [("stopped", 5)]
    assert not (tmp_path / "sick" / "failures.json").exists()
    ours, theirs = sweeping.result(tmp_path / "sick"), sweeping.result(tmp_path / "healthy")
    for row in results(SweepFolder(tmp_path / "sick")):
        assert (ours[row["run"]] == theirs[row["run"]]) == (row["seed"] != 1)
        assert (row["state"], row["reason"]) == (
            ("stopped", "At batch 6 the loss was not finite.") if row["seed"] == 1 else ("finished", None)
        )
    assert [type(report) for report in drive(tmp_path / "sick", None)] == [Planned]  # stopped is over


# --- memory -------------------------------------------------------------------------------------------------------

CPU_WORDS = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to"
ERRORS = [
    torch.cuda.OutOfMemoryError("CUDA out of memory. Tried"),
    MemoryError(),
    RuntimeError(CPU_WORDS),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    OSError(errno.EMFILE, "Too many open files"),
]


def run_out(monkeypatch: pytest.MonkeyPatch, where: str, error: Exception, room: int, batch: int = 0) -> None:
    """Let no more than `room` runs side by side fit: when a fleet is built, or at a batch."""
    init, step = Learner.__init__, Learner.step

    def built(learner: Learner, experiments: Any, *rest: Any) -> None:
        if where == "built" and len(experiments) > room:
            raise error
        init(learner, experiments, *rest)

    def stepped(learner: Learner) -> None:
        if where == "batch" and len(learner.experiments) > room and learner.count == batch:
            raise error
        step(learner)

    monkeypatch.setattr(Learner, "__init__", built)
    monkeypatch.setattr(Learner, "step", stepped)


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: f"{type(e).__name__} {getattr(e, 'errno', '')}".strip())
@pytest.mark.parametrize("where", ["built", "batch"])
def test_a_fleet_that_does_not_fit_is_split_in_two_and_that_is_said(
    where: str, error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = small(seed=range(4))
    drive(tmp_path / "small", asked, most=2)
    run_out(monkeypatch, where, error, room=2)
    reports = drive(tmp_path / "split", asked, most=4)
    plan = SweepFolder(tmp_path / "split").plan
    assert plan is not None
    assert [(own.name, len(own.runs)) for own in plan.fleets] == [("1a", 2), ("1b", 2)]
    (change,) = plan.changes
    assert change.startswith("Fleet 1 did not fit and was split into 1a and 1b: ")
    assert [report.message for report in reports if isinstance(report, Noted)].count(change) == 1
    # Trained, to the last bit, as in fleets of that size from the start.
    ours, theirs = sweeping.result(tmp_path / "split"), sweeping.result(tmp_path / "small")
    names = {row["run"] for row in results(SweepFolder(tmp_path / "split"))}
    assert len(names) == 4
    assert {name: ours[name] for name in names} == {name: theirs[name] for name in names}


def test_a_fleet_is_split_until_it_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_out(monkeypatch, "built", ERRORS[0], room=1)
    drive(tmp_path, small(seed=range(5)), most=5)
    plan = SweepFolder(tmp_path).plan
    assert plan is not None
    assert [own.name for own in plan.fleets] == ["1aaa", "1aab", "1ab", "1ba", "1bb"]
    assert set(state(tmp_path).values()) == {"finished"}


def test_a_split_stands_when_the_sweep_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = small(seed=range(4))
    run_out(monkeypatch, "built", ERRORS[0], room=2)
    for report in (events := sweeping.follow(tmp_path, asked, most=4)):
        if isinstance(report, Noted) and "split" in report.message:
            break
    events.close()
    monkeypatch.undo()
    begun = [report.fleet for report in drive(tmp_path, asked) if isinstance(report, Begun)]
    assert begun == ["1a", "1b"]


def test_a_run_that_does_not_fit_alone_fails_with_the_reason_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_out(monkeypatch, "built", ERRORS[0], room=0)
    drive(tmp_path, small(seed=range(3)), most=3)
    failures = SweepFolder(tmp_path).failures
    assert len(failures) == 3
    for failure in failures.values():
        assert failure["reason"].startswith("There is not enough memory for this run alone (CUDA out of memory. Tried)")
        assert "Lower hidden=" in failure["reason"]


def test_a_fleet_with_a_checkpoint_is_never_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = small(seed=range(3))
    drive(tmp_path / "whole", asked)
    run_out(monkeypatch, "batch", ERRORS[2], room=1, batch=5)
    drive(tmp_path / "out", asked)
    plan = SweepFolder(tmp_path / "out").plan
    assert plan is not None
    assert plan.changes == ()
    assert {f["reason"][:33] for f in SweepFolder(tmp_path / "out").failures.values()} == {
        "There is not enough memory for 3 "
    }
    monkeypatch.undo()
    drive(tmp_path / "out", None)
    assert sweeping.result(tmp_path / "out") == sweeping.result(tmp_path / "whole")


# --- open files ---------------------------------------------------------------------------------------------------


def test_a_plan_that_was_made_where_more_files_could_be_open_is_split_where_fewer_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = small(seed=range(6))
    drive(tmp_path / "small", asked, most=3)
    for report in (events := sweeping.follow(tmp_path / "moved", asked, most=6)):
        if isinstance(report, Planned):
            break
    events.close()
    monkeypatch.setattr(limits, "files_left", lambda: 3)
    drive(tmp_path / "moved", None)
    plan = SweepFolder(tmp_path / "moved").plan
    assert plan is not None
    assert [(own.name, len(own.runs)) for own in plan.fleets] == [("1a", 3), ("1b", 3)]
    assert "Too many open files" in plan.changes[0]
    ours, theirs = sweeping.result(tmp_path / "moved"), sweeping.result(tmp_path / "small")
    names = set(state(tmp_path / "moved"))
    assert {name: ours[name] for name in names} == {name: theirs[name] for name in names}


def test_a_fleet_with_a_checkpoint_that_needs_more_open_files_than_there_are_fails_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = small(seed=range(3))
    drive(tmp_path / "whole", asked)
    run_out(monkeypatch, "batch", ZeroDivisionError(), room=1, batch=5)
    drive(tmp_path / "out", asked)
    monkeypatch.undo()
    monkeypatch.setattr(limits, "files_left", lambda: 2)
    drive(tmp_path / "out", None)
    reasons = {failure["reason"] for failure in SweepFolder(tmp_path / "out").failures.values()}
    assert reasons == {
        "This process may not open enough files for 3 runs side by side ([Errno 24] Too many open files). "
        "Raise that limit (ulimit -n) and go on."
    }
    monkeypatch.undo()
    drive(tmp_path / "out", None)
    assert sweeping.result(tmp_path / "out") == sweeping.result(tmp_path / "whole")


def test_files_that_run_out_while_a_run_is_saved_for_the_first_time_split_its_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = RunFolder.save

    def saved(folder: RunFolder, *content: Any) -> None:
        if len(list(folder.path.parent.iterdir())) > 1 and not (tmp_path / "once").exists():
            (tmp_path / "once").touch()
            raise SaveError("Could not save.") from OSError(errno.EMFILE, "Too many open files")
        save(folder, *content)

    monkeypatch.setattr(RunFolder, "save", saved)
    drive(tmp_path / "out", small(seed=range(2)), most=2)
    plan = SweepFolder(tmp_path / "out").plan
    assert plan is not None
    assert [own.name for own in plan.fleets] == ["1a", "1b"]
    assert set(state(tmp_path / "out").values()) == {"finished"}


# --- the limits themselves, as `ulimit` sets them -----------------------------------------------------------------

LIMITED = """
import resource, sys
from pathlib import Path
import sweeping, torch
from unroll import Corpus
from unroll.training import memory
from unroll.sweep.launchers import Noted
from unroll.engines.choice import engine_of
from unroll.training.learner import Learner
from unroll.corpus.open_corpora import Library
from unroll.sweep.sweep import describe, sweep
from unroll.sweep.folder import SweepFolder
from unroll.training.loop import train_fleet

folder, kernel, room = sys.argv[1:]
corpus = Corpus.from_text("abcdefgh " * 2000)
shape = dict(hidden=128, dense=512, rows=64, k2=80, batches=3, kernel=kernel, dropout=0.0, test_tokens=90)
library = Library([corpus])
asked = describe([corpus.described_in(e) for e in sweeping.small(seed=range(8), **shape)], library)

def in_use(line):
    words = dict(line.split()[:2] for line in Path("/proc/self/status").read_text().splitlines() if "kB" in line)
    return 1024 * int(words[line])

list(train_fleet(asked[:1], [corpus], [f"{folder}/first{room}"]))  # what is loaded once
before = in_use("VmSize:")
if room == "0":  # how much eight side by side take: in a process of its own, which then leaves nothing behind
    learner = Learner(asked, [corpus] * 8, engine_of(torch.device("cpu"), kernel))
    learner.prepare()
    learner.step()
    sys.exit(print(in_use("VmPeak:") - before))
memory.available = lambda device: 1 << 60  # the plan is made where there is no limit
resource.setrlimit(resource.RLIMIT_AS, (before + int(room),) * 2)
for report in sweep(SweepFolder(f"{folder}/sweep"), library, asked, 8):
    if isinstance(report, Noted):
        print(report.message)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["stacked", "host", "compiled"])
def test_a_fleet_too_large_for_the_address_space_that_the_system_allows_is_split(kernel: str, tmp_path: Path) -> None:
    needed = int(limited(LIMITED, tmp_path, kernel, 0).stdout)
    assert needed > 100e6
    done = limited(LIMITED, tmp_path, kernel, needed * 6 // 10)
    assert done.stderr == ""
    assert "Fleet 1 did not fit and was split into 1a and 1b" in done.stdout
    assert set(state(tmp_path / "sweep").values()) == {"finished"}


def limited(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """A script that changes the limits of its own process."""
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
