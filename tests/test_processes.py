"""The launcher that trains a fleet a core: it saves when it is told to stop, and leaves nobody behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sweeping import small

from unroll import Corpus
from unroll.launchers import Begun, Failed, Job, RunEnded, local, processes
from unroll.library import Library
from unroll.run import RunFolder

LONG = 100_000  # batches: it is stopped before


def job(folder: Path, batches: int, number: int = 0) -> Job:
    text = folder / "text.txt"
    text.write_text("abcdefgh " * 40)
    (e,) = small(corpus=str(text), seed=number, batches=batches, kernel="stacked")
    described = Corpus.open(str(text)).described_in(e)
    return Job(str(number), (f"run{number}",), (described,), (str(folder / f"run{number}"),), 5)


def test_fleets_train_at_once_where_there_are_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "cores", lambda: 2)
    reports = list(processes.run([job(tmp_path, 10, n) for n in range(3)], Library()))
    assert sorted(r.run for r in reports if isinstance(r, RunEnded)) == ["run0", "run1", "run2"]


@pytest.mark.slow
def test_when_nobody_listens_any_more_what_trains_is_saved(tmp_path: Path) -> None:
    reports = processes.run([job(tmp_path, LONG)], Library())
    for report in reports:
        if isinstance(report, Begun):
            break
    reports.close()
    folder = RunFolder(tmp_path / "run0")
    assert folder.status["state"] == "interrupted"
    assert folder.checkpoints()
    with folder.locked():
        pass


def test_a_process_that_dies_is_a_failure_of_its_runs(tmp_path: Path) -> None:
    began, reports = False, []
    for report in processes.run([job(tmp_path, LONG)], Library()):
        reports.append(report)
        if isinstance(report, Begun) and not began:
            began = True
            (child,) = _children(os.getpid())
            os.kill(child, signal.SIGKILL)
    assert isinstance(reports[-1], Failed)
    assert reports[-1].runs == ("run0",)
    assert "ended with code -9" in reports[-1].reason


def test_a_process_that_dies_takes_no_result_away_from_a_run_that_had_ended(tmp_path: Path) -> None:
    short, long = job(tmp_path, 3, 0), job(tmp_path, LONG, 1)
    both = Job("1", short.runs + long.runs, short.experiments + long.experiments, short.outs + long.outs, 5)
    failed = []
    for report in processes.run([both], Library()):
        if isinstance(report, RunEnded):
            (child,) = _children(os.getpid())
            os.kill(child, signal.SIGKILL)
        failed += [report] if isinstance(report, Failed) else []
    assert [report.runs for report in failed] == [("run1",)]


MAIN = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from test_processes import LONG, job
from unroll.launchers import Begun, processes
from unroll.library import Library
if __name__ == "__main__":
    for report in processes.run([job(Path(sys.argv[1]), LONG)], Library()):
        if isinstance(report, Begun):
            print("begun", flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_parent_that_is_killed_takes_its_processes_along(tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    script.write_text(MAIN)
    command = [sys.executable, str(script), str(tmp_path), str(Path(__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "begun\n"
        children = _children(parent.pid)
        parent.kill()
    assert children
    deadline = time.monotonic() + 10
    while any(map(_lives, children)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(_lives, children))
    assert RunFolder(tmp_path / "run0").status["state"] == "training"
    short = job(tmp_path, LONG)
    for report in local.run([short], Library()):  # whoever goes on finds nobody there
        assert not isinstance(report, Failed)
        if isinstance(report, Begun):
            break


def _children(parent: int) -> list[int]:
    """The processes that train for a parent; not the one that keeps its resources in order."""
    found = []
    for line in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if b"spawn_main" in Path(f"/proc/{line}/cmdline").read_bytes():
            found.append(int(line))
    return found


def _lives(process: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().split(")")[-1].split()[0]
    except OSError:
        return False
