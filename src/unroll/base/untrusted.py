"""Reads files that a stranger may have made, in a run's folder, a sweep's or the cache.

Only regular files are opened, never through a link, and none that is larger than its kind can be. Limits are checked
before the content is parsed. A refusal is an OSError or a ValueError whose text suits a message; the caller turns it
into one of Unroll's errors.

This guards against a folder that somebody sent, not against a program that changes the folder at the same moment.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

KILOBYTE, MEGABYTE = 1 << 10, 1 << 20
LONGEST_LINE = 1 << 14  # characters of a TOML document's line
PIECE = 1 << 16  # bytes of a file that are read at once
ITEMS = 1 << 17  # values in one JSON document, unless the caller knows better
SEAL = "sha256"  # the key under which a JSON document carries a digest of the rest of itself
# Windows has neither flag: there a link is noticed before it is opened, and folders hold no named pipes.
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
_BINARY = getattr(os, "O_BINARY", 0)
FOLLOWING = _NO_WAIT | _BINARY | getattr(os, "O_CLOEXEC", 0)
CAREFULLY = _NO_LINK | FOLLOWING


def present(path: Path) -> bool:
    """Whether anything has this name, even a link that leads nowhere."""
    return os.path.lexists(path)


def require_regular(path: Path) -> os.stat_result:
    """The status of a regular file; an OSError if the name is anything else's, or nothing's."""
    status = os.lstat(path)
    wrong = unlike_file(status.st_mode)
    if wrong:
        raise OSError(errno.EINVAL, f"it is {wrong}, not a regular file")
    return status


def unlike_file(mode: int) -> str | None:
    """The kind of a file that is not regular, in words; None for a regular file."""
    kinds = {
        "a link": stat.S_ISLNK,
        "a folder": stat.S_ISDIR,
        "a named pipe": stat.S_ISFIFO,
        "a socket": stat.S_ISSOCK,
    }
    if stat.S_ISREG(mode):
        return None
    return next((words for words, holds in kinds.items() if holds(mode)), "a device")


def refuse_link(path: Path) -> None:
    """An OSError for a link, before it is opened by a system that can only follow it."""
    if not _NO_LINK and os.path.islink(path):
        raise OSError(errno.ELOOP, "it is a link, not a regular file")


def is_regular(path: Path) -> bool:
    """Whether this is a regular file and no link."""
    try:
        require_regular(path)
    except OSError:
        return False
    return True


def is_folder(path: Path) -> bool:
    """Whether this is a folder and no link."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def open_file(path: Path, at_most: int | None = None) -> BinaryIO:
    """Open a regular file for reading; an OSError if it is not regular, or has more than `at_most` bytes."""
    require_regular(path)  # before it is opened, since opening a device can be an action
    handle = os.open(path, os.O_RDONLY | CAREFULLY)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if at_most is not None and status.st_size > at_most:
            raise OSError(errno.EFBIG, f"it has {status.st_size:,} bytes, and at most {at_most:,} are read")
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def up_to(file: BinaryIO, at_most: int) -> bytes:
    """The next bytes of a file, at most this many. `file.read(n)` takes memory for n bytes, however few there are."""
    pieces: list[bytes] = []
    while at_most and (piece := file.read(min(at_most, PIECE))):
        pieces.append(piece)
        at_most -= len(piece)
    return b"".join(pieces)


def read(path: Path, at_most: int) -> bytes:
    """Read a regular file whole; an OSError if it has more than `at_most` bytes."""
    with open_file(path, at_most) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(size + 1)  # at once: pieces that are joined take twice the memory
        if len(content) > size:
            content += up_to(file, at_most + 1 - len(content))
    if len(content) > at_most:  # it grew
        raise OSError(errno.EFBIG, f"it has more than {at_most:,} bytes")
    return content


def parse_json(content: bytes | str, items: int = ITEMS) -> Any:
    """Parse a JSON value; a ValueError if it is none, too deep, or has more than `items` items."""
    comma = b"," if isinstance(content, bytes) else ","
    if content.count(comma) > items:  # type: ignore[arg-type]
        raise ValueError(f"it holds more than {items:,} values")
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a TOML document; a ValueError if it is none, too deep or too long."""
    # The parser's time grows with the square of the number of a key's parts, and a key fits on one line.
    if len(max(text.split("\n"), key=len)) > LONGEST_LINE:
        raise ValueError(f"it has a line of more than {LONGEST_LINE:,} characters")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def digest(content: Any) -> str:
    """A hash of a JSON value that does not depend on its formatting; a ValueError if it is too deep."""
    try:
        text = json.dumps(content, sort_keys=True)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return hashlib.sha256(text.encode()).hexdigest()


def sealed(content: Mapping[str, Any], apart: tuple[str, ...] = ()) -> dict[str, Any]:
    """A JSON object with a digest of itself, without the entries `apart`: equal runs differ in their clocks."""
    return {**content, SEAL: digest({name: value for name, value in content.items() if name not in apart})}


def unsealed(content: Any, apart: tuple[str, ...] = ()) -> dict[str, Any]:
    """The object without its digest. A digest must be right if there is one; older versions wrote none."""
    if not isinstance(content, dict):
        raise ValueError("it must be a JSON object")
    bare = {name: value for name, value in content.items() if name != SEAL}
    if SEAL in content and sealed(bare, apart)[SEAL] != content[SEAL]:
        raise ValueError(f"its {SEAL} is not that of what it says; if you changed it on purpose, delete that entry")
    return bare
