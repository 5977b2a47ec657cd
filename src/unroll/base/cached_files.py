"""Files in the cache. Each is checked before use and made again if it is damaged; work goes on if none can be written.

A file in a cache may have been damaged, cut short, or put there by somebody else. So every file has a SHA-256 over all
of it, in the file or in an index, and a file that does not match counts as missing. Each process writes its own
temporary file and renames it, so twenty processes that make the same file do not meet.
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

DIGEST = 32  # bytes of a SHA-256, which precedes the content of its file
PIECE = 1 << 20  # numbers checked at a time
REMEDY = "The environment variable UNROLL_CACHE names another folder for the cache."
_PROCESS = r"(\.[0-9]+)?"  # older versions marked a temporary file with a process's number alone


def keep(path: Path, pieces: Iterable[Any], ours: str) -> None:
    """Write a file of the cache whole, or raise a SaveError.

    Temporary files that killed processes left are removed, if they are of files whose names match the pattern `ours`.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SaveError(f"Could not save {path}: {error.strerror or error}.") from None
    known = re.compile(ours + _PROCESS)
    atomic_files.clear_partials(path.parent, lambda name: known.fullmatch(name) is not None)
    atomic_files.write_pieces(path, pieces)


def content(path: Path, at_most: int) -> bytes | None:
    """The content of a file, after its digest; None if the file is missing or damaged."""
    try:
        stored = untrusted.read(path, at_most + DIGEST)
    except OSError:
        return None
    return stored[DIGEST:] if hashlib.sha256(stored[DIGEST:]).digest() == stored[:DIGEST] else None


def numbers(
    path: Path, dtype: DTypeLike, count: int, below: int, sha256: bytes | None = None
) -> NDArray[np.integer[Any]] | None:
    """Map `count` numbers from 0 to `below` into memory; None if the file does not hold exactly those.

    Their digest precedes them, unless the caller knows it.
    """
    offset = DIGEST if sha256 is None else 0
    size = offset + count * np.dtype(dtype).itemsize
    try:
        with untrusted.open_file(path, size) as file:
            if os.fstat(file.fileno()).st_size != size:
                return None
            stated = file.read(DIGEST) if sha256 is None else sha256
            # Mapped copy-on-write: torch wants memory that can be written, although nothing writes to it.
            mapped: NDArray[np.integer[Any]] = np.memmap(file, dtype, "c", offset, (count,))
    except (OSError, ValueError):
        return None
    hashed = hashlib.sha256()
    for begin in range(0, count, PIECE):
        part = mapped[begin : begin + PIECE]
        hashed.update(part.data)
        if part.min() < 0 or part.max() >= below:
            return None
    return mapped if hashed.digest() == stated else None
