"""Memory that outlives a batch.

What a batch computes is needed until its way back has passed, and then no more: tens of megabytes. Given back to the
system and asked for again, they cost a page fault for every 4 kB: a quarter of a small training step. So tensors are
put into rooms that stay. A room is free again when the last tensor in it is gone, views included: each holds on to the
object behind its room, and Python counts how many do. (A replay holds the rooms of its step: see `cpu/replay.py`.)
"""

from __future__ import annotations

import math
import mmap
import os
import sys
import threading
from contextlib import suppress

import torch
from torch import Tensor

LARGE = 1 << 21  # bytes of a large page, where the system has such: fewer addresses to look up


def _new(size: int) -> mmap.mmap:
    # A process that forks shares nothing it writes to; Windows forks none.
    room = mmap.mmap(-1, size, access=mmap.ACCESS_COPY if hasattr(os, "fork") else mmap.ACCESS_WRITE)
    if size >= LARGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            room.madvise(mmap.MADV_HUGEPAGE)
    return room


def _holders(rooms: list[mmap.mmap]) -> list[int]:
    return [sys.getrefcount(room) for room in rooms]


NOBODY = _holders([_new(mmap.PAGESIZE)])[0]  # how many hold a room that only its list knows: Pythons differ


class _Rooms:
    """All that were made, by size; the size that was asked for last is the last."""

    def __init__(self) -> None:
        self._made: dict[int, list[mmap.mmap]] = {}
        self._most = 0  # bytes that were in use at once
        self._lock = threading.Lock()

    def room(self, size: int) -> mmap.mmap:
        """One of so many bytes that nobody is in."""
        with self._lock:
            made = self._made[size] = self._made.pop(size, [])
            for n, holders in enumerate(_holders(made)):
                if holders <= NOBODY:
                    return made[n]
            self._forget(size)
            made.append(_new(size))
            return made[-1]

    def _forget(self, size: int) -> None:
        """Before a new one is made: of the empty ones the longest unused, until they are no more than were in use."""
        empty = {
            n: [room for room, holders in zip(made, _holders(made), strict=True) if holders <= NOBODY]
            for n, made in self._made.items()
        }
        idle = sum(n * len(rooms) for n, rooms in empty.items())
        self._most = max(self._most, sum(n * len(made) for n, made in self._made.items()) - idle + size)
        for n, rooms in empty.items():
            while rooms and idle > self._most:
                self._made[n].remove(rooms.pop())
                idle -= n

    def give_back(self) -> None:
        """The empty ones to the system; what was in use before no longer says what will be."""
        with self._lock:
            for size, made in list(self._made.items()):
                taken = [room for room, holders in zip(made, _holders(made), strict=True) if holders > NOBODY]
                if taken:
                    self._made[size] = taken
                else:
                    del self._made[size]
            self._most = 0


_rooms = _Rooms()


def give_back() -> None:
    """Return memory that nobody uses to the system: what comes next may have other sizes, and need all there is."""
    _rooms.give_back()


def take(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor in memory that nobody else has; what is in it is left over."""
    elements = math.prod(shape)
    if not elements:
        return torch.empty(shape, dtype=dtype)
    pages = -(-elements * dtype.itemsize // mmap.PAGESIZE)
    return torch.frombuffer(_rooms.room(pages * mmap.PAGESIZE), dtype=dtype, count=elements).view(shape)
