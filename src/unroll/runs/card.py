"""A run in a notebook: what it is, how it went, its curve, and a few lines of its own.

The card is plain HTML with an SVG in it: no script, no style sheet, nothing from outside, and the colours of the page
around it. Every name, reason and text is escaped.
"""

from __future__ import annotations

import importlib
import time
from html import escape
from typing import TYPE_CHECKING, Any

from unroll.base.durations import duration
from unroll.base.errors import UnrollError
from unroll.base.printable import one_line, printable
from unroll.runs import small_curve

if TYPE_CHECKING:
    from unroll.runs.loaded import Run

SAMPLE_TOKENS, SAMPLE_SECONDS = 200, 1.0  # whichever comes first: a card is shown again and again
TEMPERATURE = 0.7
LONGEST = 160  # characters of a line
_CARD = (
    "font:13px/1.5 system-ui,sans-serif;font-variant-numeric:tabular-nums;max-width:600px;padding:10px 14px;"
    "border:1px solid rgba(128,128,128,.35);border-radius:8px"
)
_SAMPLE = (
    "font:12px/1.5 ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere;margin:4px 0 0;padding:6px 10px;"
    "background:rgba(128,128,128,.12);color:inherit;border-radius:4px;max-height:9em;overflow:auto"
)
_QUIET = "opacity:.7"


def title_of(run: Run) -> str:
    """The corpus, the scheme and the shape."""
    experiment = run.experiment
    scheme = f"scheme {experiment.scheme.number}" if experiment.scheme.number else experiment.scheme.training
    shape = f"{experiment.cell} {experiment.layers} × {experiment.hidden}"
    return f"{_short(experiment.title or experiment.corpus or 'text')}, {scheme}, {shape}"


def outcome_of(run: Run) -> str:
    """How far it came, and its last perplexities."""
    state = run.status["state"]
    words = [f"{state} after {run.status['batch']:,} batches"]
    if run.metrics:
        last = run.metrics[-1]["perplexity"].items()
        words += [f"perplexity {'∞' if value is None else f'{value:,.4g}'} {procedure}" for procedure, value in last]
    return _short(", ".join(words))


def line(run: Run) -> str:
    """The run on one line."""
    return one_line(f"<Run {str(run.path)!r}: {title_of(run)}, {outcome_of(run)}>")


def page(run: Run) -> str:
    """The card."""
    parts = [
        f'<div><b>{escape(title_of(run))}</b> <span style="{_QUIET}">{escape(_short(str(run.path)))}</span></div>',
        f"<div>{escape(outcome_of(run))}</div>",
        f'<div style="{_QUIET}">{escape(_facts(run))}</div>',
    ]
    parts += [f'<div style="{_QUIET}">note: {escape(_short(note))}</div>' for note in run.notes]
    parts.append(small_curve.svg(run.metrics))
    if text := run.card_text:
        procedure = run.experiment.scheme.sample
        parts.append(f'<div style="{_QUIET}">{escape(f"a {procedure} sample, temperature {TEMPERATURE}")}</div>')
        parts.append(f'<pre style="{_SAMPLE}">{escape(printable(text))}</pre>')
    return f'<div style="{_CARD}">{"".join(parts)}</div>'


def sample_text(run: Run) -> str:
    """A short text of the run, for as long as somebody who only looks at it may wait; nothing where it writes none."""
    # What draws stands in a room above. A card asks for it as a notebook does, by its public name.
    stream = importlib.import_module("unroll").stream
    began, pieces = time.perf_counter(), [""]
    try:
        for token in stream(run, length=SAMPLE_TOKENS, temperature=TEMPERATURE, seed=0):
            pieces.append(token.text)
            if time.perf_counter() - began > SAMPLE_SECONDS:
                break
    except UnrollError:  # its corpus is not at hand, or its weights have diverged: the card says the rest
        return ""
    return "".join(pieces)


def _facts(run: Run) -> str:
    scheme, status = run.experiment.scheme, run.status
    words = [f"k1 {scheme.k1}, k2 {scheme.k2}", f"seed {run.experiment.seed}"]
    best = run.best
    if best is not None and best.batch != status["batch"]:
        words.append(f"best at batch {best.batch:,}: {best.perplexity:,.4g}, chosen on the {best.chosen_on}")
    seconds: Any = status.get("seconds")
    if seconds is not None:
        words.append(f"{duration(seconds)} of training on {status.get('device', 'an unknown device')}")
    return _short(", ".join(words))


def _short(text: str) -> str:
    shown = one_line(text)
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"
