"""One drive: jobs that are alive are followed, the others are submitted, and what is lost is submitted again.

Two jobs never train one fleet. Before anything is submitted, Slurm is asked which jobs of this folder it has; where it
does not answer, nothing is submitted. A job that Slurm calls over is not alive; until then it is not replaced.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from unroll.base import untrusted
from unroll.base.errors import SaveError, UnrollError, counted
from unroll.base.printable import one_line
from unroll.base.wording import at_a_shell
from unroll.corpus.open_corpora import Library
from unroll.engines import devices
from unroll.runs.folder import RunFolder
from unroll.sweep.launchers import Begun, Failed, Job, Lost, Noted, Progressed, Report, TooLarge, _slurm_submission
from unroll.sweep.launchers._left_locks import released
from unroll.sweep.launchers._report_lines import Attempt, Left, Over, Reader, Unsaved
from unroll.sweep.launchers._slurm_job import train
from unroll.sweep.launchers._slurm_queue import LARGEST, Queue, Unreachable
from unroll.sweep.launchers._slurm_submission import LIBRARY, Submission
from unroll.sweep.launchers._travel import packed
from unroll.sweep.launchers._work import has_saved, unended

TRIES = 3  # times that the job of a fleet may be lost in one drive
LATE = 60.0  # seconds in which a shared file system shows the last report of a job that completed
SOON = 3.0  # the same for a job that was ended
END = 5.0  # seconds for jobs to end after their last report
OUT_OF_MEMORY = "OUT_OF_MEMORY"
LOG = 1 << 14  # bytes of a job's log that are read


@dataclass
class Task:
    """A job in the queue, and how far its reports have been read."""

    job: Job
    submission: Submission
    number: int
    id: str
    reader: Reader = field(init=False)
    followed: bool = False  # from an earlier driver: what it said so far is news from before
    ended: bool = False  # all its reports are there
    began: int = 0  # the batch from which its latest attempt trained
    left: Left | None = None  # how its latest attempt ended, if it said so
    gone: tuple[float, str | None] | None = None  # since when Slurm calls it over, and what it says of it

    def __post_init__(self) -> None:
        self.reader = Reader(self.submission.reports(self.number))

    @property
    def key(self) -> tuple[str, int]:
        """What the queue knows it by."""
        return self.submission.name, self.number


class Drive:
    """The jobs of a sweep, from one driver's coming to its going."""

    def __init__(self, jobs: Sequence[Job], library: Library, queue: Queue) -> None:
        self.jobs, self.library, self.queue = list(jobs), library, queue
        self.place = _slurm_submission.place_of(jobs)
        self.tasks: list[Task] = []
        self.lost: list[Job] = []  # to be submitted again
        self.losses: Counter[str] = Counter()  # of each fleet, one after another without getting further
        self.began: dict[str, int] = {}  # the batch from which each fleet that was lost had begun
        self.asked = time.monotonic()

    @property
    def going(self) -> list[Task]:
        """Jobs whose last report has not come."""
        return [task for task in self.tasks if not task.ended]

    def begin(self) -> Iterator[Report]:
        """Follow the jobs that are alive, and submit what nobody trains."""
        known = list(_slurm_submission.known(self.place))
        standings = self.queue.standings(known)
        alive: dict[tuple[str, ...], Task] = {}
        gone: list[Attempt] = []
        for submission in known:
            living = 0
            for number, runs in enumerate(submission.fleets):
                standing = standings.get((submission.name, number))
                if standing is None or standing.is_over:
                    gone += submission.attempts(number)
                    continue
                living += 1
                if submission.is_told(number):  # it trains no more, and ends
                    continue
                job = next((job for job in self.jobs if job.runs == runs), None)
                if job is not None and runs not in alive:
                    alive[runs] = Task(job, submission, number, standing.id, followed=True)
                elif job is None:
                    self._refuse_another(runs, standing.id)
            if not living and not any(name == submission.name and not s.is_over for (name, _), s in standings.items()):
                submission.clear()
        self.tasks = list(alive.values())
        if self.tasks:
            yield Noted(
                "", f"In Slurm's queue from before: {counted(len(alive), 'job')}, followed and not submitted again."
            )
        absent = [job for job in self.jobs if job.runs not in alive]
        for job in absent:
            yield from (Noted(job.fleet, note) for note in released(job, gone))
        yield from self._submit(absent)

    def _refuse_another(self, runs: Iterable[str], id: str) -> None:
        """A job of another plan must not train these runs beside ours."""
        if any(not set(runs).isdisjoint(job.runs) for job in self.jobs):
            raise UnrollError(
                f"Slurm's job {id} trains runs of this sweep in another fleet. Wait until it is over, or end it: "
                f"scancel {id}"
            )

    def _submit(self, jobs: Sequence[Job]) -> Iterator[Report]:
        """Submit jobs that ask for the same as one array."""
        ids: list[str] = []
        groups: dict[tuple[int, bool], list[Job]] = {}
        for job in jobs:
            one = job.experiments[0]
            cpus = max(self.queue.keys["cpus"], one.threads or 1)
            groups.setdefault((cpus, not devices.always_there(one.device)), []).append(job)
        for (cpus, gpu), alike in groups.items():
            for first in range(0, len(alike), LARGEST):
                ids += self._submit_together(alike[first : first + LARGEST], cpus, gpu)
        if ids and (words := self.queue.taken(ids)):
            yield Noted("", words)

    def _submit_together(self, jobs: Sequence[Job], cpus: int, gpu: bool) -> list[str]:
        submission = _slurm_submission.make(self.place, jobs)
        library = submission.path / LIBRARY
        library.write_bytes(packed(self.library))
        here, shell = os.getcwd(), at_a_shell()
        asked = [
            (
                replace(job, outs=tuple(map(os.path.abspath, job.outs))),
                str(library),
                str(submission.reports(n)),
                here,
                shell,
            )
            for n, job in enumerate(jobs)
        ]
        try:
            ids = self.queue.submit(submission, train, asked, cpus, gpu)
        except UnrollError:
            submission.clear()
            raise
        self.tasks += [Task(job, submission, n, id) for n, (job, id) in enumerate(zip(jobs, ids, strict=True))]
        return ids

    def news(self) -> Iterator[Report]:
        """What has happened since it was asked last."""
        for task in self.going:
            yield from self._read(task)
        if time.monotonic() - self.asked >= self.queue.every:
            self.asked = time.monotonic()
            self._ask()
        for task in self.going:
            if task.gone and time.monotonic() - task.gone[0] > (LATE if task.gone[1] == "COMPLETED" else SOON):
                yield from self._read(task)
                if not task.ended:
                    yield from self._gone(task)
        lost, self.lost = self.lost, []
        yield from self._submit(lost)

    def _read(self, task: Task) -> Iterator[Report]:
        reports = list(task.reader.new())
        if task.followed:
            task.followed, reports = False, _from_now_on(reports)
        for report in reports:
            if isinstance(report, Attempt):
                task.left = None
            elif isinstance(report, Left):
                task.left = report
                if report.again:
                    yield Noted(task.job.fleet, f"{_of(task)} is in the queue again: {report.reason}, and it saved.")
            elif isinstance(report, Unsaved):
                raise SaveError(*report.problems)
            elif isinstance(report, Over):
                task.ended = True
            else:
                task.began = report.batch if isinstance(report, Begun) else task.began
                yield replace(report, fleet=task.job.fleet)

    def _ask(self) -> None:
        """Note which jobs Slurm calls over; where it does not answer, they are taken to be alive."""
        try:
            standings = self.queue.standings({task.submission.name: task.submission for task in self.going}.values())
        except Unreachable:
            return
        for task in self.going:
            standing = standings.get(task.key)
            if standing is not None and not standing.is_over:
                task.gone = None
            elif task.gone is None:
                task.gone = time.monotonic(), standing.word if standing else None

    def _gone(self, task: Task) -> Iterator[Report]:
        """A job is over and has not said so."""
        task.ended, job = True, task.job
        runs = unended(job)
        if not runs:
            return
        assert task.gone is not None
        word = task.gone[1] or self.queue.end_of(task.id) or "it is in the queue no more"
        if word == OUT_OF_MEMORY and len(job.runs) > 1 and not any(has_saved(RunFolder(out)) for out in job.outs):
            yield TooLarge(job.fleet, f"Slurm ended its job {task.id}: {word}")
            return
        reason = f"{_of(task)} is gone: {self._reason(task, word)}."
        # A fleet that begins further each time may be lost for ever; but a job that somebody cancels was meant.
        if task.began > self.began.get(job.fleet, task.began) and not word.startswith("CANCELLED"):
            self.losses[job.fleet] = 0
        self.began[job.fleet] = task.began
        self.losses[job.fleet] += 1
        if word == OUT_OF_MEMORY:
            yield Failed(job.fleet, runs, f"{reason} Give the launcher slurm more memory=N.")
        elif self.losses[job.fleet] >= TRIES:
            yield Failed(job.fleet, runs, f"{reason} It was lost {TRIES} times. Go on to try it again.")
        else:
            attempts = task.submission.attempts(task.number)
            yield from (Noted(job.fleet, note) for note in released(job, attempts))
            yield Lost(job.fleet, f"{reason} It is submitted again.")
            self.lost.append(job)

    def _reason(self, task: Task, word: str) -> str:
        words = [word]
        if task.left and not task.left.again:
            words.append(task.left.reason)
        elif word in ("FAILED", "BOOT_FAIL") and (last := last_words(task.submission, task.id)):
            words.append(last)
        return ", ".join(words)

    def end(self) -> None:
        """Clear what is over."""
        until = time.monotonic() + END
        submissions = list({task.submission.name: task.submission for task in self.tasks}.values())
        with suppress(Unreachable):
            while submissions:
                standings = self.queue.standings(submissions)
                living = {name for (name, _), standing in standings.items() if not standing.is_over}
                for submission in submissions:
                    if submission.name not in living:
                        submission.clear()
                submissions = [submission for submission in submissions if submission.name in living]
                if time.monotonic() > until:
                    return
                time.sleep(min(1.0, self.queue.every))


def _of(task: Task) -> str:
    return f"The job {task.id} of fleet {task.job.fleet}"


def _from_now_on(reports: Sequence[Report]) -> list[Report]:
    """What an earlier driver heard, as if the fleet began where it is now: its pace is then the present one."""
    batch = max((report.batch for report in reports if isinstance(report, Progressed)), default=0)
    kept = [report for report in reports if not isinstance(report, Progressed)]
    return [replace(one, batch=max(one.batch, batch)) if isinstance(one, Begun) else one for one in kept]


def last_words(submission: Submission, id: str) -> str:
    """The last line that a job wrote to its log of errors."""
    with suppress(OSError), untrusted.open_file(submission.path / f"{id}_0_log.err") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - LOG))
        lines = untrusted.up_to(file, LOG).decode("utf-8", "replace").split("\n")
        return one_line(next((line.strip() for line in reversed(lines) if line.strip()), ""))
    return ""
