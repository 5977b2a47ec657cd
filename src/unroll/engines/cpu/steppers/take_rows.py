"""Rows that are held as objects, and how they are dropped, moved and copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, Self, TypeVar


class Held(Protocol):
    """What a row holds."""

    def copy_from(self, other: Self) -> None: ...


Row = TypeVar("Row", bound=Held)


def taken(held: Sequence[Row], rows: Sequence[int], new: Callable[[], Row]) -> list[Row]:
    """Row b goes on from where row rows[b] stood; only what is wanted twice is copied, to rows that go if there are."""
    wanted = set(rows)
    free = [row for n, row in enumerate(held) if n not in wanted]
    found: list[Row] = []
    for n in rows:
        if n in wanted:
            wanted.remove(n)
            found.append(held[n])
            continue
        copy = free.pop() if free else new()
        copy.copy_from(held[n])
        found.append(copy)
    return found
