"""Sweeps of small runs, and processes that are killed in the midst of them."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import killing
import torch

from unroll import Corpus, Experiment, grid
from unroll.base import locks
from unroll.base.errors import UnrollError
from unroll.corpus.open_corpora import Library
from unroll.sweep.folder import SweepFolder
from unroll.sweep.launchers import Begun, Report
from unroll.sweep.sweep import describe, sweep

MOST, SAVE_EVERY = 5, 3


@cache
def corpus() -> Corpus:
    """300 tokens, of which 30 are the test set."""
    drawn = random.Random(0)
    return Corpus.from_text("abcdefgh " + "".join(drawn.choices("abcdefgh ", k=291)))


def small(**settings: Any) -> list[Experiment]:
    """Runs that take a fraction of a second each."""
    shape = {"k2": 6, "hidden": 6, "dense": 8, "rows": 3, "batches": 10, "dropout": 0.3, "device": "cpu", "threads": 1}
    return grid(**{**shape, **settings})


def follow(
    folder: str | Path, asked: list[Experiment] | None, most: int | None = MOST, save_every: int = SAVE_EVERY
) -> Iterator[Report]:
    """Drive a sweep of runs that all read the one corpus."""
    library = Library([corpus()])
    if asked is not None:
        asked = describe([corpus().described_in(e) for e in asked], library)
    yield from sweep(SweepFolder(folder), library, asked, most, save_every)


def drive(folder: str | Path, asked: list[Experiment] | None, **options: Any) -> list[Report]:
    """The same, to the end."""
    return list(follow(folder, asked, **options))


def ended(folder: str | Path) -> set[str]:
    """The names of the runs that have ended."""
    return {run.name for run in Path(folder, "runs").glob("*") if SweepFolder(folder).run(run.name).has_ended()}


def result(folder: str | Path) -> dict[str, Any]:
    """All that must not depend on kills: the sweep's own files, and of each run all but the clocks."""
    paths = [
        path for path in Path(folder).iterdir() if path.is_file() and path.name not in ("times.csv", "fleets.json")
    ]
    files: dict[str, Any] = {path.name: path.read_bytes() for path in paths}
    for run in sorted(Path(folder, "runs").iterdir()):
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        status = json.loads((run / "status.json").read_text())
        files[run.name] = {
            "files": sorted(p.name for p in run.iterdir()),
            "toml": (run / "run.toml").read_bytes(),
            "metrics": [{k: v for k, v in line.items() if k != "seconds"} for line in lines],
            "status": {k: v for k, v in status.items() if k not in ("seconds", "evaluating", "clocks")},
            "weights": (run / "weights.safetensors").read_bytes(),
        }
    return files


def stamps(folder: str | Path, names: set[str]) -> dict[tuple[str, str], tuple[int, int]]:
    """Which file each of a run's is, and when it was last written; leftover checkpoints are a folder, and no matter.

    Nor is the lock that a kill leaves: whoever comes next clears it.
    """
    files = {}
    for name in names:
        for path in filter(Path.is_file, locks.others(Path(folder, "runs", name))):
            files[name, path.name] = path.stat().st_ino, path.stat().st_mtime_ns
    return files


# --- processes ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SweepJob:
    """One process's life: which sweep it drives, and at which moment it is killed, counted from 1."""

    folder: str
    settings: tuple[tuple[str, Any], ...]
    at: int = 0


def run(job: SweepJob, kill_after: float | None = None) -> killing.Outcome:
    return killing.lived(_live, job, kill_after)


def _live(job: SweepJob, report: Connection) -> None:
    torch.set_num_threads(1)
    times = 0

    def at(moment: str, batch: int) -> None:
        nonlocal times
        times += 1
        if times == job.at:
            report.send(("moment", (moment, batch)))
            os.kill(os.getpid(), signal.SIGKILL)

    with killing.moments(at):
        try:
            for happened in follow(job.folder, small(**dict(job.settings))):
                if isinstance(happened, Begun):
                    report.send(("begun", (happened.fleet, happened.batch)))
        except UnrollError as error:
            report.send(("raised", (type(error).__name__, str(error), getattr(error, "exit_code", 1))))
    report.send(("start", times))  # how many moments there were in all
