"""Locks of run folders that a job left on another machine. Slurm knows that the job is over, and nobody else can."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from unroll.base import locks
from unroll.sweep.launchers import Job
from unroll.sweep.launchers._report_lines import Attempt


def released(job: Job, gone: Sequence[Attempt]) -> Iterator[str]:
    """Release the locks that these attempts left in a job's folders; a note for each process that left some."""
    notes: dict[str, None] = {}
    for out in job.outs:
        for attempt in gone:
            dead = locks.Holder(attempt.process, attempt.machine, attempt.began, 0.0)
            if locks.release(Path(out), dead):
                notes[
                    f"Fleet {job.fleet} was held by process {dead.process} on {dead.machine.partition('?')[0]}. Slurm "
                    "says that its job is over: its lock is released."
                ] = None
    yield from notes
