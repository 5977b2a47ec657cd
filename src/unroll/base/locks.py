"""Locks a folder, so that two processes never work in it at once. The system unlocks it when the process ends.

POSIX systems lock the folder itself. Windows opens no folder: a file stands for it there, and lies elsewhere, because
what is in a folder says whether it is new.
"""

from __future__ import annotations

import errno
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from unroll.base import plain_files
from unroll.base.errors import RunError


@contextmanager
def hold(folder: Path, missing: str, busy: str) -> Iterator[None]:
    """Lock a folder, or raise a RunError with the caller's words for the reason."""
    stand_in = None if as_posix() else _stand_in(folder)
    try:
        # The name may be a pipe's; opening it must not wait.
        handle = (
            os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NONBLOCK", 0))
            if stand_in is None
            else _open_stand_in(folder, stand_in)
        )
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise RunError(f"{folder} cannot be held: {error}.") from None
        raise RunError(missing) from None
    if take(handle) is False:
        os.close(handle)
        raise RunError(busy) from None
    try:
        yield
    finally:
        os.close(handle)
        if stand_in is not None:
            with suppress(OSError):  # another process has opened it: Windows keeps it then
                stand_in.unlink()


def take(handle: int, wait: bool = False) -> bool | None:
    """Hold an open file until it is closed; False where another process holds it, None where nothing can be held."""
    if not as_posix():
        return _take_as_windows(handle, wait)
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def as_posix() -> bool:
    """Whether files and folders are locked as POSIX systems do."""
    try:
        import fcntl  # noqa: F401 (whether it is there)
    except ImportError:
        return False
    return True


def _take_as_windows(handle: int, wait: bool) -> bool | None:
    try:
        import msvcrt
    except ImportError:  # a system with neither
        return None
    while True:
        try:
            msvcrt.locking(handle, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
            return True
        except OSError:  # to wait is to ask ten times, once a second
            if not wait:
                return False


def _stand_in(folder: Path) -> Path:
    """The file that stands for a folder, whatever name leads to that."""
    known_as = os.path.normcase(os.path.realpath(folder))
    name = hashlib.sha256(known_as.encode("utf-8", "surrogatepass")).hexdigest()
    return Path(tempfile.gettempdir(), f"unroll-{name[:32]}.lock")


def _open_stand_in(folder: Path, stand_in: Path) -> int:
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    with plain_files.open_to_hold(stand_in) as file:
        return os.dup(file.fileno())
