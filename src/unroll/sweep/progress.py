"""A sweep, watched from Python: every report goes to the display and to the user's own function."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import closing

from unroll.base import live
from unroll.base.durations import duration
from unroll.base.wording import in_words
from unroll.sweep.launchers import Begun, Failed, Noted, Progressed, Report, RunEnded, Scored
from unroll.sweep.sweep import Planned, Stage
from unroll.training.pace import scores

OVER = ("finished", "stopped", "failed")


def watched(
    reports: Generator[Report, None, None],
    progress: bool | None = None,
    on_event: Callable[[Report], object] | None = None,
    notes: Iterable[str] = (),
) -> None:
    """Train to the end; `notes` are said first.

    Where `on_event` raises, what was trained is saved, and the error goes on to the caller.
    """
    place = live.place(progress)
    shown = Progress(place, notes) if place is not None else None
    # Closed at once, not when somebody lets go of the traceback: that is when it saves.
    with closing(reports):
        try:
            for report in reports:
                if shown is not None:
                    shown.take(report)
                if on_event is not None:
                    on_event(report)
        finally:
            if place is not None:
                place.end()


class Progress:
    """What is shown of a sweep."""

    def __init__(self, place: live.Live, notes: Iterable[str] = ()) -> None:
        self.place = place
        for note in notes:
            place.note(in_words(note))
        self.batches: dict[str, int] = {}  # of each run, in all
        self.done: dict[str, int] = {}
        self.states: dict[str, str] = {}
        self.fleets: dict[str, tuple[str, ...]] = {}  # the runs of each, in the plan's order
        self.said: set[str] = set()
        self.stage = ""  # what is done now, where the work has stages
        self.latest = ""  # what was heard last, in words
        self.began: tuple[float, float] | None = None  # the clock and the share done when the first fleet began

    def take(self, report: Report) -> None:
        """Show a report."""
        if isinstance(report, Noted):
            if report.message not in self.said:  # fleets of one sweep have the same to say
                self.said.add(report.message)
                self.place.note(report.message)
            return
        if isinstance(report, Planned):
            self._plan(report)
        elif isinstance(report, Stage):
            self.stage, self.began = report.words, None
            self.place.milestone(report.words)
        elif isinstance(report, Begun):
            self.latest = f"fleet {list(self.fleets).index(report.fleet) + 1} of {len(self.fleets)}"
            self._reach(report.fleet, report.batch)
            self.began = self.began or (time.perf_counter(), self.share)
        elif isinstance(report, Progressed):
            self._reach(report.fleet, report.batch)
        elif isinstance(report, Scored):
            self.place.milestone(f"{report.run}: batch {report.metrics['batch']:,}   {scores(report.metrics)}")
        elif isinstance(report, RunEnded):
            self._end(report.run, report.status["state"])
        elif isinstance(report, Failed):
            for run in report.runs:
                self._end(run, "failed")
            self.place.note(f"{', '.join(report.runs)}: {report.reason}")
        if self.place.due or len(self.states) == len(self.batches):
            self.place.show(self.words(), self.share)

    def _plan(self, report: Planned) -> None:
        self.fleets = {fleet.name: tuple(fleet.runs) for fleet in report.plan.fleets}
        self.batches = {training.name: training.experiment.batches for training in report.trainings}
        self.states = {**dict.fromkeys(report.plan.refused, "failed"), **report.ended}

    def _reach(self, fleet: str, batch: int) -> None:
        for run in self.fleets[fleet]:
            self.done[run] = min(batch, self.batches[run])

    def _end(self, run: str, state: str) -> None:
        self.states[run] = state
        self.place.milestone(f"{run}: {state} ({self.words()})")

    @property
    def share(self) -> float:
        """How much is done, by batches."""
        done = sum(self.batches[run] if run in self.states else self.done.get(run, 0) for run in self.batches)
        return done / (sum(self.batches.values()) or 1)

    def words(self) -> str:
        """How many runs are over, what trains, and the time left at the pace of this session."""
        counts = Counter(self.states.values())
        states = ", ".join(f"{counts[state]} {state}" for state in OVER if counts[state])
        over = f"{len(self.states)} / {len(self.batches)} runs over" + (f": {states}" if states else "")
        return "   ".join(word for word in (over, self.latest, self._left(), self.stage) if word)

    def _left(self) -> str:
        if self.began is None or len(self.states) == len(self.batches) or self.share <= self.began[1]:
            return ""
        each = (time.perf_counter() - self.began[0]) / (self.share - self.began[1])
        return f"{duration(each * (1 - self.share))} left"
