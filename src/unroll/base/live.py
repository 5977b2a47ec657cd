"""Where progress is shown to somebody in Python: a panel in a notebook, a line on a terminal, lines in a log.

Nothing here stops a training: a terminal that is gone, or a stream that is closed, is not written to again.
"""

from __future__ import annotations

import html
import shutil
import sys
import time
from abc import ABC, abstractmethod
from typing import Any

from unroll.base.errors import ConfigurationError
from unroll.base.printable import one_line

REFRESH = 3  # times a second
BAR = 12  # characters
GAP = "   "  # between two fields of a line
EIGHTHS = " ▏▎▍▌▋▊▉"
_TEXT = "font:13px/1.5 system-ui,sans-serif;font-variant-numeric:tabular-nums"
_TRACK = "height:6px;border-radius:3px;background:rgba(128,128,128,.25);overflow:hidden;max-width:480px"


class Live(ABC):
    """A place for progress: one line that is replaced, and notes that stay."""

    def __init__(self) -> None:
        self._drawn_at = float("-inf")

    @property
    def due(self) -> bool:
        """Whether the line is old enough to be replaced: more often costs time and shows no more."""
        return time.perf_counter() - self._drawn_at > 1 / REFRESH

    def show(self, text: str, share: float, picture: str = "") -> None:
        """Replace the line. `share` is how much is done; a picture is HTML of ours."""
        self.draw(one_line(text), min(max(share, 0.0), 1.0), picture)
        self._drawn_at = time.perf_counter()

    @abstractmethod
    def draw(self, text: str, share: float, picture: str) -> None:
        """Replace the line now."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Say something that stays."""

    def milestone(self, text: str) -> None:  # noqa: B027 (nothing to do where the line is replaced anyway)
        """Say what a log keeps; elsewhere the line says it."""

    def end(self) -> None:  # noqa: B027 (a log ends with its last line)
        """Leave the last line as it is."""


class Log(Live):
    """Standard error, line after line."""

    def draw(self, text: str, share: float, picture: str) -> None:
        """A log keeps milestones and notes only."""

    def note(self, text: str) -> None:
        """One line."""
        self._write(f"note: {one_line(text)}\n")

    def milestone(self, text: str) -> None:
        """One line."""
        self._write(f"{one_line(text)}\n")

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):  # nobody reads on, or the stream is closed
            self._write = lambda text: None  # type: ignore[method-assign]


class Terminal(Log):
    """Standard error of somebody who looks at it: a line that is drawn over itself."""

    def draw(self, text: str, share: float, picture: str) -> None:
        """The line, no wider than the terminal: a longer one could not be drawn over."""
        width = max(shutil.get_terminal_size().columns - 1, 10)
        line = f"{bar(share)} {text}" if width > 5 * BAR else text
        self._write(f"\r\x1b[K{fitting(line, width)}")

    def note(self, text: str) -> None:
        """On a line of its own, above."""
        self._write(f"\r\x1b[Knote: {one_line(text)}\n")

    def milestone(self, text: str) -> None:
        """The line says it."""

    def end(self) -> None:
        """What is written next begins a line."""
        if self._drawn_at > 0:
            self._write("\n")


class Notebook(Live):
    """The output of a notebook's cell: a panel that is replaced, without scripts and without anything from outside."""

    def __init__(self) -> None:
        super().__init__()
        self._notes: list[str] = []
        self._last = ("", 0.0, "")
        self._handle: Any = None

    def draw(self, text: str, share: float, picture: str) -> None:
        """The panel, and the line alone for a front end that shows no HTML."""
        from IPython.display import display

        self._last = (text, share, picture)
        content = {"text/plain": "\n".join((*self._notes, text)), "text/html": self.page()}
        if self._handle is None:
            self._handle = display(content, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(content, raw=True)

    def page(self) -> str:
        """The panel as HTML. Whatever is not ours in it is escaped."""
        text, share, picture = self._last
        notes = "".join(f'<div style="opacity:.75">{html.escape(note)}</div>' for note in self._notes)
        done = f'<div style="{_TRACK}"><div style="height:100%;width:{share:.1%};background:#3b82c4"></div></div>'
        said = f'<div style="white-space:pre-wrap">{html.escape(text)}</div>'
        return f'<div style="{_TEXT}">{notes}{done}{said}{picture}</div>'

    def note(self, text: str) -> None:
        """Above the panel's line."""
        self._notes.append(f"note: {one_line(text)}")
        self.draw(*self._last)


def place(progress: bool | None) -> Live | None:
    """Where progress is shown: None is nowhere.

    Unless somebody says otherwise, a notebook and a terminal show it, and a program whose standard error goes
    elsewhere is silent. With True it writes lines there; with False nothing shows anything.
    """
    require_progress(progress)
    if progress is False:
        return None
    if in_notebook():
        return Notebook()
    # A window without a console has none, and whatever stands in for it need not be a file.
    if sys.stderr is None or getattr(sys.stderr, "closed", False):
        return None
    if getattr(sys.stderr, "isatty", bool)():
        return Terminal()
    return Log() if progress else None


def require_progress(progress: bool | None) -> None:
    """Refuse what is no answer to whether progress is shown."""
    if progress is not None and not isinstance(progress, bool):
        raise ConfigurationError(f"progress must be True, False or None. Got {progress!r}.")


def in_notebook() -> bool:
    """Whether a notebook's kernel runs this."""
    module = sys.modules.get("IPython")  # who never imported it is in none
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None) is not None


def fitting(line: str, width: int) -> str:
    """As many fields of a line as there is room for; the first is cut where even that is too long.

    >>> fitting("5 / 10 batches   perplexity 7.123   3 s left", 35)
    '5 / 10 batches   perplexity 7.123'
    """
    fields = line.split(GAP)
    while len(GAP.join(fields)) > width and len(fields) > 1:
        fields.pop()
    return GAP.join(fields)[:width]


def bar(share: float, width: int = BAR) -> str:
    """How much is done, in eighths of a character.

    >>> bar(0.5, 4), bar(0.28, 4)
    ('▕██  ▏', '▕█▏  ▏')
    """
    full, rest = divmod(round(share * width * 8), 8)
    cells = "█" * full + (EIGHTHS[rest] if rest else "")
    return f"▕{cells:<{width}}▏"
