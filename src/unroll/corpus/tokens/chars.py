"""Characters: one token a Unicode code point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unroll.base.errors import SymbolError
from unroll.corpus.tokens import UNKNOWN, smallest_type, unknown_symbols

CODES = 0x110000
SHORT = 1_000  # characters


def counts(pieces: Iterable[str]) -> dict[str, int]:
    """How often each character occurs."""
    total = np.zeros(0, np.int64)  # as far as the highest code so far: most texts need few of all there are
    few: Counter[str] = Counter()  # of short pieces, for which a table of codes would be far too long
    for piece in pieces:
        if len(piece) < SHORT:
            few.update(piece)
            continue
        counts_here = np.bincount(_codes(piece), minlength=len(total))
        counts_here[: len(total)] += total
        total = counts_here
    few.update({chr(code): int(total[code]) for code in np.flatnonzero(total)})
    return dict(sorted(few.items()))


def encode(pieces: Iterable[str], symbols: Sequence[str]) -> Iterator[NDArray[np.integer[Any]]]:
    """Ids by one look-up in a table over code points."""
    unknown = symbols.index(UNKNOWN) if UNKNOWN in symbols else len(symbols)
    table = np.full(CODES, unknown, smallest_type(len(symbols) + 1))
    table[[ord(symbol) for symbol in symbols]] = np.arange(len(symbols))
    before = 0
    for piece in pieces:
        ids = table[_codes(piece)]
        if len(ids) and ids.max() == len(symbols):
            positions = np.flatnonzero(ids == len(symbols))[::-1]
            raise SymbolError(unknown_symbols({piece[i]: before + int(i) for i in positions}))
        before += len(ids)
        yield ids


def decode(ids: NDArray[np.integer[Any]], symbols: Sequence[str]) -> str:
    """The characters, end to end."""
    return "".join(symbols[i] for i in ids)


def _codes(text: str) -> NDArray[np.unsignedinteger[Any]]:
    if text.isascii():
        return np.frombuffer(text.encode(), np.uint8)
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
