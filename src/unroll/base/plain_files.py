"""Plain files in a folder that others may have filled. No special file is opened, and no link is written through."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from unroll.base.untrusted import CAREFULLY, FOLLOWING, unlike_file, up_to


def size(path: Path) -> int | None:
    """The bytes of a plain file; None for anything else: nothing, a link, a folder, a FIFO, a device."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    # A file with a second name may be somebody else's.
    return status.st_size if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 else None


def open_to_read(path: Path) -> BinaryIO:
    """Open a plain file for reading, also through a link: a data set may lie on another disk."""
    _require_plain(path, os.stat(path))  # before it is opened, since opening a device can be an action
    return _checked(path, os.open(path, os.O_RDONLY | FOLLOWING), "rb")


def open_new(path: Path) -> BinaryIO:
    """Make a file that does not exist yet, open for writing."""
    return _checked(path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CAREFULLY, 0o666), "wb")


def open_to_append(path: Path) -> BinaryIO:
    """Open an existing file for writing at its end."""
    _require_plain(path, os.lstat(path))
    return _checked(path, os.open(path, os.O_WRONLY | os.O_APPEND | CAREFULLY), "ab")


def open_existing(path: Path) -> BinaryIO:
    """Open an existing file for reading and writing. Its content stays."""
    _require_plain(path, os.lstat(path))
    return _checked(path, os.open(path, os.O_RDWR | CAREFULLY), "rb+")


def open_to_hold(path: Path) -> BinaryIO:
    """Open a file that only serves as a lock, and make it if it does not exist. Its content stays."""
    with suppress(FileNotFoundError):
        _require_plain(path, os.lstat(path))
    return _checked(path, os.open(path, os.O_RDWR | os.O_CREAT | CAREFULLY, 0o666), "rb+")


def read(path: Path, at_most: int) -> bytes:
    """Read a small file whole; an OSError if it has more than `at_most` bytes."""
    with open_to_read(path) as file:
        content = up_to(file, at_most + 1)
    if len(content) > at_most:
        raise OSError(errno.EFBIG, f"it has more than {at_most:,} bytes", str(path))
    return content


def _checked(path: Path, handle: int, mode: str) -> BinaryIO:
    """The open file, if it is still a plain one."""
    try:
        _require_plain(path, os.fstat(handle))
        return os.fdopen(handle, mode)  # type: ignore[return-value]
    except BaseException:
        os.close(handle)
        raise


def _require_plain(path: Path, status: os.stat_result) -> None:
    if wrong := unlike_file(status.st_mode):
        raise OSError(errno.EINVAL, f"it is {wrong} and no plain file; delete it", str(path))
