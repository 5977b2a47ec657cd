"""A few lines at the end of a terminal that are drawn over themselves, and anew at once where it is resized."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from unroll.base.live import GAP

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.segment import Segment

RESIZED = getattr(signal, "SIGWINCH", None)  # Windows has none: there the next drawing is of the right width


@contextmanager
def moving(screen: Console, render: Callable[[], RenderableType]) -> Iterator[Callable[[], None]]:
    """Give a function that draws what `render` makes for the screen as it is now."""
    from rich.live import Live

    with Live(console=screen, auto_refresh=False, transient=False) as live:
        lines = _Lines(screen, live, render)
        if RESIZED is None or threading.current_thread() is not threading.main_thread():
            yield lines.draw
            return
        before = signal.signal(RESIZED, lambda number, frame: lines.draw())
        try:
            yield lines.draw
        finally:
            signal.signal(RESIZED, before)


class _Lines:
    """The lines, and how long each was when it was drawn."""

    def __init__(self, screen: Console, live: Live, render: Callable[[], RenderableType]) -> None:
        self.screen, self.live, self.render = screen, live, render
        self.lengths: list[int] = []
        self.width = screen.width
        self.drawing = False

    def draw(self) -> None:
        """Draw now; not in the midst of a drawing, which a signal may interrupt."""
        if self.drawing:
            return
        self.drawing = True
        try:
            if self.screen.width < self.width:
                self._erase_wrapped()
            self.width, shown = self.screen.width, self.render()
            self.lengths = [_length(line) for line in self.screen.render_lines(shown, pad=False)]
            self.live.update(shown, refresh=True)
        finally:
            self.drawing = False

    def _erase_wrapped(self) -> None:
        """Erase the rows by which a narrower terminal has made the lines more."""
        from rich.control import Control
        from rich.segment import ControlType

        rows = sum(max(-(-length // self.screen.width), 1) for length in self.lengths)
        upwards = ((ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1))
        self.screen.control(Control(*upwards * (rows - len(self.lengths))))


def _length(line: list[Segment]) -> int:
    from rich.cells import cell_len

    return cell_len("".join(segment.text for segment in line).rstrip())


def fields_in_lines(fields: list[str], width: int, most: int) -> list[str]:
    """Fields on as few lines as hold them, at most so many; those that come last are dropped where there is no room.

    >>> fields_in_lines(["loss 1.2", "perplexity 3.4", "evaluation 5%"], 26, 2)
    ['loss 1.2   perplexity 3.4', 'evaluation 5%']
    >>> fields_in_lines(["loss 1.2", "perplexity 3.4", "evaluation 5%"], 14, 2)
    ['loss 1.2', 'perplexity 3.4']
    """
    lines: list[str] = []
    for field in filter(None, fields):
        if lines and len(lines[-1]) + len(GAP) + len(field) <= width:
            lines[-1] += GAP + field
        elif len(lines) < most:
            lines.append(field[:width])
        else:
            break
    return lines
