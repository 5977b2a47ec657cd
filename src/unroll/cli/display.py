"""Training on a screen: a live panel in a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from unroll.base.live import GAP, fitting
from unroll.base.printable import one_line
from unroll.cli.moving import fields_in_lines, moving
from unroll.cli.screen import console, dim, duration, say, warn
from unroll.training.events import Evaluated, Evaluating, Event, Resumed, Stepped, Warned
from unroll.training.pace import EVALUATING, evaluation_line, pace, resumed, scores, seconds_left

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

SAMPLE_LINES = 3
TRIED, LONG = 5.0, 3600.0  # seconds after which the rest is estimated, and of a rest that is worth a word
BAR, NARROW = 40, 60  # columns
REFRESH = 4  # times a second
BARS = "▁▂▃▄▅▆▇█"


def watch(events: Iterable[Event], quiet: bool, before: Iterable[Mapping[str, Any]] = ()) -> None:
    """Consume the loop's events, and show them in the form that suits the output.

    `before` are the evaluations of a run that goes on, for its curve.
    """
    if quiet:
        for event in events:
            if isinstance(event, Warned):
                warn(event.message)
    elif sys.stderr.isatty():
        _live(events, before)
    else:
        _plain(events)


def advised(events: Generator[Event, None, None]) -> Generator[Event, None, None]:
    """The same events, and once a word on a smaller model where a CPU has hours ahead."""
    said = False
    with closing(events):
        for event in events:
            yield event
            if said or not isinstance(event, Stepped) or event.seconds + event.evaluating < TRIED:
                continue
            said, left = True, seconds_left(event)
            if left > LONG and event.learner.engine.device.type == "cpu":
                words = f"about {duration(left)} are left on this CPU. --preset small trains a small model in minutes."
                yield Warned(event.learner, event.seconds, event.evaluating, event.loss, message=words)


def spark(values: Sequence[float], width: int = 48) -> str:
    """A small curve on a logarithmic scale."""
    logs = [math.log(v) for v in values if math.isfinite(v) and v > 0][-width:]
    if not logs:
        return ""
    low = min(logs)
    high = max(logs)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((v - low) * scale)] for v in logs)


def _plain(events: Iterable[Event]) -> None:
    for event in events:
        if isinstance(event, Warned):
            warn(event.message)
        elif isinstance(event, Resumed):
            say(resumed(event))
        elif isinstance(event, Evaluated):
            say(evaluation_line(event))


def _live(events: Iterable[Event], before: Iterable[Mapping[str, Any]] = ()) -> None:
    from rich.text import Text

    screen = console()
    panel = _Panel(screen, before)
    with moving(screen, panel.render) as draw:
        shown = 0.0
        for event in events:
            if isinstance(event, Warned):
                screen.print(Text.assemble(("note: ", "yellow"), one_line(event.message)))
            if isinstance(event, Resumed):
                screen.print(resumed(event))
            panel.take(event)
            # Redrawing a line costs more than a small batch; a few times a second is enough for eyes.
            if not isinstance(event, Stepped) or time.perf_counter() - shown > 1 / REFRESH:
                draw()
                shown = time.perf_counter()


class _Panel:
    """The panel on the screen."""

    def __init__(self, screen: Console, before: Iterable[Mapping[str, Any]] = ()) -> None:
        self.screen = screen
        self.before = list(before)
        self.curve: list[float] = []
        self.event: Event | None = None
        self.latest: Mapping[str, Any] | None = None
        self.sample: Mapping[str, Any] | None = None
        self.speed = ""

    def take(self, event: Event) -> None:
        """Learn from an event."""
        self.event = event
        if isinstance(event, Resumed):
            # What was trained after the last checkpoint is trained again.
            for metrics in self.before:
                if metrics["batch"] <= event.batch:
                    self._add(event, metrics)
        elif isinstance(event, Stepped):
            self.speed = pace(event)
        elif isinstance(event, Evaluated) and event.run == 0:
            self._add(event, event.metrics)
            self.sample = event.sample or self.sample

    def _add(self, event: Event, metrics: Mapping[str, Any]) -> None:
        self.latest = metrics
        value = metrics["perplexity"][event.learner.experiments[0].scheme.sample]
        self.curve.append(math.inf if value is None else value)

    def render(self) -> RenderableType:
        """Draw the panel for the screen as it is now: a narrow one has fewer fields, and no word is cut in two."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        event = self.event
        if event is None:
            return Group()
        learner, width = event.learner, self.screen.width
        experiment = learner.experiments[0]
        done = f"{learner.count:,} / {experiment.batches:,} batches"
        speed = EVALUATING if isinstance(event, Evaluating) else self.speed
        bar = ProgressBar(total=experiment.batches, completed=learner.count, width=min(BAR, width // 4))
        parts: list[RenderableType] = []
        if width < NARROW:
            alone = Table.grid()
            alone.add_row(bar)
            parts += [alone, *fields_in_lines([done, *reversed(speed.split(GAP))], width, 2)]
        else:
            top = Table.grid(padding=(0, 2))
            top.add_row(bar, fitting(f"{done}{GAP}{speed}", width - min(BAR, width // 4) - 2))
            parts.append(top)
        parts += [Text(line) for line in fields_in_lines(self._numbers(event), width, 2 if width < NARROW else 3)]
        if self.curve:
            ends = f"{self.curve[0]:,.1f} → {self.curve[-1]:,.3f}"
            line = spark(self.curve, min(48, max(width - len(ends) - 3, 8)))
            parts.append(Text.assemble((line, "cyan"), f"  {ends}", overflow="crop", no_wrap=True))
        if self.sample:
            parts.append(Text(f"sample at batch {self.sample['batch']:,}:", dim()))
            lines = wrap(one_line(self.sample["text"]), width, max_lines=SAMPLE_LINES, placeholder=" …")
            parts += [Text(line) for line in lines]
        return Group(*parts)

    def _numbers(self, event: Event) -> list[str]:
        loss = self.latest["loss"] if event.loss is None and self.latest else event.loss
        numbers = [f"loss {loss:.4f} nats per token"] if loss is not None else []
        if self.latest:
            share = event.evaluating / max(event.seconds * len(event.learner.experiments) + event.evaluating, 1e-9)
            *first, last = scores(dict(self.latest)).split(GAP)
            numbers += [*first, f"{last} (batch {self.latest['batch']:,})", f"evaluation {share:.0%} of the time"]
        return numbers
