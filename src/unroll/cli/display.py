"""Training on a screen: a live panel in a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from unroll.base.errors import UnrollError
from unroll.base.printable import one_line
from unroll.cli.screen import console, say, warn
from unroll.training.events import Evaluated, Event, Stepped, Warned
from unroll.training.pace import evaluation_line, pace, scores

if TYPE_CHECKING:
    from rich.console import RenderableType

    from unroll.corpus.corpus import Corpus

SAMPLE_TOKENS = 70
SAMPLE_SECONDS = 20.0
REFRESH = 4  # times a second
BARS = "▁▂▃▄▅▆▇█"


def watch(events: Iterable[Event], corpus: Corpus, quiet: bool) -> None:
    """Consume the loop's events, and show them in the form that suits the output."""
    if quiet:
        for event in events:
            if isinstance(event, Warned):
                warn(event.message)
    elif sys.stderr.isatty():
        _live(events, corpus)
    else:
        _plain(events)


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
        elif isinstance(event, Evaluated):
            say(evaluation_line(event))


def _live(events: Iterable[Event], corpus: Corpus) -> None:
    from rich.live import Live
    from rich.text import Text

    screen = console()
    panel = _Panel(corpus)
    with Live(console=screen, auto_refresh=False, transient=False) as live:
        shown = 0.0
        for event in events:
            if isinstance(event, Warned):
                screen.print(Text.assemble(("note: ", "yellow"), one_line(event.message)))
            panel.take(event)
            # Redrawing a line costs more than a small batch; a few times a second is enough for eyes.
            if not isinstance(event, Stepped) or time.perf_counter() - shown > 1 / REFRESH:
                live.update(panel.render(event), refresh=True)
                shown = time.perf_counter()


class _Panel:
    """The panel on the screen."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self.curve: list[float] = []
        self.latest: dict[str, Any] | None = None
        self.sample = ""
        self.sampled_at = -math.inf
        self.speed = ""

    def take(self, event: Event) -> None:
        """Learn from an event."""
        if isinstance(event, Stepped):
            self.speed = pace(event)
        if isinstance(event, Evaluated) and event.run == 0:
            self.latest = event.metrics
            self.curve.append(event.metrics["perplexity"][event.learner.experiments[0].scheme.sample])
            if time.perf_counter() - self.sampled_at > SAMPLE_SECONDS:
                with suppress(UnrollError):  # a model that has diverged writes nothing; training says what to do
                    self.sample = self._draw(event)
                self.sampled_at = time.perf_counter()

    def render(self, event: Event) -> RenderableType:
        """Draw the panel."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        learner = event.learner
        experiment = learner.experiments[0]
        top = Table.grid(padding=(0, 2))
        bar = ProgressBar(total=experiment.batches, completed=learner.count, width=40)
        top.add_row(bar, f"{learner.count:,} / {experiment.batches:,} batches", self.speed)
        loss = self.latest["loss"] if event.loss is None and self.latest else event.loss
        numbers = [f"loss {loss:.4f} nats per token"] if loss is not None else []
        if self.latest:
            share = event.evaluating / max(event.seconds * len(learner.experiments) + event.evaluating, 1e-9)
            numbers += [
                f"{scores(self.latest)} (batch {self.latest['batch']:,})",
                f"evaluation {share:.0%} of the time",
            ]
        parts: list[RenderableType] = [top, Text("   ".join(numbers))]
        if self.curve:
            parts.append(Text.assemble((spark(self.curve), "cyan"), f"  {self.curve[0]:,.1f} → {self.curve[-1]:,.3f}"))
        if self.sample:
            parts.append(Text.assemble(("sample  ", "dim"), self.sample, overflow="ellipsis", no_wrap=True))
        return Group(*parts)

    def _draw(self, event: Evaluated) -> str:
        """A line of text from the model as it is now, under the scheme's own procedure."""
        import numpy as np

        from unroll.experiment.decoding import Decoding
        from unroll.sampling.host_loop import Stream, generate

        experiment = event.learner.experiments[0]
        k2 = experiment.scheme.k2
        prompt = self.corpus.test_ids(experiment.split_seed)[:k2].astype(np.int64)
        stream = Stream(prompt, SAMPLE_TOKENS, Decoding(0.7), experiment.seed)
        model = event.learner.model.runs([0])
        ids = [drawn.ids[0] for drawn in generate(model, [stream], k2, experiment.scheme.sample)]
        return one_line(self.corpus.vocabulary.decode(np.array(ids)))
