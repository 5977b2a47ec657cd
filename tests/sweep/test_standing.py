"""`unroll sweep --status`: what a sweep's folder alone says, during the work and after it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sweeping
from commands import unroll

from unroll.base import locks
from unroll.base.errors import RunError
from unroll.sweep.folder import SweepFolder
from unroll.sweep.journal import Journal
from unroll.sweep.launchers import Begun, Lost, Progressed
from unroll.sweep.standing import Standing, standing


def states(folder: Path) -> list[str]:
    return [fleet.state for fleet in standing(SweepFolder(folder)).fleets]


def test_while_it_is_at_work_the_fleet_that_trains_is_running_and_others_wait(tmp_path: Path) -> None:
    reports = sweeping.follow(tmp_path, sweeping.small(seed=range(4)), most=2)
    seen: Standing | None = None
    for report in reports:
        if isinstance(report, Progressed) and report.batch == 7 and seen is None:
            seen = standing(SweepFolder(tmp_path))
    assert seen is not None
    first, second = seen.fleets
    assert (first.state, first.batch, first.batches, first.runs, first.ended) == ("running", 6, 10, 2, 0)
    assert f"process {os.getpid()} on" in str(first.where)
    assert first.seconds_left is not None
    assert first.seconds_left > 0
    assert (second.state, second.batch, second.where) == ("waiting", 0, None)
    after = standing(SweepFolder(tmp_path))
    assert after.counted() == {"ended": 2}
    assert after.driver is None


def test_a_fleet_that_was_left_is_interrupted_and_one_that_was_killed_is_lost(tmp_path: Path) -> None:
    reports = sweeping.follow(tmp_path, sweeping.small(seed=range(2)), most=2)
    for report in reports:
        if isinstance(report, Progressed) and report.batch == 4:
            break
    reports.close()  # type: ignore[attr-defined]
    assert states(tmp_path) == ["interrupted"]
    for run in (tmp_path / "runs").iterdir():
        folder = SweepFolder(tmp_path).run(run.name)
        folder.status = {**folder.status, "state": "training"}  # what a process that was killed has written
    assert states(tmp_path) == ["lost"]
    sweeping.drive(tmp_path, None)
    assert states(tmp_path) == ["ended"]


def test_a_run_that_another_machine_trains_is_running_there(tmp_path: Path) -> None:
    sweeping.drive(tmp_path, sweeping.small(seed=range(2)), most=1)
    run = next((tmp_path / "runs").iterdir())
    folder = SweepFolder(tmp_path).run(run.name)
    folder.status = {**folder.status, "state": "training"}
    (run / locks.NAME).write_text("77\nnode9\n")
    fleets = standing(SweepFolder(tmp_path)).fleets
    assert sorted(fleet.state for fleet in fleets) == ["ended", "running"]
    assert any("process 77 on node9" in str(fleet.where) for fleet in fleets)


def test_what_the_driver_heard_says_where_a_fleet_trains_and_how_often_it_was_lost(tmp_path: Path) -> None:
    sweep = SweepFolder(tmp_path)
    sweeping.drive(tmp_path, sweeping.small(seed=range(2)), most=1)
    one, two = (fleet.runs[0] for fleet in sweep.plan.fleets)  # type: ignore[union-attr]
    for name in (one, two):  # what stands on this machine while another one trains
        shutil.rmtree(sweep.run(name).path)

    journal = Journal(sweep)
    journal.take(Begun("1", 3, "process 7 on node1"))
    journal.take(Lost("1", "node1 died"))
    journal.take(Begun("1", 5, "process 9 on node2"))
    journal.take(Progressed("1", 8, 0.1, 0.0))
    journal.write()
    with sweep.locked():
        first, second = standing(sweep).fleets
        assert (first.state, first.where, first.batch, first.lost) == ("running", "process 9 on node2", 8, 1)
        assert first.reason == "node1 died"
        assert first.seconds_left is not None
        assert (second.state, second.where, second.lost) == ("waiting", None, 0)
    assert standing(sweep).fleets[0].state == "waiting"  # nobody drives it: what was heard is old


@pytest.mark.parametrize("content", ["", "{}", '{"fleets": 3}', '{"fleets": {"1": 4}}', "[" * 100_000])
def test_a_file_of_what_was_heard_that_is_damaged_is_named_and_passed_over(tmp_path: Path, content: str) -> None:
    sweeping.drive(tmp_path, sweeping.small(seed=range(2)), most=2)
    (tmp_path / "fleets.json").write_text(content)
    stands = standing(SweepFolder(tmp_path))
    assert [fleet.state for fleet in stands.fleets] == ["ended"]
    assert "fleets.json is damaged" in stands.notes[0]
    assert {event for report in sweeping.drive(tmp_path, None) if (event := type(report).__name__)} == {"Planned"}


def test_a_run_whose_status_is_damaged_is_named(tmp_path: Path) -> None:
    sweeping.drive(tmp_path, sweeping.small(seed=range(2)), most=1)
    (one, _) = sorted((tmp_path / "runs").iterdir())
    (one / "status.json").write_text("{")
    found = standing(SweepFolder(tmp_path)).fleets
    assert sorted(fleet.state for fleet in found) == ["ended", "unreadable"]
    assert any("status.json" in str(fleet.reason) for fleet in found)


@pytest.mark.parametrize("in_place_of", ["runs", "a run", "checkpoints", "table.csv"])
def test_what_stands_in_the_place_of_a_run_or_a_file_is_said_and_not_read(tmp_path: Path, in_place_of: str) -> None:
    sweep, others = tmp_path / "sweep", tmp_path / "others"
    sweeping.drive(sweep, sweeping.small(seed=range(2)), most=1)
    run = min((sweep / "runs").iterdir())
    path = {"runs": sweep / "runs", "a run": run, "checkpoints": run / "checkpoints"}.get(
        in_place_of, sweep / "table.csv"
    )
    if path.exists():
        path.rename(others)
    else:
        others.mkdir()
    path.symlink_to(others)
    stands = standing(SweepFolder(sweep))
    assert any(f"{path} must be a" in note and "it is a link" in note for note in stands.notes)
    states = {"runs": ["unreadable"] * 2, "table.csv": ["ended"] * 2}.get(in_place_of, ["ended", "unreadable"])
    assert sorted(fleet.state for fleet in stands.fleets) == states


@pytest.mark.parametrize("lost", ["a run", "its run.toml", "runs", "plan.json"])
def test_what_is_gone_of_a_sweep_that_was_at_work_is_said(tmp_path: Path, lost: str) -> None:
    sweep = tmp_path / "sweep"
    sweeping.drive(sweep, sweeping.small(seed=range(2)), most=1)
    run = min((sweep / "runs").iterdir())
    path = {"a run": run, "its run.toml": run / "run.toml"}.get(lost, sweep / lost)
    path.rename(tmp_path / "taken away")
    stands = standing(SweepFolder(sweep))
    said = {"its run.toml": f"{run} is no run: it has no run.toml", "plan.json": f"{path} is gone"}
    assert any(said.get(lost, f"Nothing of {run} is there") in note for note in stands.notes)


def test_what_is_no_sweep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is no sweep"):
        standing(SweepFolder(tmp_path))
    refused = unroll("sweep", "--status", tmp_path)
    assert (refused.code, "is no sweep" in refused.err) == (2, True)
    refused = unroll("sweep", "--status", tmp_path, "--most", 3)
    assert (refused.code, "--status needs nothing else" in refused.err) == (2, True)


def test_the_command_shows_a_sweep_that_another_process_trains_and_then_lost(tmp_path: Path) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "out"
    text.write_text("to be or not to be, that is the question. " * 50)
    command = [
        sys.executable, "-m", "unroll", "sweep", text, "--k2", 10, "--k1", 5, "--hidden", 8, "--dense", 12, "--rows", 4,
        "--threads", 1, "--batches", 1_000_000, "--device", "cpu", "--seeds", 2, "--most", 1, "--save-every", 5,
        "--evaluations", 2, "--quiet", "--out", out,
    ]  # fmt: skip
    with subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL) as process:
        try:
            until = time.monotonic() + 60
            while not (out / "plan.json").exists() or not standing(SweepFolder(out)).fleets[0].batch:
                assert time.monotonic() < until
                time.sleep(0.1)
            shown = unroll("sweep", "--status", out)
            assert shown.code == 0
            assert "2 fleets: 1 running, 1 waiting" in " ".join(shown.out.split())
            assert f"Held by process {process.pid} on" in " ".join(shown.out.split())
        finally:
            process.send_signal(signal.SIGKILL)
    shown = unroll("sweep", "--status", out, "--json")
    known = json.loads(shown.out)
    assert known["driver"] is None
    assert known["counts"] == {"lost": 1, "waiting": 1}
    assert "--resume goes on with it" in " ".join(unroll("sweep", "--status", out).out.split())
