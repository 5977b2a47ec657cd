"""Characters: one token a Unicode code point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unroll.errors import SymbolError
from unroll.tokens import UNKNOWN


def counts(text: str) -> dict[str, int]:
    """How often each character occurs."""
    different, times = np.unique(_codes(text), return_counts=True)
    return {chr(code): int(n) for code, n in zip(different, times, strict=True)}


def encode(text: str, symbols: Sequence[str]) -> NDArray[np.int32]:
    """Ids by one look-up in a table over code points."""
    codes = _codes(text)
    table = np.full(0x110000, symbols.index(UNKNOWN) if UNKNOWN in symbols else -1, np.int32)
    table[[ord(symbol) for symbol in symbols]] = np.arange(len(symbols), dtype=np.int32)
    ids = table[codes]
    if len(ids) and ids.min() < 0:
        raise SymbolError(_unknown(text, ids))
    return np.asarray(ids)


def decode(ids: NDArray[np.integer[Any]], symbols: Sequence[str]) -> str:
    """The characters, end to end."""
    return "".join(symbols[i] for i in ids)


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def _unknown(text: str, ids: NDArray[np.int32]) -> str:
    """Names the first few characters that were not seen in training, each with its first position."""
    named: dict[str, int] = {}
    for place in np.flatnonzero(ids < 0):
        named.setdefault(text[place], int(place))
    first = [f"{symbol!r} (U+{ord(symbol):04X}) at position {place}" for symbol, place in list(named.items())[:5]]
    more = f" and {len(named) - 5} more" if len(named) > 5 else ""
    advice = "Leave them out, or train on a corpus that has them."
    return f"Not in the vocabulary of this run: {', '.join(first)}{more}. {advice}"
