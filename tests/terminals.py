"""A command's own streams on a pseudo-terminal, and text that would drive one."""

from __future__ import annotations

import os
import pty
import re
import threading
import tty
import unicodedata
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

from commands import Result, unroll

# What names, reasons and texts from elsewhere may hold: each would do harm in its own way before the word after it.
WAYS = (
    *("\x1b[31;666m", "\x1b]0;", "\x9b31m", "\x07", "\x08", "\r", "\x0b", "\x7f", "\x85"),  # drives, or writes over
    *("\u2028", "\u2029", "\nunroll: ", "\n"),  # begins a line that looks like ours
    *("\u202e", "\u2066", "\u200f", "\u061c"),  # turns the reading direction
    *("\u200b", "\u200d", "\ufe0f", "\ufeff", "\u00ad", "\u3164", "\U000e0041"),  # hides
)
HOSTILE = "".join(f"{way}owned" for way in WAYS)
HOSTILE_NAME = "".join(f"{way}own" for way in WAYS) + "\udcff"  # fits into 255 bytes, and is no UTF-8

_INVISIBLE = {"\u200d", "\ufe0f", "\u3164"}
# Our own styles, and the codes by which a moving display goes back over its lines.
_OURS = re.compile(r"\x1b\[(?:\?25[lh]|\d*[ABK]|(?!31;666)[0-9;]*m)")


def harm(text: str, on_a_terminal: bool = False, lines: bool = True) -> list[str]:
    """What in a command's output could drive a terminal or hide; with `lines`, what looks like a line of ours, too."""
    if on_a_terminal:
        text = re.sub(r"\r(?!own)", "", _OURS.sub("", text))  # to the beginning of a line that is drawn anew
    harmful = [text[i : i + 12] for i, c in enumerate(text) if _harmful(c)]
    return harmful + (re.findall(r"^(?:unroll: )?own.*", text, re.MULTILINE) if lines else [])


def _harmful(character: str) -> bool:
    seen = character.isprintable() or unicodedata.category(character) == "Zs" or character in "\n\t"
    return not seen or character in _INVISIBLE


def watched(*arguments: object) -> Result:
    """Run `unroll …` with both streams on one terminal: all that it shows is in `out`."""
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    shown: list[bytes] = []
    reader = threading.Thread(target=_read, args=(ours, shown))
    reader.start()
    try:
        with (
            open(theirs, "w", encoding="utf-8", errors="surrogateescape") as screen,
            patch.dict(os.environ, {"TERM": "xterm-256color"}),
            redirect_stdout(screen),
            redirect_stderr(screen),
        ):
            code = unroll(*arguments, captured=False).code
    finally:
        reader.join()
        os.close(ours)
    return Result(code, b"".join(shown).decode("utf-8", "surrogateescape"), "")


def _read(terminal: int, shown: list[bytes]) -> None:
    while True:
        try:
            piece = os.read(terminal, 1 << 16)
        except OSError:  # the other end is closed
            return
        if not piece:
            return
        shown.append(piece)
