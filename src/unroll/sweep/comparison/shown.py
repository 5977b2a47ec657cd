"""An answer that shows itself, in Python, in a notebook and on a terminal; and how it is read from its folder.

Nothing here imports torch: a report reads answers as well.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from unroll.base.errors import RunError
from unroll.base.printable import one_line
from unroll.base.wording import in_words
from unroll.sweep.comparison.folder import ANSWER, ComparisonFolder
from unroll.sweep.comparison.tables import Table, in_lines, tables

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
        return [in_words(str(note)) for note in self.facts["notes"]]

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
        return as_card(self.sentences, self.command, tables(self.facts), [*self.notes, str(self.facts["method"])])


def as_card(sentences: Sequence[str], command: str, tables: Sequence[Table], notes: Sequence[str]) -> str:
    """An answer as a notebook shows it: no script, nothing from outside, every name escaped."""
    parts = [f"<p><b>{escape(' '.join(sentences))}</b></p><pre>{escape(one_line(command))}</pre>"]
    for table in tables:
        cells = "".join(f'<th style="{_CELL}">{escape(name)}</th>' for name in table.columns)
        rows = "".join(
            "<tr>" + "".join(f'<td style="{_CELL}">{escape(one_line(cell))}</td>' for cell in row) + "</tr>"
            for row in table.rows
        )
        parts.append(f"<p>{escape(one_line(table.title))}</p><table><tr>{cells}</tr>{rows}</table>")
    parts += [f"<p>{escape(one_line(note))}</p>" for note in notes]
    return f'<div style="{_CARD}">{"".join(parts)}</div>'


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
        raise RunError(f"{folder.path / ANSWER} is damaged. Delete it, and compare again.") from None
    return comparison
