"""The files that a user named, or that lie in a folder the user named: in a fixed order, and only regular ones.

A corpus may lie behind links to files, unlike what stands in a run's folder (`base/untrusted.py`). Links to folders
are not followed, so nothing is walked in circles. A named pipe or a log of the kernel is never waited for, and a device
is not opened.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from unroll.base import untrusted

_FOLLOWING = untrusted.CAREFULLY & ~getattr(os, "O_NOFOLLOW", 0)


class TooManyNames(Exception):
    """A folder holds more names than may be looked at."""


@dataclass(frozen=True)
class Entry:
    """A file of a folder, or what a link of the folder leads to."""

    path: str
    name: str
    status: os.stat_result | None  # None where a link leads nowhere, or the system says nothing

    @property
    def regular(self) -> bool:
        """Whether it can be read at all."""
        return self.status is not None and stat.S_ISREG(self.status.st_mode)

    @property
    def size(self) -> int:
        """Bytes, as the system says."""
        return self.status.st_size if self.status else 0


def walk(
    folder: str,
    left_out: Callable[[str], bool] = lambda path: False,
    unlisted: Callable[[OSError], None] = lambda error: None,
    most: int | None = None,
) -> Iterator[Entry]:
    """The files of a folder, sorted, then those of its subfolders; hidden ones and what is `left_out` are not in it.

    A folder that cannot be listed is handed to `unlisted`. More than `most` names in all are TooManyNames.
    """
    waiting, names = [folder], 0
    while waiting:
        visible: list[os.DirEntry[str]] = []
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    names += 1
                    if most is not None and names > most:
                        raise TooManyNames
                    if not entry.name.startswith("."):
                        visible.append(entry)
        except OSError as error:
            unlisted(error)
            continue
        below = []
        for entry in sorted(visible, key=lambda entry: entry.name):
            if left_out(entry.path):
                continue
            if not _is_folder(entry):
                yield Entry(entry.path, entry.name, _status(entry))
            elif not entry.is_symlink():
                below.append(entry.path)
        waiting += reversed(below)


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """A regular file, or one behind a link, open to be read; an OSError where it is none."""
    _require_regular(os.stat(path))  # to open a device can be an action
    handle = os.open(path, os.O_RDONLY | _FOLLOWING)
    try:
        _require_regular(os.fstat(handle))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_piece(file: BinaryIO, size: int) -> bytes:
    """The next bytes of a file, b"" at its end; an OSError where they would have to be waited for."""
    piece: bytes | None = file.read(size)
    if piece is None:
        raise OSError(errno.EAGAIN, "what it holds would have to be waited for")
    return piece


def _require_regular(status: os.stat_result) -> None:
    wrong = untrusted.unlike_file(status.st_mode)
    if wrong:
        raise OSError(errno.EINVAL, f"it is {wrong}, not a regular file")


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link in a circle
        return False


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        status = entry.stat()
        # Windows says less of a file while it lists a folder than when it is asked for that file.
        return status if status.st_ino else os.stat(entry.path)
    except OSError:
        return None
