"""The folder of a comparison: that of a sweep, and two files of its own.

rounds.json    the budget, what of it is spent, and to which batch each round went: written before a round begins
compare.json   the answer, when it is there
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from unroll.base import atomic_files, untrusted
from unroll.base.errors import RunError
from unroll.base.untrusted import MEGABYTE
from unroll.base.version import VERSION
from unroll.sweep.folder import SweepFolder

ROUNDS, ANSWER = "rounds.json", "compare.json"
MOST_BYTES = 16 * MEGABYTE


@dataclass
class Progress:
    """How far a comparison is."""

    budget: float | None  # seconds
    batches: int | None  # of every run, where they were said
    spent: float = 0.0  # seconds, by the processes so far
    rounds: list[int] = field(default_factory=list)  # to which batch each one goes; the last has begun
    reserve: float = 0.0  # seconds for what is measured at the end
    cut: bool = False  # the last round was cut short by the clock


class ComparisonFolder(SweepFolder):
    """The files of one comparison."""

    def file_names(self) -> tuple[str, ...]:
        """Those of a sweep, and our own."""
        return (*super().file_names(), ROUNDS, ANSWER)

    def is_comparison(self) -> bool:
        """Whether the sweep here is a comparison's."""
        return self.is_sweep() and untrusted.is_regular(self.path / ROUNDS)

    @property
    def progress(self) -> Progress:
        """rounds.json, read and checked."""
        try:
            content = untrusted.unsealed(self._content(ROUNDS))
            progress = Progress(**{name: content[name] for name in Progress.__dataclass_fields__})
            numbers = (
                progress.spent,
                progress.reserve,
                *filter(None, (progress.budget, progress.batches)),
            )
            whole = isinstance(progress.rounds, list) and all(type(b) is int and b > 0 for b in progress.rounds)
            if not whole or type(progress.cut) is not bool or not all(type(n) in (int, float) for n in numbers):
                raise ValueError
            return progress
        except (OSError, ValueError, KeyError, TypeError):
            raise RunError(f"{self.path / ROUNDS} is damaged. Bring it back, or compare into another folder.") from None

    @progress.setter
    def progress(self, progress: Progress) -> None:
        self._write(ROUNDS, vars(progress))

    @property
    def answer(self) -> dict[str, Any] | None:
        """compare.json; None where there is no answer yet."""
        if not untrusted.present(self.path / ANSWER):
            return None
        try:
            content = untrusted.unsealed(self._content(ANSWER))
            return {name: value for name, value in content.items() if name != "unroll"}
        except (OSError, ValueError):
            raise RunError(f"{self.path / ANSWER} is damaged. Delete it, and compare again: no run is lost.") from None

    @answer.setter
    def answer(self, answer: Mapping[str, Any]) -> None:
        self._write(ANSWER, answer)

    def forget_answer(self) -> None:
        """Delete an answer that more training will replace."""
        (self.path / ANSWER).unlink(missing_ok=True)

    def _content(self, name: str) -> Any:
        return untrusted.parse_json(untrusted.read(self.path / name, MOST_BYTES))

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        sealed = untrusted.sealed({"unroll": VERSION, **atomic_files.finite(dict(content))})
        atomic_files.write(self.path / name, (json.dumps(sealed, indent=1, ensure_ascii=False) + "\n").encode())
