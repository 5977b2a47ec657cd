"""An answer that shows itself, in Python, in a notebook and on a terminal: what a comparison and advice have in common.

Nothing here imports torch: a report reads answers as well.
"""

from __future__ import annotations

import shlex
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from unroll.base.printable import one_line
from unroll.base.wording import in_words
from unroll.sweep.comparison.tables import Table, in_lines

WIDTH = 100
_CARD = (
    "font:13px/1.5 system-ui,sans-serif;font-variant-numeric:tabular-nums;padding:10px 14px;overflow-x:auto;"
    "border:1px solid rgba(128,128,128,.35);border-radius:8px"
)
_CELL = "text-align:right;padding:1px 8px"


class Answer(ABC):
    """The facts of an answer, and how they read."""

    def __init__(self, facts: Mapping[str, Any], path: str | Path | None = None) -> None:
        self.facts, self.path = dict(facts), None if path is None else Path(path)

    @abstractmethod
    def tables(self) -> list[Table]:
        """Its tables, the most important first."""

    @abstractmethod
    def paragraphs(self) -> list[str]:
        """Its sentences, as they stand below each other."""

    @property
    def sentences(self) -> list[str]:
        """What to take, why, and what it costs."""
        return [in_words(str(sentence)) for sentence in self.facts["sentences"]]

    @property
    def notes(self) -> list[str]:
        """What should be known beside that."""
        return [in_words(str(note)) for note in self.facts["notes"]]

    @property
    def command(self) -> str:
        """The command that trains what to take; nothing where nothing is."""
        return shlex.join(self.facts["command"])

    def lines(self, width: int = WIDTH) -> list[str]:
        """Everything in plain lines, but for the command."""

        def wrapped(text: str, indent: str = "") -> list[str]:
            return textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False)

        lines: list[str] = []
        for table in self.in_print_order():
            lines += [*wrapped(f"{table.title}:"), *in_lines(table, width), ""]
        lines += wrapped(str(self.facts["method"]))
        for note in self.notes:
            lines += ["", *wrapped(f"- {note}", "  ")]
        for paragraph in self.paragraphs():
            lines += ["", *wrapped(paragraph)]
        return lines

    def in_print_order(self) -> list[Table]:
        """The tables as they are printed."""
        return self.tables()

    def __str__(self) -> str:
        return "\n".join([*map(one_line, self.lines()), *(("", one_line(self.command)) if self.command else ())])

    def _repr_html_(self) -> str:
        """What a notebook shows: no script, nothing from outside, every name escaped."""
        return _card(self.sentences, self.command, self.tables(), [*self.notes, str(self.facts["method"])])


def _card(sentences: Sequence[str], command: str, tables: Sequence[Table], notes: Sequence[str]) -> str:
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
