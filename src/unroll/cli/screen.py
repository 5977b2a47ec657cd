"""What reaches the terminal: plain words on standard error, results on standard output."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import typer

from unroll.durable import finite


def say(message: str) -> None:
    """A line for the person, out of the way of what a program reads."""
    try:
        typer.echo(message, err=True)
    except OSError:
        # `2>&1 | head` has seen enough, or the terminal is gone: end as by SIGTERM, which saves what is being trained.
        signal.raise_signal(signal.SIGTERM)


def warn(message: str) -> None:
    """Something allowed that should be known."""
    say(("note: " if os.environ.get("NO_COLOR") else typer.style("note: ", fg="yellow")) + message)


def print_json(content: Any) -> None:
    """One object and nothing else."""
    typer.echo(json.dumps(finite(content)))


def end_with_the_reader() -> None:
    """Let `| head`, when it has seen enough, end this process as it ends other commands."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def visible(text: str) -> str:
    """Text that cannot drive a terminal: a model may have learned escape sequences."""
    if not sys.stdout.isatty():
        return text
    return "".join(c if c in "\n\t" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def duration(seconds: float) -> str:
    """12 s, 3 min 20 s, 2 h 5 min."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
