"""Plain files in a folder that others may have filled: nothing special is opened, and no link is written through."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from unroll.base.untrusted import CAREFULLY, FOLLOWING, unlike_file


def size(path: Path) -> int | None:
    """How many bytes a plain file of ours has; None for anything else: nothing, a link, a folder, a FIFO, a device."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    # Under a second name it may be anybody's file.
    return found.st_size if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 else None


def open_to_read(path: Path) -> BinaryIO:
    """A plain file, also through a link: a data set may lie on another disk."""
    _require_plain(path, os.stat(path))  # before it is opened, which some devices notice
    return _checked(path, os.open(path, os.O_RDONLY | FOLLOWING), "rb")


def open_new(path: Path) -> BinaryIO:
    """A file that is not there yet."""
    return _checked(path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CAREFULLY, 0o666), "wb")


def open_to_append(path: Path) -> BinaryIO:
    """A file that is there; what is written comes after what it holds."""
    _require_plain(path, os.lstat(path))
    return _checked(path, os.open(path, os.O_WRONLY | os.O_APPEND | CAREFULLY), "ab")


def open_to_hold(path: Path) -> BinaryIO:
    """A file that is only there to be locked, made if it is not there. What it holds stays."""
    if os.path.lexists(path):
        _require_plain(path, os.lstat(path))
    return _checked(path, os.open(path, os.O_RDWR | os.O_CREAT | CAREFULLY, 0o666), "rb+")


def read(path: Path, at_most: int) -> bytes:
    """A small file whole; an OSError if it is larger."""
    with open_to_read(path) as file:
        content = file.read(at_most + 1)
    if len(content) > at_most:
        raise OSError(errno.EFBIG, f"it has more than {at_most:,} bytes", str(path))
    return content


def _checked(path: Path, handle: int, mode: str) -> BinaryIO:
    """The open file, if it is what its name was just before."""
    try:
        _require_plain(path, os.fstat(handle))
        return os.fdopen(handle, mode)  # type: ignore[return-value]
    except BaseException:
        os.close(handle)
        raise


def _require_plain(path: Path, found: os.stat_result) -> None:
    if wrong := unlike_file(found.st_mode):
        raise OSError(errno.EINVAL, f"it is {wrong} and no plain file; delete it", str(path))
