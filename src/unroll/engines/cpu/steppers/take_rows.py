"""Drops, moves and copies rows that are held as objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, Self, TypeVar


class CopyableRow(Protocol):
    """A row that can be overwritten with another one."""

    def copy_from(self, other: Self) -> None: ...


Row = TypeVar("Row", bound=CopyableRow)


def take_rows(rows: Sequence[Row], numbers: Sequence[int], new: Callable[[], Row]) -> list[Row]:
    """The rows with these numbers. A row that is wanted twice is copied, to an unwanted row if there is one."""
    wanted = set(numbers)
    free = [row for n, row in enumerate(rows) if n not in wanted]
    taken: list[Row] = []
    for n in numbers:
        if n in wanted:
            wanted.remove(n)
            taken.append(rows[n])
            continue
        copy = free.pop() if free else new()
        copy.copy_from(rows[n])
        taken.append(copy)
    return taken
