"""What the driver of a sweep hears of its fleets, kept in its folder, so that `--status` can say it from any machine.

The run folders say how far a run was saved. They do not say where a fleet trains, nor how often it was lost; and on
machines without a shared folder they lie elsewhere. Nothing that trains reads this file.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from unroll.base.errors import RunError, SaveError
from unroll.sweep.folder import SweepFolder
from unroll.sweep.launchers import Begun, Failed, Lost, Progressed, Report

OFTEN = 2.0  # seconds between two writes


def kept(folder: SweepFolder, reports: Iterable[Report]) -> Iterator[Report]:
    """The same reports, with what they say of fleets written down."""
    journal = Journal(folder)
    try:
        for report in reports:
            journal.take(report)
            yield report
    finally:
        journal.write()


def _heard(folder: SweepFolder) -> dict[str, dict[str, Any]]:
    """What an earlier driver heard; nothing where that cannot be read."""
    try:
        return folder.fleets
    except RunError:
        return {}


class Journal:
    """The fleets of a sweep, as their driver hears of them."""

    def __init__(self, folder: SweepFolder) -> None:
        self.folder = folder
        # Where fleets trained under an earlier driver is over.
        self.fleets: dict[str, dict[str, Any]] = {name: {**old, "where": None} for name, old in _heard(folder).items()}
        self.began: dict[str, tuple[float, int]] = {}  # the clock and the batch at which each began, this time
        self.written, self.changed = 0.0, False

    def take(self, report: Report) -> None:
        """Note what a report says, and write it if the last time is long ago."""
        now = time.time()
        if isinstance(report, Begun):
            self._entry(report).update(where=report.where, batch=report.batch, at=now, seconds_a_batch=None)
            self.began[report.fleet] = now, report.batch
        elif isinstance(report, Progressed):
            self._entry(report).update(batch=report.batch, at=now, seconds_a_batch=self._pace(report, now))
        elif isinstance(report, Lost):
            entry = self._entry(report)
            entry.update(where=None, lost=int(entry.get("lost", 0)) + 1, reason=report.reason)
        elif isinstance(report, Failed):
            self._entry(report).update(where=None)
        else:
            return
        self.changed = True
        if now - self.written > OFTEN:
            self.write()

    def _entry(self, report: Report) -> dict[str, Any]:
        return self.fleets.setdefault(report.fleet, {})

    def _pace(self, report: Progressed, now: float) -> float | None:
        began, first = self.began.get(report.fleet, (now, report.batch))
        return (now - began) / (report.batch - first) if report.batch > first else None

    def write(self) -> None:
        """Write it down. That this fails stops no training."""
        if self.changed:
            with suppress(SaveError, OSError):
                self.folder.fleets = self.fleets
        self.written, self.changed = time.time(), False
