"""A list in memory of everything that it is told, by the run's name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unroll.training.trackers import Line, Tracked

TOLD: dict[str, list[Any]] = {}


def why_not() -> str | None:
    """It can be used everywhere."""
    return None


class begin:
    """A run's own list."""

    def __init__(self, run: Tracked, lines: Sequence[Line]) -> None:
        self._told = TOLD[run.name] = [dict(line) for line in lines]

    def add(self, line: Line) -> None:
        """Keep a line."""
        self._told.append(dict(line))

    def end(self, state: str) -> None:
        """Keep how it ended."""
        self._told.append(state)
