"""Windowed and progressive from one prompt and one seed, in two columns: a line is shown once both have reached it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from unroll.base.printable import printable
from unroll.cli.screen import BOLD, DIM, give, on_a_terminal, print_json, say, show, write
from unroll.model.conditioning import PROCEDURES

if TYPE_CHECKING:
    from unroll.runs.loaded import Run
    from unroll.sampling.api import Token
    from unroll.sampling.controls import Settings

GAP = " │ "
TAB = 4
NARROWEST = 24  # cells of a column: below that, blocks are easier to read


class Wrapped:
    """Text that grows, as lines of at most `width` cells, broken after a space or within a word longer than a line."""

    def __init__(self, width: int) -> None:
        self._width = width
        self.rest = ""  # the unfinished line

    def add(self, text: str) -> Iterator[str]:
        """Add text, and yield the lines that it finishes."""
        from rich.cells import cell_len

        for character in text:
            if character == "\n":
                yield self.rest
                self.rest = ""
                continue
            self.rest += " " * (TAB - len(self.rest) % TAB) if character == "\t" else character
            if cell_len(self.rest) > self._width:
                cut = self.rest.rstrip().rfind(" ") + 1 or len(self.rest) - 1
                yield self.rest[:cut]
                self.rest = self.rest[cut:]


class _Column:
    """One procedure's text in lines, and the time that drawing it took."""

    def __init__(self, run: Run, settings: Settings, procedure: str, width: int) -> None:
        from unroll.sampling.api import requested, stream_all

        self.procedure = procedure
        self._text = Wrapped(width)
        requests = requested(run, replace(settings, sample=procedure))
        _warm(run, settings, procedure)
        self._tokens = (token for _, token in stream_all(run, requests))
        self._drawn = 0
        self._seconds = 0.0

    def lines(self) -> Iterator[list[str]]:
        """Yield after each token the lines that it finished, and at the end the last line."""
        while (token := self._next()) is not None:
            self._drawn += 1
            yield list(self._text.add(printable(token.text)))
        yield [self._text.rest]

    def speed(self) -> str:
        """Tokens a second, prompt included."""
        return f"{self._drawn / max(self._seconds, 1e-9):,.0f} tokens a second"

    def _next(self) -> Token | None:
        began = time.perf_counter()
        token = next(self._tokens, None)
        self._seconds += time.perf_counter() - began
        return token


def show_both(run: Run, settings: Settings, json: bool) -> None:
    """Columns on a terminal that is wide enough, else one block after the other."""
    width = (shutil.get_terminal_size().columns - len(GAP)) // 2
    if json or not on_a_terminal() or width < NARROWEST:
        _blocks(run, settings, json)
        return
    left, right = (_Column(run, settings, procedure, width) for procedure in PROCEDURES)
    if settings.prompt:
        write((settings.prompt, DIM), "\n")
    show((_row(left.procedure, right.procedure, width), BOLD))
    waiting: tuple[list[str], list[str]] = ([], [])
    # A token of each in turn, so that neither column runs ahead for long.
    for both in zip_longest(left.lines(), right.lines()):
        for lines, more in zip(waiting, both, strict=True):
            lines.extend(more or [])
        while waiting[0] and waiting[1]:
            show(_row(waiting[0].pop(0), waiting[1].pop(0), width))
    for rest in zip_longest(*waiting, fillvalue=""):
        show(_row(*rest, width))
    show((_row(left.speed(), right.speed(), width), DIM))


def _row(left: str, right: str, width: int) -> str:
    from rich.cells import set_cell_size

    return set_cell_size(left, width) + GAP + right


def _warm(run: Run, settings: Settings, procedure: str) -> None:
    """Draw one token for nobody: code that is compiled once would count against the procedure that comes first."""
    from unroll.sampling.api import answer

    answer(run, replace(settings, sample=procedure, length=1))


def _blocks(run: Run, settings: Settings, json: bool) -> None:
    from dataclasses import asdict

    from unroll.sampling.api import answer

    samples = []
    for procedure in PROCEDURES:
        _warm(run, settings, procedure)
        began = time.perf_counter()
        (answered,) = answer(run, replace(settings, sample=procedure))
        speed = len(answered.tokens) / max(time.perf_counter() - began, 1e-9)
        samples.append(asdict(answered))
        if not json:
            show(f"--- {procedure}")
            give(answered.text + "\n")
            say(f"{procedure}: {speed:,.0f} tokens a second")
    if json:
        print_json({"samples": samples})
