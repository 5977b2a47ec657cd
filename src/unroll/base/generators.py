"""Closes unfinished generators before the program ends.

A loop that breaks closes its generator at once. A generator with a name lives until the program ends, when half of what
it needs for saving is gone. So each is closed just before that.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Generator
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakSet

T = TypeVar("T")

_open: WeakSet[Generator[Any, None, None]] = WeakSet()


def closed_at_exit(generator: Generator[T, None, None]) -> Generator[T, None, None]:
    """The same generator; it is closed before the program ends, if it is unfinished then."""
    _open.add(generator)
    return generator


@atexit.register
def _close_all() -> None:
    for generator in list(_open):
        with suppress(ValueError):  # another thread is at work in it
            generator.close()


# After a fork, the parent closes the generators that it began.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_open.clear)
