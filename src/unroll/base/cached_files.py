"""Files in the cache: checked before any of them is used, made anew when wrong, done without where none can be written.

What stands in a cache may have been damaged, cut short, or put there by somebody else. So every file has a SHA-256
over all of it, here or in an index; what does not agree with it is as good as missing. Each process writes a temporary
file of its own and renames it: twenty that make the same file do not meet.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from unroll.base import atomic_files, untrusted
from unroll.base.errors import SaveError

DIGEST = 32  # bytes of a SHA-256, where it stands before the content of its file
PIECE = 1 << 20  # numbers checked at a time
REMEDY = "The environment variable UNROLL_CACHE names another folder for the cache."
_PROCESS = r"(\.[0-9]+)?"  # older versions marked a temporary file with a process's number alone


def keep(path: Path, pieces: Iterable[Any], ours: str) -> None:
    """Write a file of the cache: whole, or not at all, which is a SaveError.

    Temporary files that killed processes left of files whose names match the pattern `ours` are removed.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SaveError(f"Could not save {path}: {error.strerror or error}.") from None
    known = re.compile(ours + _PROCESS)
    atomic_files.clear_partials(path.parent, lambda name: known.fullmatch(name) is not None)
    atomic_files.write_pieces(path, pieces)


def content(path: Path, at_most: int) -> bytes | None:
    """What stands behind the digest in a file; None where it is missing or damaged."""
    try:
        found = untrusted.read(path, at_most + DIGEST)
    except OSError:
        return None
    return found[DIGEST:] if hashlib.sha256(found[DIGEST:]).digest() == found[:DIGEST] else None


def numbers(
    path: Path, dtype: DTypeLike, count: int, below: int, sha256: bytes | None = None
) -> NDArray[np.integer[Any]] | None:
    """So many numbers from 0 to `below`, mapped into memory; None where the file does not hold exactly those.

    Their digest stands before them, unless the caller knows it.
    """
    offset = DIGEST if sha256 is None else 0
    size = offset + count * np.dtype(dtype).itemsize
    try:
        with untrusted.open_file(path, size) as file:
            if os.fstat(file.fileno()).st_size != size:
                return None
            stated = file.read(DIGEST) if sha256 is None else sha256
            # Mapped copy-on-write: torch wants memory that could be written, and nobody writes.
            found: NDArray[np.integer[Any]] = np.memmap(file, dtype, "c", offset, (count,))
    except (OSError, ValueError):
        return None
    hashed = hashlib.sha256()
    for begin in range(0, count, PIECE):
        part = found[begin : begin + PIECE]
        hashed.update(part.data)
        if part.min() < 0 or part.max() >= below:
            return None
    return found if hashed.digest() == stated else None
