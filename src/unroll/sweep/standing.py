"""How a sweep stands, read from its folder alone: from any machine that sees the folder, while it is at work or later.

A fleet is
    waiting      nothing of it was trained yet
    running      a process holds its runs; one of another machine is taken to be alive
    interrupted  it saved and left
    lost         the process that trained it is gone without a word: it goes on from its last checkpoint
    failed       its runs could not be trained; `failures.json` says why
    unreadable   a run is damaged, or something else stands in its place: resuming the sweep says more
    ended        all its runs finished or stopped

What the driver heard of a fleet (`journal.py`) says where it trains, and is newer than what was saved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from unroll.base import locks, untrusted
from unroll.base.errors import RunError
from unroll.runs.status_file import ENDED
from unroll.sweep.folder import SweepFolder
from unroll.sweep.plan import Fleet, Plan


@dataclass(frozen=True)
class FleetStanding:
    """How one fleet stands; batches are those that the driver heard of, or those of the last save."""

    fleet: str
    state: str
    runs: int
    ended: int
    where: str | None  # the process that trains it, its machine and device
    batch: int
    batches: int
    seconds_left: float | None
    reason: str | None  # for a failure, or why it was lost
    lost: int = 0  # how often what trained it was gone, and it was tried again


@dataclass(frozen=True)
class Standing:
    """How a whole sweep stands."""

    driver: str | None  # the process that holds the sweep
    fleets: tuple[FleetStanding, ...]
    refused: dict[str, str]  # runs that were never planned, with the reason
    changes: tuple[str, ...]  # of the plan: fleets that were split, and why
    notes: tuple[str, ...] = ()  # what could not be read

    def counted(self) -> dict[str, int]:
        """The number of fleets in each state."""
        return {state: n for state in STATES if (n := sum(fleet.state == state for fleet in self.fleets))}


UNREADABLE = "unreadable"
STATES = ("ended", "running", "interrupted", "lost", "waiting", "failed", "unreadable")


def standing(folder: SweepFolder) -> Standing:
    """How a sweep stands now; a RunError where there is none."""
    trainings = folder.trainings
    planned = folder.plan
    plan = planned or Plan(())
    batches = {training.name: training.experiment.batches for training in trainings}
    failures = {name: str(failure["reason"]) for name, failure in folder.failures.items()}
    driver, heard, notes = _holder(folder), dict[str, dict[str, Any]](), folder.not_of_own_kind()
    try:
        heard = folder.fleets
    except RunError as error:
        notes += error.problems
    if planned is None and heard:
        notes.append(f"{folder.path / 'plan.json'} is gone, though fleets have begun. Bring it back from a copy.")
    fleets = tuple(
        _fleet(folder, fleet, batches, failures, _Heard.of(heard.get(fleet.name, {}), driver is not None))
        for fleet in plan.fleets
    )
    notes += [fleet.reason for fleet in fleets if fleet.state == UNREADABLE and fleet.reason]
    if driver is None:
        notes += [note for fleet in plan.fleets for note in _gone(folder, fleet, heard.get(fleet.name, {}))]
    return Standing(driver, fleets, dict(plan.refused), plan.changes, tuple(dict.fromkeys(notes)))


def _gone(folder: SweepFolder, fleet: Fleet, heard: dict[str, Any]) -> list[str]:
    """Notes on runs of which nothing is left, though the driver heard of their training."""
    batch = _count(heard.get("batch"))
    paths = [folder.run(name).path for name in fleet.runs] if batch else []
    return [
        f"Nothing of {path} is there, though its fleet had come to batch {batch:,}. Resuming the sweep trains it anew."
        for path in paths
        if not untrusted.present(path)
    ]


@dataclass(frozen=True)
class _Heard:
    """What the driver heard of a fleet; where it trains only while there is a driver."""

    where: str | None
    batch: int
    seconds_a_batch: float | None
    lost: int
    reason: str | None

    @classmethod
    def of(cls, entry: dict[str, Any], driven: bool) -> _Heard:
        """From an entry of a file that may be anybody's."""
        where, reason, pace = entry.get("where"), entry.get("reason"), entry.get("seconds_a_batch")
        return cls(
            where if driven and isinstance(where, str) else None,
            _count(entry.get("batch")) if driven else 0,
            pace if isinstance(pace, float) and 0 < pace < math.inf else None,
            _count(entry.get("lost")),
            reason if isinstance(reason, str) else None,
        )


