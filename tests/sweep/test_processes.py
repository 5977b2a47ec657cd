"""The launcher that trains a fleet a core: it saves when it is told to stop, and leaves nobody behind."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from paths import TESTS
from sweeping import small

from unroll import Corpus
from unroll.base.errors import ConfigurationError, Interrupted, UnrollError
from unroll.corpus.open_corpora import Library
from unroll.engines import devices
from unroll.runs.folder import RunFolder
from unroll.sweep import launchers, sweep
from unroll.sweep.launchers import Begun, Failed, Job, RunEnded, local, processes
from unroll.training import relocate

LONG = 100_000  # batches: it is stopped before
HERE = [str(TESTS / "sweep"), str(TESTS)]  # where its scripts find this file, and what it imports


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
from unroll.sweep.launchers import Begun, processes
from unroll.corpus.open_corpora import Library
if __name__ == "__main__":
    for report in processes.run([job(Path(sys.argv[1]), LONG)], Library()):
        if isinstance(report, Begun):
            print("begun", flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_parent_that_is_killed_takes_its_processes_along(tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    script.write_text(MAIN)
    command = [sys.executable, str(script), str(tmp_path), *HERE]
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


# --- how a process begins ------------------------------------------------------------------------------------------

SCRIPT = """
import random, sys, unroll
random.seed(0)
text = unroll.Corpus.from_text("".join(random.choices("abcdefgh ", k=500_000)))
runs = unroll.grid(k1=4, k2=8, hidden=8, dense=16, rows=4, batches=5, test_tokens=60, threads=1, device="cpu")
rows = unroll.train_all(runs, {out!r}, [text], launcher="processes")
print([row["state"] for row in rows])
"""


@pytest.mark.parametrize(
    "given",
    ["as a file", pytest.param("as a word", marks=pytest.mark.slow), pytest.param("piped", marks=pytest.mark.slow)],
)
def test_a_script_without_a_guard_trains_a_corpus_that_no_pipe_holds(given: str, tmp_path: Path) -> None:
    script = SCRIPT.format(out=str(tmp_path / "sweep"))
    path = tmp_path / "script.py"
    path.write_text(script)
    how = {"as a file": [str(path)], "as a word": ["-c", script], "piped": ["-"]}[given]
    typed = script if given == "piped" else ""
    done = subprocess.run([sys.executable, *how], input=typed, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "['finished']\n", "")


def test_a_process_that_ends_before_it_is_ready_is_an_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "BEGIN", "raise SystemExit(3)")
    with pytest.raises(UnrollError, match="ended with code 3 before it was ready"):
        list(processes.run([job(tmp_path, 10, n) for n in range(2)], Library()))
    assert _children(os.getpid()) == []
    assert not (tmp_path / "run0").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_heard_while_a_process_begins(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "BEGIN", "import time; time.sleep(600)")
    started = processes._started

    def begun(place: str) -> processes.Worker:
        worker = started(place)
        threading.Timer(0.1, os.kill, (os.getpid(), number)).start()
        return worker

    monkeypatch.setattr(processes, "_started", begun)
    monkeypatch.setattr(processes, "cores", lambda: 1)
    began = time.monotonic()
    with pytest.raises(Interrupted) as raised:
        list(processes.run([job(tmp_path, 10)], Library()))
    assert raised.value.exit_code == 128 + number
    assert time.monotonic() - began < processes.PATIENCE / 2
    assert _children(os.getpid()) == []


def test_where_no_more_processes_can_be_started_those_there_are_do_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, times = processes._started, []

    def refused(place: str) -> processes.Worker:
        times.append(1)
        if len(times) > 1:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return started(place)

    monkeypatch.setattr(processes, "_started", refused)
    monkeypatch.setattr(processes, "cores", lambda: 2)
    reports = list(processes.run([job(tmp_path, 10, n) for n in range(3)], Library()))
    assert sorted(r.run for r in reports if isinstance(r, RunEnded)) == ["run0", "run1", "run2"]
    assert len(times) == 2
    with pytest.raises(UnrollError, match="can be started: Resource temporarily unavailable"):
        list(processes.run([job(tmp_path, 10, 3)], Library()))


def test_ids_that_are_mapped_from_a_file_travel_as_its_name_and_others_as_they_are(tmp_path: Path) -> None:
    np.arange(100_000, dtype=np.uint8).tofile(tmp_path / "ids.uint8")
    mapped = np.memmap(tmp_path / "ids.uint8", np.uint8, "c")
    corpus = Corpus.from_text("abcdefgh " * 40)
    for ids, by_name in ((mapped, True), (mapped[7:], False), (np.array(mapped), False)):
        own = replace(corpus, ids=ids)
        content = processes.packed(Library([own]))
        assert (len(content) < 10_000) == by_name
        found = pickle.loads(content).open(own.described_in(small(corpus="x")[0]))
        assert np.array_equal(found.ids, ids)
    (tmp_path / "ids.uint8").unlink()
    content = processes.packed(Library([replace(corpus, ids=mapped)]))
    assert len(content) > 100_000


PRESSED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
from test_processes import LONG, job
from unroll.base.errors import Interrupted
from unroll.sweep.launchers import Begun, processes
from unroll.corpus.open_corpora import Library

started = processes._started

def press():
    os.killpg(0, signal.SIGINT)  # as a terminal does, to all that run in it

def begun(place):
    worker = started(place)
    if sys.argv[2] == "begins":
        press()
    return worker

processes._started = begun
processes.cores = lambda: 1
try:
    for report in processes.run([job(Path(sys.argv[1]), LONG)], Library()):
        if isinstance(report, Begun):
            press()
except Interrupted as error:
    sys.exit(error.exit_code)
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", ["begins", "trains"])
def test_control_c_in_a_terminal_ends_all_processes_without_a_word_and_saves(when: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PRESSED, str(tmp_path), when, *HERE]
    done = subprocess.run(command, capture_output=True, text=True, start_new_session=True, timeout=120)
    assert (done.returncode, done.stderr) == (130, "")
    if when == "trains":
        assert RunFolder(tmp_path / "run0").status["state"] == "interrupted"
    else:
        assert not (tmp_path / "run0").exists()


def _children(parent: int) -> list[int]:
    """The processes that train for a parent."""
    found = []
    for line in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if b"launchers.processes" in Path(f"/proc/{line}/cmdline").read_bytes():
            found.append(int(line))
    return found


def _lives(process: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().split(")")[-1].split()[0]
    except OSError:
        return False


def test_each_gpu_has_a_process_that_sees_it_alone_and_the_next_fleet_goes_to_whichever_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a GPU: jobs whose device names two train on the CPU, in the processes that the GPUs would have."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6,7")
    monkeypatch.setattr(devices, "is_host", lambda name: False)
    monkeypatch.setattr(relocate, "places", lambda name: ("cuda:0", "cuda:1"))
    monkeypatch.setattr(processes, "GPU", "cpu")
    started: list[tuple[str, str]] = []
    begin = processes._started

    def watched(place: str) -> processes.Worker:
        worker = begin(place)
        environment = Path(f"/proc/{worker.process.pid}/environ")
        while not (content := environment.read_bytes()):  # the system fills it a moment after the process is there
            assert worker.process.poll() is None
        seen = [v.partition(b"=")[2] for v in content.split(b"\0") if v.startswith(b"CUDA_VISIBLE_DEVICES=")]
        started.append((place, b" ".join(seen).decode()))
        return worker

    monkeypatch.setattr(processes, "_started", watched)
    reports = list(processes.run([job(tmp_path, 10, n) for n in range(5)], Library()))
    assert sorted(r.run for r in reports if isinstance(r, RunEnded)) == [f"run{n}" for n in range(5)]
    assert sorted(started) == [("cuda:0", "6"), ("cuda:1", "7")]
    trained_by = {r.where.split(" on ")[0] for r in reports if isinstance(r, Begun)}
    assert len(trained_by) == 2


@pytest.mark.parametrize(("device", "count"), [("cuda", 3), ("cuda:0,2", 2), ("cuda:2,0,2", 2), ("cuda:1", 1)])
def test_a_device_names_all_gpus_or_some(device: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert len(devices.places(device)) == count
    assert len(relocate.places(device)) == count


def test_gpus_that_are_not_there_are_refused_where_asked_and_passed_over_where_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ConfigurationError, match="2 CUDA devices"):
        devices.places("cuda:1,4")
    for wrong in ("cuda:1,x", "cpu,1", "cuda:0,"):
        with pytest.raises(ConfigurationError, match="device must be"):
            devices.places(wrong)
    assert relocate.places("cuda:1,4") == ("cuda:1",)
    assert relocate.places("cuda:5,4") == ("cuda",)


def test_a_sweep_on_several_gpus_trains_in_a_process_for_each(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    jobs = [job(tmp_path, 10, n) for n in range(3)]
    local = launchers.chosen("local")
    assert sweep._with_all_devices(local, jobs) == (local, None)
    monkeypatch.setattr(relocate, "places", lambda name: ("cuda:0", "cuda:1"))
    launcher, note = sweep._with_all_devices(local, jobs)
    assert (launcher.name, str(note)[:7]) == ("processes", "2 GPUs:")
    assert sweep._with_all_devices(local, jobs[:1]) == (local, None)
