"""The door to the terminal: everything that the command line prints goes through here, and nowhere else.

Plain words go to standard error (`say`, `warn`), results for a person to standard output, line by line (`show`) or as
text of several lines (`write`). They hold names, reasons and texts that are not ours, so whatever cannot be seen is
spelt out on the way; styles come beside the text, never in it. What a program reads stays exact: JSON
(`print_json`, `print_pieces`), and a model's own text where no terminal shows it (`give`).
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from textwrap import wrap
from typing import TYPE_CHECKING, Any, TextIO, cast

import typer

from unroll.base.atomic_files import finite
from unroll.base.durations import duration as duration
from unroll.base.printable import one_line, printable

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

Style = Mapping[str, Any]  # what `typer.style` takes
Piece = str | tuple[str, Style]
DIM: Style = {"dim": True}
BOLD: Style = {"bold": True}
_NOTE: Style = {"fg": "yellow"}


def say(*pieces: Piece) -> None:
    """Print a line for the person, apart from what a program reads."""
    try:
        _put(_joined(pieces, one_line) + "\n", error=True)
    except OSError:
        # `2>&1 | head` has seen enough, or the terminal is gone. End as by SIGTERM, which saves what is being trained.
        signal.raise_signal(signal.SIGTERM)


def say_words(text: str) -> None:
    """Print a sentence for the person; a terminal's edge cuts none of its words. A command is said whole, by `say`."""
    if not sys.stderr.isatty():
        say(text)
        return
    width = shutil.get_terminal_size().columns
    # Indented, so that no name within a sentence begins a line.
    for line in wrap(one_line(text), width, break_on_hyphens=False, subsequent_indent="  "):
        say(line)


def warn(message: str) -> None:
    """Say that something is allowed but should be known."""
    say(("note: ", _NOTE), message)


def show(*pieces: Piece) -> None:
    """Print a line of a result."""
    _put(_joined(pieces, one_line) + "\n")


def write(*pieces: Piece) -> None:
    """Print text with the line ends that it has, and none after it."""
    _put(_joined(pieces, printable))


def give(text: str) -> None:
    """Print what a model wrote: exact for a program, and as a terminal may show it for a person."""
    _put(printable(text) if on_a_terminal() else text, exact=True)


def print_json(content: Any) -> None:
    """Print one object and nothing else."""
    print_pieces([json.dumps(finite(content))])


def print_pieces(pieces: Iterable[str]) -> None:
    """Print one object in pieces of JSON, which are ASCII."""
    for piece in pieces:
        _put(piece)
    _put("\n")


def on_a_terminal() -> bool:
    """Whether somebody is looking at standard output."""
    return sys.stdout.isatty()


def console(error: bool = True, width: int | None = None) -> Console:
    """A console for tables and displays that move. A text in them is no markup, and drives nothing."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Door(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else segment._replace(text=printable(segment.text))

    return Door(file=_stream(error), width=width, markup=False, emoji=False, highlight=False)


def dim() -> str:
    """The style of what matters less, for a console: none where the user wants no colours, of which it is one."""
    return "" if os.environ.get("NO_COLOR") else "dim"


def shell_word(path: str | Path) -> str:
    """Write a path so that it can be copied into a command: exact for the shell, and printable.

    >>> shell_word("a run"), shell_word("a\\x1brun")
    ("'a run'", "$'a\\\\x1brun'")
    """
    text = str(path)
    if sys.platform == "win32":  # whose shells know no other quotes; its names hold neither these nor line ends
        return subprocess.list2cmdline([one_line(text)])
    if one_line(text) == text:
        return shlex.quote(text)
    kept = {"'": "\\'", "\\": "\\\\"}
    spelt = (kept.get(c, c) if one_line(c) == c else "".join(f"\\x{byte:02x}" for byte in os.fsencode(c)) for c in text)
    return f"$'{''.join(spelt)}'"


def end_with_the_reader() -> None:
    """Let `| head`, when it has seen enough, end this process as it ends other commands."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


@contextmanager
def guarded() -> Iterator[None]:
    """Close both streams to all that does not come through the door; a library's warning is made printable too."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, _Guarded(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


class _Guarded:
    """A stream as everybody but this module sees it."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write what can be seen."""
        self.stream.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write what can be seen, piece by piece."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _stream(error: bool) -> TextIO:
    stream = sys.stderr if error else sys.stdout
    return stream.stream if isinstance(stream, _Guarded) else stream


def _put(text: str, error: bool = False, exact: bool = False) -> None:
    # Styles are dropped where no terminal shows them; in an exact text, what looks like a style belongs to the text.
    typer.echo(text, file=_stream(error), nl=False, color=True if exact else None)


def _joined(pieces: Iterable[Piece], clean: Callable[[str], str]) -> str:
    return "".join(clean(piece) if isinstance(piece, str) else _styled(clean(piece[0]), piece[1]) for piece in pieces)


def _styled(text: str, style: Style) -> str:
    """Style a text without its last line ends and tabs, so that the style does not run to the screen's edge."""
    kept = {k: v for k, v in style.items() if k not in ("fg", "bg", "dim") or not os.environ.get("NO_COLOR")}
    bare = text.rstrip("\n\t")
    if not kept or not bare:
        return text
    return typer.style(bare, **kept) + text[len(bare) :]
