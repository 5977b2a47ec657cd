"""What a job of Slurm does on its node.

It trains its fleet and writes reports down. Warned of its time limit it saves, and puts itself back into the queue: no
driver needs to be there. It goes on from its checkpoint when Slurm starts it again, on whatever node.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from itertools import takewhile
from pathlib import Path
from types import FrameType
from typing import cast

import torch

from unroll.base import atomic_files, locks
from unroll.base.errors import Interrupted, SaveError, UnrollError
from unroll.base.printable import one_line
from unroll.base.wording import shell_words
from unroll.corpus.open_corpora import Library
from unroll.sweep.launchers import Begun, Failed, Job, Noted, Progressed, Report
from unroll.sweep.launchers._left_locks import released
from unroll.sweep.launchers._report_lines import Attempt, Left, Over, Reader, Unsaved, add
from unroll.sweep.launchers._work import unended, work
from unroll.training.signals import Pressed, Watch

OFTEN, SELDOM = 1.0, 60.0  # seconds between two lines of progress: at first, and at most
PARTS = 50  # of the time so far: later there is a line after each part
FRUITLESS = 3  # attempts one after another in which no batch was done, before a job gives up
PATIENCE = 60.0  # seconds for an answer of Slurm


class Warned:
    """Whether Slurm has said that a time limit is near, or that another job takes the node."""

    def __init__(self) -> None:
        self.came = False
        signal.signal(signal.SIGUSR2, self._note)
        signal.signal(signal.SIGCONT, signal.SIG_DFL)  # Slurm sends it before SIGTERM

    def __bool__(self) -> bool:
        return self.came

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        signal.raise_signal(signal.SIGTERM)  # at which training saves


class Count:
    """How many batches an attempt has done."""

    def __init__(self) -> None:
        self.first = self.last = 0

    def take(self, report: Report) -> None:
        """Learn from a report."""
        if isinstance(report, Begun):
            self.first = self.last = report.batch
        elif isinstance(report, Progressed):
            self.last = report.batch

    @property
    def done(self) -> int:
        """The batches since this attempt began."""
        return self.last - self.first


def train(job: Job, library: str, file: str, folder: str, shell: bool) -> None:
    """Train a fleet in the folders that the job names; `file` takes the reports. Paths are those of `folder`."""
    os.chdir(folder)
    reports, warned, count = Path(file), Warned(), Count()
    with shell_words(shell), Watch() as watch:
        before = list(Reader(reports).new())
        held = locks.this_process()
        add(reports, Attempt(job.fleet, held.process, held.machine, held.began))
        try:
            for note in released(job, [one for one in before if isinstance(one, Attempt)]):
                add(reports, Noted(job.fleet, note))
            with open(library, "rb") as texts:  # written by this user's driver, where nobody else may write
                known = cast(Library, pickle.load(texts))
            with closing(_thinned(job, known, count)) as said:
                for report in said:
                    add(reports, report)
                    watch.check()
            add(reports, Over(job.fleet))
        except (Interrupted, Pressed) as error:
            number = error.signal_number if isinstance(error, Interrupted) else error.number
            if not warned:
                add(reports, Left(job.fleet, f"signal {number} ended it", count.done, False))
                sys.exit(128 + number)
            begin_again(job, reports, before, count.done)
        except SaveError as error:
            add(reports, Unsaved(job.fleet, error.problems))


def _thinned(job: Job, library: Library, count: Count) -> Generator[Report, None, None]:
    """The reports of training, with less and less of the progress."""
    began, said = time.monotonic(), 0.0
    for report in work(job, library):
        count.take(report)
        now = time.monotonic()
        if isinstance(report, Progressed):
            if now - said < min(SELDOM, max(OFTEN, (now - began) / PARTS)):
                continue
            said = now
        yield report


def begin_again(job: Job, reports: Path, before: Sequence[Report], done: int) -> None:
    """Back into the queue; but not where the time limit ends before one batch, again and again."""
    lefts = [report.batches for report in before if isinstance(report, Left)]
    fruitless = len(list(takewhile(lambda batches: batches == 0, [done, *reversed(lefts)])))
    if fruitless >= FRUITLESS:
        reason = f"The time limit of its job was near {FRUITLESS} times before one batch was done."
        add(reports, Failed(job.fleet, unended(job), f"{reason} Give the launcher slurm more minutes=N."))
        add(reports, Over(job.fleet))
        return
    # First the report: once it is in the queue again, it is ended.
    add(reports, Left(job.fleet, "it was warned that its time limit is near", done, True))
    if problem := _requeued():
        add(reports, Left(job.fleet, f"it could not go back into the queue: {problem}", done, False))


def _requeued() -> str | None:
    """Put this job into the queue again; None, or why that cannot be."""
    if os.environ.get("SUBMITIT_EXECUTOR") == "local":
        from submitit.local.local import LOCAL_REQUEUE_RETURN_CODE

        sys.exit(LOCAL_REQUEUE_RETURN_CODE)
    number = os.environ.get("SLURM_ARRAY_TASK_ID")
    job = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{number}" if number else os.environ["SLURM_JOB_ID"]
    try:
        done = subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as error:
        return one_line(str(error))
    return one_line(done.stderr.strip()) if done.returncode else None


def compute(task: str, result: str, folder: str, shell: bool, cpus: int) -> None:
    """Compute what the driver asks, on this node, and write down what comes."""
    os.chdir(folder)
    torch.set_num_threads(cpus)
    with shell_words(shell):
        try:
            with open(task, "rb") as file:  # written by this user's driver, where nobody else may write
                function, arguments = pickle.load(file)
            outcome = True, function(*arguments)
        except UnrollError as error:
            outcome = False, error
    atomic_files.write(Path(result), pickle.dumps(outcome))
