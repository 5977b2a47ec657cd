"""Bytes: one token a byte, whatever the file is. A symbol is the byte's two hexadecimal digits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unroll.base.errors import SymbolError
from unroll.corpus.tokens import UNKNOWN, unknown_symbols

READS_BYTES = True


def counts(pieces: Iterable[bytes]) -> dict[str, int]:
    """How often each byte occurs."""
    total = np.zeros(256, np.int64)
    for piece in pieces:
        total += np.bincount(np.frombuffer(piece, np.uint8), minlength=256)
    return {f"{byte:02x}": int(total[byte]) for byte in np.flatnonzero(total)}


def encode(pieces: Iterable[bytes], symbols: Sequence[str]) -> Iterator[NDArray[np.int32]]:
    """Ids by one look-up in a table of 256."""
    table = np.full(256, symbols.index(UNKNOWN) if UNKNOWN in symbols else -1, np.int32)
    for i, symbol in enumerate(symbols):
        if symbol != UNKNOWN:
            table[int(symbol, 16)] = i
    before = 0
    for piece in pieces:
        ids = table[np.frombuffer(piece, np.uint8)]
        if len(ids) and ids.min() < 0:
            unknown = np.flatnonzero(ids < 0)[::-1]
            raise SymbolError(unknown_symbols({f"{piece[i]:02x}": before + int(i) for i in unknown}))
        before += len(ids)
        yield ids


def render(ids: NDArray[np.integer[Any]], symbols: Sequence[str]) -> bytes:
    """The bytes themselves; an unknown one is a question mark."""
    return b"".join(b"?" if symbols[i] == UNKNOWN else bytes.fromhex(symbols[i]) for i in ids)


def decode(ids: NDArray[np.integer[Any]], symbols: Sequence[str]) -> str:
    """The bytes as UTF-8, as far as they are; bytes that are not become lone surrogates, so that nothing is lost."""
    return render(ids, symbols).decode("utf-8", "surrogateescape")