def _count(value: Any) -> int:
    return value if type(value) is int and value >= 0 else 0


def _fleet(
    folder: SweepFolder, fleet: Fleet, batches: dict[str, int], failures: dict[str, str], heard: _Heard
) -> FleetStanding:
    found = [_status(folder, name) for name in fleet.runs]
    left = [name for name, status in zip(fleet.runs, found, strict=True) if status.get("state") not in ENDED]
    going = [status for status in found if status.get("state") not in ENDED]
    readable = [name for name, status in zip(fleet.runs, found, strict=True) if "problem" not in status]
    holder = next(filter(None, (_holder(folder.run(name)) for name in left if name in readable)), None)
    reason = next((failures[name] for name in left if name in failures), None)
    reason = next((str(status["problem"]) for status in found if "problem" in status), reason)
    batch, most = max((s["batch"] for s in going), default=0), max(batches[name] for name in fleet.runs)
    if not left:
        batch = max(status["batch"] for status in found)
    where = (heard.where or holder) if left and not reason else None
    batch = min(most, max(batch, heard.batch)) if where else batch
    seconds = (most - batch) * heard.seconds_a_batch if heard.seconds_a_batch else None
    if where and seconds is None:
        seconds = _seconds_left(going, most, len(fleet.runs))
    return FleetStanding(
        fleet.name, _state(left, going, where, reason), len(fleet.runs), len(fleet.runs) - len(left),
        where, batch, most, seconds if where else None, reason or (heard.reason if left else None), heard.lost,
    )  # fmt: skip


def _state(left: Sequence[str], going: Sequence[dict[str, Any]], where: str | None, reason: str | None) -> str:
    states = {str(status["state"]) for status in going}
    if not left:
        return "ended"
    if UNREADABLE in states:
        return UNREADABLE
    if where is not None:
        return "running"
    if reason is not None:
        return "failed"
    if "training" in states:
        return "lost"
    return "interrupted" if "interrupted" in states else "waiting"


def _status(folder: SweepFolder, name: str) -> dict[str, Any]:
    """A run's status; that of a new one where there is none, and what is wrong where it cannot be read."""
    run = folder.run(name)
    try:
        folder.require_run_folder(name)
        run.require_own_kind()
        if run.is_run():
            return run.status
        if run.has_more_than_begun():
            raise RunError(f"{run.path} is no run: it has no run.toml, and is not empty.")
    except RunError as error:
        return {"state": UNREADABLE, "batch": 0, "problem": " ".join(error.problems)}
    return {"state": "new", "batch": 0}


def _seconds_left(going: Sequence[dict[str, Any]], batches: int, runs: int) -> float | None:
    """The time that training takes to its end at the pace so far: a fleet's clock is divided among its runs."""
    furthest = max(going, key=lambda status: int(status["batch"]), default=None)
    if furthest is None or not furthest["batch"]:
        return None
    spent = float(furthest.get("seconds") or 0.0) * runs + float(furthest.get("evaluating") or 0.0)
    return spent * (batches - int(furthest["batch"])) / int(furthest["batch"])


def _holder(folder: Any) -> str | None:
    """The living process that holds a folder, in words."""
    with suppress(OSError):
        named = locks.holder(folder.path / locks.NAME)
        if named is not None and (named.machine != locks.this_machine() or not locks.is_gone(named)):
            return str(named)
    return None
