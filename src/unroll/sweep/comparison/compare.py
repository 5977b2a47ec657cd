"""`unroll.compare`: schemes on one corpus at equal budgets, with an answer that shows itself."""

from __future__ import annotations

import os
import shlex
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from unroll.base.durations import seconds_in
from unroll.base.errors import Interrupted, RunError
from unroll.base.live import require_progress
from unroll.base.printable import one_line
from unroll.corpus.corpus import Corpus
from unroll.corpus.open_corpora import Library
from unroll.sweep.comparison import asked as asking
from unroll.sweep.comparison.drive import clock, drive
from unroll.sweep.comparison.folder import ComparisonFolder
from unroll.sweep.comparison.tables import in_lines, tables
from unroll.sweep.launchers import Report

BUDGET = "10m"
WIDTH = 100
_CARD = (
    "font:13px/1.5 system-ui,sans-serif;font-variant-numeric:tabular-nums;padding:10px 14px;overflow-x:auto;"
    "border:1px solid rgba(128,128,128,.35);border-radius:8px"
)
_CELL = "text-align:right;padding:1px 8px"


class Comparison:
    """What a comparison found: the facts of compare.json, and how they read."""

    def __init__(self, facts: Mapping[str, Any], path: str | Path | None = None) -> None:
        self.facts, self.path = dict(facts), None if path is None else Path(path)

    @property
    def schemes(self) -> list[dict[str, Any]]:
        """The schemes, the best first, with all that is known of each."""
        return list(self.facts["schemes"])

    @property
    def settings(self) -> list[dict[str, Any]]:
        """Every scheme with every k1."""
        return list(self.facts["settings"])

    @property
    def winner(self) -> str | None:
        """The scheme that is better than every other beyond what seeds do; None where none is."""
        return str(self.schemes[0]["scheme"]) if self.facts["winner"] else None

    @property
    def sure(self) -> float | None:
        """How sure it is that the first is better than the second, from 0 to 1."""
        sure = self.facts["sure"]
        return None if sure is None else float(sure)

    @property
    def sentences(self) -> list[str]:
        """What to take, why, and what it costs."""
        return list(self.facts["sentences"])

    @property
    def notes(self) -> list[str]:
        """What should be known beside that."""
        return list(self.facts["notes"])

    @property
    def command(self) -> str:
        """The command that trains what to take."""
        return shlex.join(self.facts["command"])

    def lines(self, width: int = WIDTH) -> list[str]:
        """Everything in plain lines; the command is one line, however long."""

        def wrapped(text: str, indent: str = "") -> list[str]:
            return textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False)

        lines: list[str] = []
        for table in tables(self.facts):
            lines += [*wrapped(f"{table.title}:"), *in_lines(table, width), ""]
        lines += wrapped(str(self.facts["method"]))
        for note in self.notes:
            lines += ["", *wrapped(f"- {note}", "  ")]
        return [*lines, "", *wrapped(" ".join(self.sentences))]

    def __str__(self) -> str:
        return "\n".join([*map(one_line, self.lines()), "", one_line(self.command)])

    def __repr__(self) -> str:
        first = self.schemes[0]["scheme"] if self.schemes else "nothing"
        sure = "" if self.sure is None else f", sure {self.sure:.0%}"
        return one_line(f"<Comparison on {self.facts['corpus']}: {first} first{sure}>")

    def _repr_html_(self) -> str:
        """What a notebook shows: no script, nothing from outside, every name escaped."""
        parts = [f"<p><b>{escape(' '.join(self.sentences))}</b></p><pre>{escape(one_line(self.command))}</pre>"]
        for table in tables(self.facts):
            cells = "".join(f'<th style="{_CELL}">{escape(name)}</th>' for name in table.columns)
            rows = "".join(
                "<tr>" + "".join(f'<td style="{_CELL}">{escape(one_line(cell))}</td>' for cell in row) + "</tr>"
                for row in table.rows
            )
            parts.append(f"<p>{escape(one_line(table.title))}</p><table><tr>{cells}</tr>{rows}</table>")
        parts += [f"<p>{escape(one_line(note))}</p>" for note in (*self.notes, self.facts["method"])]
        return f'<div style="{_CARD}">{"".join(parts)}</div>'


def compare(
    corpus: str | Path | Corpus,
    schemes: Sequence[Any] = (1, 2, 3, 4),
    *,
    k1: int | Sequence[int] | None = None,
    seeds: int = asking.SEEDS,
    budget: str | float | None = None,
    batches: int | None = None,
    out: str | Path | None = None,
    preset: str = asking.PRESET,
    most: int | None = None,
    launcher: str = "local",
    save_every: int | None = None,
    progress: bool | None = None,
    on_event: Callable[[Report], object] | None = None,
    **settings: Any,
) -> Comparison:
    """Compare schemes on a text of your own at equal budgets, and say what to take, and how sure that is.

    schemes    numbers of the paper's, a `Scheme`, or a mapping of a Scheme's fields
    k1         one or several; a fifth of k2, and k2, otherwise
    seeds      how many: each scheme with each k1 is trained so many times
    budget     how long all of it may take: "90s", "10m", "1h", or seconds; ten minutes unless `batches` are said
    batches    how many every run gets, instead of a budget of time
    out        the folder; one that holds this comparison goes on, also with a larger budget
    settings   of `Experiment`, for all runs, on top of the preset's

    >>> import tempfile, unroll
    >>> text = unroll.Corpus.from_text("to be or not to be, that is the question. " * 100)
    >>> tiny = dict(k2=10, hidden=8, dense=16, rows=4, threads=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = unroll.compare(text, (1, 2), k1=5, seeds=2, batches=12, out=folder, most=4, **tiny)
    >>> sorted(one["scheme"] for one in found.schemes), len(found.sentences)
    (['scheme 1', 'scheme 2'], 3)
    """
    from unroll.sweep.progress import watched

    began = time.monotonic()
    require_progress(progress)
    if budget is None and batches is None:
        budget = BUDGET
    seconds = seconds_in(budget) if isinstance(budget, str) else budget
    settings = {name: value for name, value in settings.items() if value is not None}
    text = corpus if isinstance(corpus, Corpus) else None
    source = "" if text is not None else os.fspath(corpus)  # type: ignore[arg-type]
    several = [k1] if isinstance(k1, int) else k1
    found = asking.asked(source, asking.schemes_of(schemes), several, seeds, seconds, batches, settings, preset)
    if text is not None:
        found = found.described(text)
    folder = ComparisonFolder(out or default_out(text.name if text else source))
    library = Library([text] if text else ())
    reports = drive(folder, library, found, clock(began=began), most, save_every, launcher)
    try:
        watched(reports, progress, on_event)
    except Interrupted as error:
        raise error.with_advice(f"unroll.compare(…, out={str(folder.path)!r}), as before") from None
    return read(folder)


def read(folder: ComparisonFolder) -> Comparison:
    """The answer in a folder; whether it is one is looked at here, since a stranger may have written it."""
    facts = folder.answer
    if facts is None:
        raise RunError(f"{folder.path} holds no answer yet. Go on with it: give the same command as before.")
    try:
        comparison = Comparison(facts, folder.path)
        comparison.lines()
        comparison.command.encode()
        comparison.__repr__()
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
        raise RunError(f"{folder.path / 'compare.json'} is damaged. Delete it, and compare again.") from None
    return comparison


def default_out(corpus: str) -> Path:
    """Where a comparison goes unless somebody says otherwise."""
    name = Path(corpus).name or "text"
    return Path("compare") / "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)
