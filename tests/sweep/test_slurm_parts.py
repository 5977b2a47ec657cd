"""The launcher slurm without a queue: what it reads and what it does not, what it refuses, and locks that jobs left."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from sweeping import small

from unroll import Corpus
from unroll.base import locks
from unroll.base.errors import ConfigurationError, RunError, UnrollError
from unroll.corpus.open_corpora import Library
from unroll.runs.folder import RunFolder
from unroll.sweep import launchers
from unroll.sweep.launchers import (
    Begun,
    Failed,
    Job,
    Lost,
    Noted,
    Progressed,
    Report,
    RunEnded,
    Scored,
    TooLarge,
    _slurm_job,
    _slurm_submission,
    slurm,
)
from unroll.sweep.launchers._report_lines import Attempt, Left, Over, Reader, add, line, parsed
from unroll.sweep.launchers._slurm_drive import Drive, Task
from unroll.sweep.launchers._slurm_queue import Local, sbatch_options
from unroll.sweep.launchers._travel import packed

KEYS = {name: key.default for name, key in slurm.KEYS.items()} | {"cluster": "local"}


def jobs(folder: Path, *seeds: int) -> list[Job]:
    """A fleet of one run for each seed."""
    text = folder / "text.txt"
    text.write_text("abcdefgh " * 40)
    made = []
    for seed in seeds:
        (e,) = small(corpus=str(text), seed=seed, kernel="stacked")
        out = str(folder / "sweep" / "runs" / f"run{seed}")
        made.append(Job(str(seed), (f"run{seed}",), (Corpus.open(str(text)).described_in(e),), (out,), 3))
    return made


class Bomb:
    """A pickle that makes a folder when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


class Trained(NamedTuple):
    """A fleet that was trained in a folder in which somebody had left pickles under submitit's names."""

    folder: Path
    reports: list[Report]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("slurm")
    (job,) = jobs(folder, 0)
    submission = _slurm_submission.make(_slurm_submission.place_of([job]), [job])
    bomb = pickle.dumps(Bomb(folder / "gone off"))
    for name in ("library.pkl", "result.pkl", "task.pkl", "1_0_submitted.pkl", "1_0_result.pkl", "submission.pkl"):
        (submission.path / name).write_bytes(bomb)
    gone = subprocess.Popen(["true"])
    gone.wait()
    add(submission.reports(0), Attempt("0", gone.pid, locks.this_machine(), None))
    return Trained(folder, list(slurm.run([job], Library(), cluster="local")))


def test_a_fleet_trains_as_a_job_of_submitit_and_ends_as_with_local(trained: Trained, tmp_path: Path) -> None:
    assert [type(r) for r in trained.reports if isinstance(r, Begun | RunEnded)] == [Begun, RunEnded]
    assert not any(isinstance(r, Failed | Lost) for r in trained.reports)
    (job,) = jobs(trained.folder, 0)
    there = replace(job, outs=(str(tmp_path / "local" / "runs" / "run0"),))
    list(launchers.load("local").run([there], Library()))
    assert weights(trained.folder / "sweep") == weights(tmp_path / "local")


def test_what_a_stranger_left_in_the_folder_is_never_unpickled(trained: Trained) -> None:
    assert not (trained.folder / "gone off").exists()
    assert not (trained.folder / "sweep" / "slurm").exists()


def weights(folder: Path) -> bytes:
    return (folder / "runs" / "run0" / "weights.safetensors").read_bytes()


@pytest.mark.parametrize(
    "report",
    [
        Begun("1", 7),
        Progressed("1", 3, 0.25, 0.0),
        Scored("1", "run", {"batch": 3, "perplexity": {"windowed": 3.2}, "loss": None}),
        RunEnded("1", "run", {"state": "finished"}),
        Failed("1", ("a", "b"), "It is too large.", "Traceback …"),
        TooLarge("1", "no memory"),
        Noted("1", "a note\nof two lines"),
        Attempt("1", 4711, "node3", None),
        Left("1", "signal 15 ended it", 3, False),
        Over("1"),
    ],
)
def test_a_report_that_was_written_down_is_read_back(tmp_path: Path, report: Report) -> None:
    add(tmp_path / "0.jsonl", report)
    assert list(Reader(tmp_path / "0.jsonl").new()) == [report]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"null",
        b"[" * 99999,
        b"\xff\xfe",
        b'{"report": "Over"}',
        b'{"report": "system", "fleet": "1"}',
        b'{"report": "Begun", "fleet": "1", "batch": "7"}',
        b'{"report": "Over", "fleet": "1", "more": 1}',
    ],
)
def test_a_line_that_is_no_report_is_passed_over(text: bytes) -> None:
    assert parsed(text) is None


