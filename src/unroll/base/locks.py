"""Locks a folder, so that two processes never work in it at once. The system unlocks it when the process ends."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unroll.base.errors import RunError


@contextmanager
def hold(folder: Path, missing: str, busy: str) -> Iterator[None]:
    """Lock a folder, or raise a RunError with the caller's words for the reason."""
    try:
        import fcntl
    except ImportError:  # this platform has no such locks
        yield
        return
    try:
        # The name may be a pipe's; opening it must not wait.
        handle = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise RunError(f"{folder} cannot be held: {error}.") from None
        raise RunError(missing) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise RunError(busy) from None
    try:
        yield
    finally:
        os.close(handle)
