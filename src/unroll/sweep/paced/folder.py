"""The folder of runs that are trained within a budget: that of a sweep, and a file of its own.

rounds.json    the budget, what of it is spent, and to which batch each round went: written before a round begins
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unroll.base import atomic_files, untrusted
from unroll.base.errors import RunError
from unroll.base.untrusted import MEGABYTE
from unroll.base.version import VERSION
from unroll.sweep.folder import SweepFolder

ROUNDS = "rounds.json"
MOST_BYTES = 16 * MEGABYTE


@dataclass
class Progress:
    """How far the rounds are."""

    budget: float | None  # seconds
    batches: int | None  # of every run, where they were said
    spent: float = 0.0  # seconds, by the processes so far
    rounds: list[int] = field(default_factory=list)  # to which batch each one goes; the last has begun
    reserve: float = 0.0  # seconds for what is measured at the end
    cut: bool = False  # the last round was cut short by the clock


class PacedFolder(SweepFolder):
    """The files of a sweep that is trained in rounds."""

    def file_names(self) -> tuple[str, ...]:
        """Those of a sweep, and our own."""
        return (*super().file_names(), ROUNDS)

    def is_paced(self) -> bool:
        """Whether the sweep here is trained in rounds."""
        return self.is_sweep() and untrusted.is_regular(self.path / ROUNDS)

    @property
    def progress(self) -> Progress:
        """rounds.json, read and checked."""
        try:
            content = untrusted.unsealed(self.read_json(ROUNDS))
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
            raise RunError(f"{self.path / ROUNDS} is damaged. Bring it back, or begin in another folder.") from None

    @progress.setter
    def progress(self, progress: Progress) -> None:
        self.write_json(ROUNDS, vars(progress))

    def read_json(self, name: str) -> Any:
        """What one of the files holds."""
        return read_sealed(self.path / name)

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write one of the files."""
        write_sealed(self.path / name, content)


def read_sealed(path: Path, most_bytes: int = MOST_BYTES) -> Any:
    """What a file of ours holds; `untrusted.unsealed` compares its digest."""
    return untrusted.parse_json(untrusted.read(path, most_bytes))


def write_sealed(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file of ours, sealed with a digest."""
    sealed = untrusted.sealed({"unroll": VERSION, **atomic_files.finite(dict(content))})
    atomic_files.write(path, (json.dumps(sealed, indent=1, ensure_ascii=False) + "\n").encode())
