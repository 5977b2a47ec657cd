"""Memory that outlives a batch.

What a batch computes is needed until its way back has passed, and then no more: tens of megabytes. Given back to the
system and asked for again, they cost a page fault for every 4 kB: a quarter of a small training step. So tensors are
put into rooms that stay. A room is free again when the last tensor in it is gone, views included: each holds on to the
object behind its room, and Python counts how many do. (A replay holds the rooms of its step: see `cpu/replay.py`.)

A kernel may keep more than memory: `keep` has any object, with the views that it made of its memory, by a key.
"""

from __future__ import annotations

import math
import mmap
import os
import sys
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

Kept = TypeVar("Kept")

LARGE = 1 << 21  # bytes of a large page, if the system has large pages: fewer addresses to look up


def _new(size: int) -> mmap.mmap:
    # A process that forks shares nothing it writes to; Windows forks none.
    room = mmap.mmap(-1, size, access=mmap.ACCESS_COPY if hasattr(os, "fork") else mmap.ACCESS_WRITE)
    if size >= LARGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            room.madvise(mmap.MADV_HUGEPAGE)
    return room


def _holders(kept: list[Any]) -> list[int]:
    return [sys.getrefcount(one) for one in kept]


NOBODY = _holders([_new(mmap.PAGESIZE)])[0]  # how many hold an object that only its list knows: Pythons differ


class _Pool:
    """All that was made, by size and kind; what was asked for last stands last."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, Hashable], list[Any]] = {}
        self._most = 0  # bytes that were in use at once
        self._lock = threading.Lock()

    def bytes(self) -> int:
        """All that is kept, in use or not."""
        return sum(size * len(made) for (size, _), made in self._made.items())

    def one(self, size: int, kind: Hashable, make: Callable[[], Any]) -> Any:
        """One of this size and kind that nobody holds; made where there is none."""
        with self._lock:
            made = self._made[size, kind] = self._made.pop((size, kind), [])
            for n, holders in enumerate(_holders(made)):
                if holders <= NOBODY:
                    return made[n]
            self._forget(size)
            made.append(make())
            return made[-1]

    def _forget(self, size: int) -> None:
        """Before a new one is made, drop those unused the longest, until no more lie idle than were ever in use."""
        empty = {
            key: [one for one, holders in zip(made, _holders(made), strict=True) if holders <= NOBODY]
            for key, made in self._made.items()
        }
        idle = sum(key[0] * len(unused) for key, unused in empty.items())
        self._most = max(self._most, self.bytes() - idle + size)
        for key, unused in empty.items():
            while unused and idle > self._most:
                self._made[key].remove(unused.pop())
                idle -= key[0]

    def give_back(self) -> None:
        """Drop all that nobody holds; what was in use before no longer says what will be."""
        with self._lock:
            for key, made in list(self._made.items()):
                taken = [one for one, holders in zip(made, _holders(made), strict=True) if holders > NOBODY]
                if taken:
                    self._made[key] = taken
                else:
                    del self._made[key]
            self._most = 0


_pool = _Pool()


def give_back() -> None:
    """Return memory that nobody uses to the system: what comes next may have other sizes, and need all there is."""
    _pool.give_back()


def keep(size: int, kind: Hashable, make: Callable[[], Kept]) -> Kept:
    """An object of this size that nobody else has. The next batch may use it again when nobody holds it any more."""
    kept: Kept = _pool.one(size, kind, make)
    return kept


def take(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor in memory that nobody else has; what is in it is left over."""
    elements = math.prod(shape)
    if not elements:
        return torch.empty(shape, dtype=dtype)
    pages = -(-elements * dtype.itemsize // mmap.PAGESIZE)
    size = pages * mmap.PAGESIZE
    return torch.frombuffer(keep(size, None, partial(_new, size)), dtype=dtype, count=elements).view(shape)
