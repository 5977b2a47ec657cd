"""What kinds share whose symbols are longer than a character: streams cut between tokens, counting and looking up."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from unroll.base.errors import SymbolError
from unroll.corpus.tokens import UNKNOWN, unknown_symbols


def split(pieces: Iterable[str], pattern: re.Pattern[str], between: str = " ") -> Iterator[list[str]]:
    """The tokens of each piece; what may go on in the next piece waits for it. `between` stands between two tokens."""
    waiting: list[str] = []
    for piece in pieces:
        # No token goes on past what stands between two, or past a line's end: it is safe to cut there.
        cut = max(piece.rfind(between), piece.rfind("\n"))
        if cut < 0:  # put together only where it ends: a token may be longer than many pieces
            waiting.append(piece)
            continue
        whole = "".join((*waiting, piece[:cut]))
        waiting = [piece[cut:]]
        if whole:
            yield pattern.findall(whole)
    if waiting:
        yield pattern.findall("".join(waiting))


def count(lists: Iterable[Sequence[str]]) -> Counter[str]:
    """How often each symbol occurs."""
    counts: Counter[str] = Counter()
    for tokens in lists:
        counts.update(tokens)
    return counts


def look_up(lists: Iterable[Sequence[str]], symbols: Sequence[str]) -> Iterator[NDArray[np.int32]]:
    """The ids of each list; symbols that are not known are the unknown one, or an error that names them."""
    ids = {symbol: i for i, symbol in enumerate(symbols)}
    unknown = ids.get(UNKNOWN, -1)
    before = 0
    for tokens in lists:
        looked_up = np.fromiter((ids.get(token, unknown) for token in tokens), np.int32, len(tokens))
        if len(looked_up) and looked_up.min() < 0:
            positions = {tokens[i]: before + int(i) for i in np.flatnonzero(looked_up < 0)[::-1]}
            raise SymbolError(unknown_symbols(positions))
        before += len(tokens)
        yield looked_up
