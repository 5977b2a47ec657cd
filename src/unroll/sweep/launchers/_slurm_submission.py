"""What is handed to Slurm at once: a folder of its own below `slurm/` in the sweep's folder.

    slurm/0123456789abcdef/
        submission.json   which fleet each job of the array trains, written before Slurm hears of it
        library.pkl       texts that are in no file
        0.jsonl           the reports of the first job; 1.jsonl, …
        *.pkl, *.sh, *_log.out, *_log.err    submitit's files

The jobs bear a name that is made from the folder's place. So Slurm's own queue says which folder each job is at work
for: a driver that was killed right after it submitted has lost nothing, and a folder that was copied has no jobs.

Pickles are written for jobs and read by them. Only the user who submits may look into the folder, and each drive makes
a new one. What lies in `slurm/` already, and may come from a stranger, is never unpickled: of an earlier drive only
submission.json and reports are read, and reports only where Slurm has, or had, jobs of that folder's name.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from unroll.base import atomic_files, untrusted
from unroll.base.errors import RunError
from unroll.base.version import VERSION
from unroll.sweep.launchers import Job
from unroll.sweep.launchers._report_lines import Attempt, Over, Reader

FOLDER = "slurm"
FACTS, LIBRARY, RESULT = "submission.json", "library.pkl", "result.pkl"
MOST_BYTES = 16 * untrusted.MEGABYTE
OURS = re.compile(r"\d+\.jsonl|[\w.-]+\.(pkl|pkl\.save_tmp|sh)|[\w-]+_log\.(out|err)|submission\.json|.*\.partial")


@dataclass(frozen=True)
class Submission:
    """The folder of an array of jobs, and the runs that each of them trains."""

    path: Path
    fleets: tuple[tuple[str, ...], ...]  # the runs of each job; none where a plan is made

    @cached_property
    def name(self) -> str:
        """The name of its jobs in the queue."""
        place = os.fsencode(os.path.realpath(self.path))
        return f"unroll-{hashlib.sha256(place).hexdigest()[:16]}"

    def reports(self, number: int) -> Path:
        """The file of a job's reports."""
        return self.path / f"{number}.jsonl"

    def attempts(self, number: int) -> list[Attempt]:
        """The processes that trained for a job, the latest last."""
        return [report for report in Reader(self.reports(number)).new() if isinstance(report, Attempt)]

    @property
    def age(self) -> float:
        """The seconds since anything was made in the folder."""
        try:
            return time.time() - os.lstat(self.path).st_mtime
        except OSError:
            return 0.0

    def is_told(self, number: int) -> bool:
        """Whether a job has given all its reports."""
        last = None
        for report in Reader(self.reports(number)).new():
            last = report
        return isinstance(last, Over)

    def clear(self) -> None:
        """Delete the folder's files, and it, unless it holds something else. Nobody may be at work for it."""
        with suppress(OSError):
            for name in os.listdir(self.path):
                if OURS.fullmatch(name) and not stat.S_ISDIR(os.lstat(self.path / name).st_mode):
                    (self.path / name).unlink()
            self.path.rmdir()
            self.path.parent.rmdir()


def place_of(jobs: Sequence[Job]) -> Path:
    """Where submissions for these jobs lie: beside the folder of their runs."""
    return Path(os.path.abspath(jobs[0].outs[0])).parent.parent / FOLDER


def make(place: Path, jobs: Sequence[Job]) -> Submission:
    """A new folder, written down."""
    if "%" in str(place):
        raise RunError(f"{place} has a % in its name, which Slurm would replace. Choose another folder with --out.")
    _require_folder(place)
    try:
        place.mkdir(parents=True, exist_ok=True)
        path = place / secrets.token_hex(8)
        path.mkdir(mode=0o700)
        atomic_files.sync_folder(place)
    except OSError as error:
        raise RunError(f"Cannot make a folder in {place}: {error.strerror or error}.") from None
    submission = Submission(path, tuple(job.runs for job in jobs))
    facts = {"unroll": VERSION, "fleets": [list(runs) for runs in submission.fleets]}
    atomic_files.write(path / FACTS, (json.dumps(untrusted.sealed(facts), indent=1) + "\n").encode())
    return submission


def known(place: Path) -> Iterator[Submission]:
    """The submissions of this user that lie there."""
    _require_folder(place)
    if not untrusted.present(place):
        return
    for path in sorted(place.iterdir()):
        if re.fullmatch("[0-9a-f]{16}", path.name) and _is_mine(path):
            fleets: tuple[tuple[str, ...], ...] = ()  # what was not written down was not submitted
            with suppress(ValueError, KeyError, TypeError, OSError):
                content = untrusted.unsealed(untrusted.parse_json(untrusted.read(path / FACTS, MOST_BYTES)))
                fleets = tuple(tuple(map(str, runs)) for runs in content["fleets"])
            yield Submission(path, fleets)


def _is_mine(path: Path) -> bool:
    """Whether this is a folder into which this user alone may write."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def _require_folder(place: Path) -> None:
    """No link, and no file: what is written there would be written elsewhere."""
    if untrusted.present(place) and not untrusted.is_folder(place):
        raise RunError(f"{place} must be a folder: it is a link or a file. Delete it.")