def test_reports_are_read_once_each_and_only_when_their_lines_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "0.jsonl"
    reader = Reader(path)
    assert list(reader.new()) == []
    text = line(Begun("1", 7)).encode() + b"\n"
    path.write_bytes(text + text[:9])
    assert list(reader.new()) == [Begun("1", 7)]
    assert list(reader.new()) == []
    path.write_bytes(text + text)
    assert list(reader.new()) == [Begun("1", 7)]


def test_what_the_launcher_sets_itself_and_what_is_no_option_is_refused_all_at_once() -> None:
    assert sbatch_options("--nice=5 --exclusive --comment='a b'") == {"nice": "5", "exclusive": True, "comment": "a b"}
    with pytest.raises(ConfigurationError) as refused:
        sbatch_options("nice --array=0-3 --signal=TERM")
    assert len(refused.value.problems) == 3


def test_a_time_limit_before_its_own_warning_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be warned 60 seconds before"):
        slurm.run(jobs(tmp_path, 0), Library(), cluster="local", minutes=1)


def test_where_there_is_no_slurm_the_message_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match="There is no Slurm on this machine: it has no command sbatch"):
        slurm.run(jobs(tmp_path, 0), Library())


def test_texts_in_files_stay_there_and_texts_in_memory_travel(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("abcdefgh " * 4000)
    inside = Corpus.from_text("to be or not to be " * 20)
    library = Library([inside, Corpus.open(str(tmp_path / "text.txt"))])
    content = packed(library)
    assert len(content) < 10_000
    (back,) = pickle.loads(content).opened
    assert (back.sha256, back.tokens) == (inside.sha256, inside.tokens)


def test_a_folder_that_others_may_enter_or_that_is_a_link_is_no_submission(tmp_path: Path) -> None:
    todo = jobs(tmp_path, 0)
    place = _slurm_submission.place_of(todo)
    submission = _slurm_submission.make(place, todo)
    assert [one.path for one in _slurm_submission.known(place)] == [submission.path]
    submission.path.chmod(0o755)
    assert list(_slurm_submission.known(place)) == []
    submission.path.chmod(0o700)
    submission.path.rename(tmp_path / "elsewhere")
    submission.path.symlink_to(tmp_path / "elsewhere")
    assert list(_slurm_submission.known(place)) == []
    submission.path.unlink()
    place.rmdir()
    place.symlink_to(tmp_path)
    with pytest.raises(RunError, match="must be a folder"):
        next(slurm.run(todo, Library(), cluster="local"))


def test_clearing_a_submission_leaves_what_is_not_its_own(tmp_path: Path) -> None:
    todo = jobs(tmp_path, 0)
    submission = _slurm_submission.make(_slurm_submission.place_of(todo), todo)
    for name in ("0.jsonl", "library.pkl", "7_0_0_log.err", ".submission_file_a1.sh", "letter.txt"):
        (submission.path / name).write_text("")
    submission.clear()
    assert [path.name for path in submission.path.iterdir()] == ["letter.txt"]


def test_a_copied_folder_has_jobs_of_another_name(tmp_path: Path) -> None:
    todo = jobs(tmp_path, 0)
    submission = _slurm_submission.make(_slurm_submission.place_of(todo), todo)
    assert replace(submission, path=tmp_path / "copy" / submission.path.name).name != submission.name


def task_that_is_gone(tmp_path: Path, job: Job, word: str | None) -> tuple[Drive, Task]:
    drive = Drive([job], Library(), Local(KEYS))
    submission = _slurm_submission.make(drive.place, [job])
    return drive, Task(job, submission, 0, "17_0", gone=(time.monotonic(), word))


def test_a_job_that_is_gone_is_submitted_again_a_few_times(tmp_path: Path) -> None:
    (job,) = jobs(tmp_path, 0)
    drive, task = task_that_is_gone(tmp_path, job, "CANCELLED")
    verdicts = [report for _ in range(3) for report in drive._gone(task)]
    assert [type(verdict) for verdict in verdicts] == [Lost, Lost, Failed]
    assert "The job 17_0 of fleet 0 is gone: CANCELLED." in verdicts[0].reason
    assert verdicts[-1].runs == ("run0",)
    assert drive.lost == [job, job]


def test_a_fleet_that_gets_further_each_time_may_be_lost_more_often_but_not_cancelled(tmp_path: Path) -> None:
    (job,) = jobs(tmp_path, 0)
    for word, last in (("NODE_FAIL", Lost), ("CANCELLED", Failed)):
        drive, task = task_that_is_gone(tmp_path, job, word)
        verdicts: list[Report] = []
        for batch in range(6):
            task.began = 10 * batch
            verdicts += drive._gone(task)
        assert type(verdicts[-1]) is last


def test_a_job_that_has_said_all_and_is_about_to_end_is_not_waited_for(tmp_path: Path) -> None:
    one, other = jobs(tmp_path, 0, 1)
    both = Job("0", (*one.runs, *other.runs), (*one.experiments, *other.experiments), (*one.outs, *other.outs))
    submission = _slurm_submission.make(_slurm_submission.place_of([both]), [both])
    me = locks.this_process()
    add(submission.reports(0), Attempt("0", me.process, me.machine, me.began))
    assert not submission.is_told(0)
    for report in (TooLarge("0", "no memory"), Over("0")):
        add(submission.reports(0), report)
    assert submission.is_told(0)


def test_a_fleet_that_slurm_found_too_large_is_split_and_a_run_alone_is_not(tmp_path: Path) -> None:
    one, other = jobs(tmp_path, 0, 1)
    both = Job("0", (*one.runs, *other.runs), (*one.experiments, *other.experiments), (*one.outs, *other.outs))
    drive, task = task_that_is_gone(tmp_path, both, "OUT_OF_MEMORY")
    assert [type(report) for report in drive._gone(task)] == [TooLarge]
    drive, task = task_that_is_gone(tmp_path, one, "OUT_OF_MEMORY")
    (failed,) = drive._gone(task)
    assert isinstance(failed, Failed)
    assert "memory=" in failed.reason


def test_a_lock_that_a_lost_job_left_on_another_node_is_released_and_said(tmp_path: Path) -> None:
    (job,) = jobs(tmp_path, 0)
    list(launchers.load("local").run([job], Library()))
    folder = RunFolder(job.outs[0])
    (folder.path / "weights.safetensors").unlink()
    status = json.loads((folder.path / "status.json").read_text())
    drive, task = task_that_is_gone(tmp_path, job, "NODE_FAIL")
    (folder.path / "status.json").write_text(json.dumps({"state": "training", "batch": status["batch"]}))
    (folder.path / locks.NAME).write_text("4711\nnode3\n99\n")
    add(task.submission.reports(0), Attempt("0", 4711, "node3", 99))
    noted, lost = drive._gone(task)
    assert isinstance(noted, Noted)
    assert "held by process 4711 on node3" in noted.message
    assert isinstance(lost, Lost)
    assert not (folder.path / locks.NAME).exists()


def test_runs_that_a_job_of_another_plan_trains_are_not_submitted_beside_it(tmp_path: Path) -> None:
    one, other = jobs(tmp_path, 0, 1)
    both = Job("0", (*one.runs, *other.runs), (*one.experiments, *other.experiments), (*one.outs, *other.outs))
    submission = _slurm_submission.make(_slurm_submission.place_of([both]), [both])
    me = locks.this_process()
    add(submission.reports(0), Attempt("0", me.process, me.machine, me.began))
    with pytest.raises(UnrollError, match="trains runs of this sweep in another fleet"):
        list(slurm.run([one], Library(), cluster="local"))


def test_a_job_whose_limit_comes_before_its_first_batch_again_and_again_is_given_up(tmp_path: Path) -> None:
    (job,) = jobs(tmp_path, 0)
    file = tmp_path / "0.jsonl"
    left = [Left("0", "warned", 5, True), *[Left("0", "warned", 0, True)] * 2]
    _slurm_job.begin_again(job, file, left, 0)
    failed, over = Reader(file).new()
    assert isinstance(failed, Failed)
    assert failed.runs == ("run0",)
    assert "minutes=N" in failed.reason
    assert isinstance(over, Over)
