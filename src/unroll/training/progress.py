"""A training, watched from Python: every event goes to the display and to the user's own function."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing
from typing import Any

from unroll.base import live
from unroll.base.durations import duration
from unroll.base.wording import in_words
from unroll.runs import small_curve
from unroll.training.events import Ended, Evaluated, Evaluating, Event, Resumed, Warned
from unroll.training.pace import EVALUATING, evaluation_line, pace, resumed, scores


def watched(
    events: Generator[Event, None, None],
    progress: bool | None = None,
    on_event: Callable[[Event], object] | None = None,
    before: Iterable[Mapping[str, Any]] = (),
    notes: Iterable[str] = (),
) -> None:
    """Train to the end. Where `on_event` raises, what was trained is saved, and the error goes on to the caller.

    `before` are the evaluations of a run that goes on, for its curve; `notes` are said first.
    """
    place = live.place(progress)
    shown = Progress(place, before, notes) if place is not None else None
    # Closed at once, not when somebody lets go of the traceback: that is when it saves.
    with closing(events):
        try:
            for event in events:
                if shown is not None:
                    shown.take(event)
                if on_event is not None:
                    on_event(event)
        finally:
            if place is not None:
                place.end()


class Progress:
    """What is shown of one run."""

    def __init__(self, place: live.Live, before: Iterable[Mapping[str, Any]] = (), notes: Iterable[str] = ()) -> None:
        self.place = place
        for note in notes:
            place.note(in_words(note))
        self.lines = list(before)
        self.picture = small_curve.svg(self.lines)

    def take(self, event: Event) -> None:
        """Show an event."""
        if isinstance(event, Warned):
            self.place.note(event.message)
            return
        if isinstance(event, Evaluated):
            self.lines.append(event.metrics)
            self.picture = small_curve.svg(self.lines)
            self.place.milestone(evaluation_line(event))
        if isinstance(event, Resumed):
            self.place.milestone(resumed(event))
        if isinstance(event, Ended):
            words = self._ended(event)
            self.place.milestone(words)
            self.place.show(words, 1.0, self.picture)
        elif self.place.due or isinstance(event, Evaluating):
            self.place.show(self._going(event), event.batch / event.batches, self.picture)

    def _going(self, event: Event) -> str:
        loss = event.loss if event.loss is not None else (self.lines[-1]["loss"] if self.lines else None)
        # The most important first: a narrow terminal drops the last.
        tokens, _, left = pace(event).partition(live.GAP)
        words = [f"{event.batch:,} / {event.batches:,} batches", EVALUATING if isinstance(event, Evaluating) else left]
        words += [scores(dict(self.lines[-1]))] if self.lines else []
        words += [tokens, f"loss {loss:.4f}" if loss is not None else ""]
        return live.GAP.join(word for word in words if word)

    def _ended(self, event: Ended) -> str:
        words = [f"{event.status['state']} after {event.status['batch']:,} batches in {duration(event.seconds)}"]
        words += [scores(dict(self.lines[-1]))] if self.lines else []
        words += [str(event.status["reason"])] if event.status.get("reason") else []
        return "   ".join(words)
