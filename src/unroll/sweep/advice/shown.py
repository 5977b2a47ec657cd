"""Advice that shows itself, in Python, in a notebook and on a terminal; and how it is read from its folder.

Nothing here imports torch: a report reads advice as well.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unroll.base.durations import duration
from unroll.base.errors import RunError
from unroll.base.printable import one_line
from unroll.base.wording import in_words
from unroll.sweep.advice.folder import ADVICE, AdviceFolder
from unroll.sweep.advice.tables import tables
from unroll.sweep.comparison.shown import WIDTH, as_card
from unroll.sweep.comparison.tables import in_lines


class Advice:
    """What a pilot recommends: the facts of advice.json, and how they read."""

    def __init__(self, facts: Mapping[str, Any], path: str | Path | None = None) -> None:
        self.facts, self.path = dict(facts), None if path is None else Path(path)

    @property
    def setting(self) -> dict[str, Any]:
        """The setting to take, with all that is known of it."""
        return dict(self.facts["settings"][self.facts["taken"]])

    @property
    def settings(self) -> list[dict[str, Any]]:
        """Those of the last stage, the best first."""
        return list(self.facts["settings"])

    @property
    def expected(self) -> tuple[float, float, float] | None:
        """The test perplexity of a full run: expected, and the ends of its interval; None where nothing was finite."""
        known = self.facts["expected"]
        if known is None:
            return None
        high = float("inf") if known["high"] is None else float(known["high"])
        return float(known["perplexity"]), float(known["low"]), high

    @property
    def sentences(self) -> list[str]:
        """What to take, what to expect, what it costs, how sure that is, and what would change it."""
        return [in_words(str(sentence)) for sentence in self.facts["sentences"]]

    @property
    def notes(self) -> list[str]:
        """What should be known beside that."""
        return [in_words(str(note)) for note in self.facts["notes"]]

    @property
    def command(self) -> str:
        """The command that trains what is recommended; nothing where nothing is."""
        return shlex.join(self.facts["command"])

    def lines(self, width: int = WIDTH) -> list[str]:
        """Everything in plain lines; the command is one line, however long."""

        def wrapped(text: str, indent: str = "") -> list[str]:
            return textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False)

        lines: list[str] = []
        for table in reversed(tables(self.facts)):
            lines += [*wrapped(f"{table.title}:"), *in_lines(table, width), ""]
        lines += wrapped(str(self.facts["method"]))
        for note in self.notes:
            lines += ["", *wrapped(f"- {note}", "  ")]
        for sentence in self.sentences:
            lines += ["", *wrapped(sentence)]
        return lines

    def __str__(self) -> str:
        return "\n".join([*map(one_line, self.lines()), *(("", one_line(self.command)) if self.command else ())])

    def __repr__(self) -> str:
        found = "nothing to take"
        if self.expected is not None:
            found = f"{self.setting['words']}, perplexity {self.expected[0]:.3f} expected"
        return one_line(f"<Advice on {self.facts['corpus']}: {found}>")

    def _repr_html_(self) -> str:
        """What a notebook shows: no script, nothing from outside, every name escaped."""
        notes = [*self.notes, str(self.facts["method"])]
        return as_card(self.sentences, self.command, tables(self.facts), notes)


def read(folder: AdviceFolder) -> Advice:
    """The advice in a folder; whether it is one is looked at here, since a stranger may have written it."""
    facts = folder.state.answer
    if facts is None:
        raise RunError(f"{folder.path} holds no advice yet. Go on with it: give the same command as before.")
    try:
        advice = Advice(facts, folder.path)
        advice.lines()
        advice.command.encode()
        advice.__repr__()
        duration(facts["clocks"]["spent"])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
        raise RunError(f"{folder.path / ADVICE} is damaged. Ask for advice in another folder, with --out.") from None
    return advice
