"""How a sweep stands, read from its folder alone: from any machine that sees the folder, while it is at work or later.

A fleet is
    waiting      nothing of it was trained yet
    running      a process holds its runs; one of another machine is taken to be alive
    interrupted  it saved and left
    lost         the process that trained it is gone without a word: it goes on from its last checkpoint
    failed       its runs could not be trained; `failures.json` says why
    ended        all its runs finished or stopped
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from unroll.base import locks
from unroll.base.errors import RunError
from unroll.runs.status_file import ENDED
from unroll.sweep.folder import SweepFolder
from unroll.sweep.plan import Fleet, Plan


@dataclass(frozen=True)
class FleetStanding:
    """How one fleet stands; batches are those of the last save."""

    fleet: str
    state: str
    runs: int
    ended: int
    holder: str | None  # the process that trains it, and where
    batch: int
    batches: int
    seconds_left: float | None
    reason: str | None  # for a failure


@dataclass(frozen=True)
class Standing:
    """How a whole sweep stands."""

    driver: str | None  # the process that holds the sweep
    fleets: tuple[FleetStanding, ...]
    refused: dict[str, str]  # runs that were never planned, with the reason
    changes: tuple[str, ...]  # of the plan: fleets that were split, and why

    def counted(self) -> dict[str, int]:
        """The number of fleets in each state."""
        return {state: n for state in STATES if (n := sum(fleet.state == state for fleet in self.fleets))}


STATES = ("ended", "running", "interrupted", "lost", "waiting", "failed")


def standing(folder: SweepFolder) -> Standing:
    """How a sweep stands now; a RunError where there is none."""
    trainings = folder.trainings
    plan = folder.plan or Plan(())
    batches = {training.name: training.experiment.batches for training in trainings}
    failures = {name: str(failure["reason"]) for name, failure in folder.failures.items()}
    fleets = tuple(_fleet(folder, fleet, batches, failures) for fleet in plan.fleets)
    return Standing(_holder(folder), fleets, dict(plan.refused), plan.changes)


def _fleet(folder: SweepFolder, fleet: Fleet, batches: dict[str, int], failures: dict[str, str]) -> FleetStanding:
    found = [_status(folder, name) for name in fleet.runs]
    left = [name for name, status in zip(fleet.runs, found, strict=True) if status.get("state") not in ENDED]
    going = [status for status in found if status.get("state") not in ENDED]
    holder = next(filter(None, (_holder(folder.run(name)) for name in left)), None)
    reason = next((failures[name] for name in left if name in failures), None)
    batch, most = max((s["batch"] for s in going), default=0), max(batches[name] for name in fleet.runs)
    if not left:
        batch = max(status["batch"] for status in found)
    return FleetStanding(
        fleet.name, _state(left, going, holder, reason), len(fleet.runs), len(fleet.runs) - len(left),
        holder, batch, most, _seconds_left(going, most, len(fleet.runs)) if holder else None, reason,
    )  # fmt: skip


def _state(left: Sequence[str], going: Sequence[dict[str, Any]], holder: str | None, reason: str | None) -> str:
    states = {str(status["state"]) for status in going}
    if not left:
        return "ended"
    if holder is not None:
        return "running"
    if reason is not None:
        return "failed"
    if "training" in states:
        return "lost"
    return "interrupted" if "interrupted" in states else "waiting"


def _status(folder: SweepFolder, name: str) -> dict[str, Any]:
    """A run's status; that of a new one where it cannot be read, since resuming the sweep says what is wrong."""
    run = folder.run(name)
    with suppress(RunError):
        if run.is_run():
            return run.status
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
