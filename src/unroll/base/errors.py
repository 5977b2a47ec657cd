"""The errors that Unroll raises on purpose.

    UnrollError                  the root: catch this one
    ├── InputError               something the user gave cannot be used; the command exits with 2
    │   ├── ConfigurationError   an option or a line of run.toml
    │   ├── CorpusError          a corpus that cannot be read or is too small
    │   ├── SymbolError          a symbol that the vocabulary does not hold
    │   └── RunError             a run folder that is missing something, damaged or another's
    ├── SaveError                the disk refused; what was saved before is intact
    └── Interrupted              Ctrl-C, SIGTERM or a closed terminal, after everything was saved

A message says what is wrong, what was given, and what would work. All problems of one input are reported together.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from unroll.base.printable import one_line
from unroll.base.wording import in_words


class UnrollError(Exception):
    """The root of the tree. Problems may quote names and files from anywhere, so each becomes one printable line.

    A message is for people: on the command line, in a notebook's traceback and in a log. It is written with the command
    line's options, and names arguments where Python asked.
    """

    exit_code = 1

    def __init__(self, *problems: str) -> None:
        self.problems = tuple(in_words(one_line(problem)) for problem in problems)
        super().__init__(*self.problems)

    def __str__(self) -> str:
        return "\n".join(self.problems)


class InputError(UnrollError):
    """Something the user gave cannot be used."""

    exit_code = 2


class ConfigurationError(InputError):
    """An option or a line of run.toml."""


class CorpusError(InputError):
    """A corpus that cannot be read or is too small."""


class SymbolError(InputError):
    """A symbol that the vocabulary does not hold."""


class RunError(InputError):
    """A run folder that is missing something, damaged or another's."""


class SaveError(UnrollError):
    """The disk refused; what was saved before is intact."""


class Interrupted(UnrollError):
    """Ctrl-C, SIGTERM or a closed terminal, after everything was saved; or `left` to jobs that go on, which it says."""

    def __init__(self, signal_number: int, going_on: str = "", left: str = "") -> None:
        super().__init__(f"Interrupted by signal {signal_number}.{going_on and ' '}{going_on}")
        self.signal_number = signal_number
        self.left = left
        self.exit_code = 128 + signal_number

    def with_advice(self, command: str) -> Interrupted:
        """The same, and how to go on."""
        saved = self.left or "Everything is saved."
        return Interrupted(self.signal_number, f"{saved} Go on with: {command}", self.left)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """' Did you mean x?' if a known word is close; else an empty text."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean {close[0]}?" if close else ""


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 file, 2,000 files."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
