"""What kinds share whose symbols are longer than a character: streams cut between tokens, counting and looking up."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from unroll.base.errors import SymbolError
from unroll.corpus.tokens import UNKNOWN, unknown_symbols


def split(pieces: Iterable[str], pattern: re.Pattern[str]) -> Iterator[list[str]]:
    """The tokens of each piece; what may go on in the next piece waits for it."""
    waiting: list[str] = []
    for piece in pieces:
        # No token goes on past a whitespace character, which begins one: before the last of them it is safe to cut.
        cut = max(piece.rfind(" "), piece.rfind("\n"))
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
    ids = {symbol: place for place, symbol in enumerate(symbols)}
    unknown = ids.get(UNKNOWN, -1)
    before = 0
    for tokens in lists:
        found = np.fromiter((ids.get(token, unknown) for token in tokens), np.int32, len(tokens))
        if len(found) and found.min() < 0:
            places = {tokens[i]: before + int(i) for i in np.flatnonzero(found < 0)[::-1]}
            raise SymbolError(unknown_symbols(places))
        before += len(tokens)
        yield found
