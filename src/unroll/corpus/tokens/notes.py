"""Notes: MIDI numbers separated by spaces, one piece a line; the end of a line is itself a token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from unroll.base.errors import CorpusError
from unroll.corpus.tokens import UNKNOWN, _fields
from unroll.corpus.tokens.ids import PATTERN
from unroll.corpus.tokens.ids import decode as decode

WRITES_FIELDS = True
EXAMPLE = "60 62 64 65\n67 65 64\n\n62 60 127\n"


def order(symbol: str) -> int:
    """Line end, then from low to high."""
    return int(symbol) if symbol.isdigit() else -1


def counts(pieces: Iterable[str]) -> Counter[str]:
    """How often each note occurs."""
    return _fields.count(_checked(_fields.split(pieces, PATTERN)))


def encode(pieces: Iterable[str], symbols: Sequence[str]) -> Iterator[NDArray[np.int32]]:
    """Ids by look-up."""
    return _fields.look_up(_checked(_fields.split(pieces, PATTERN)), symbols)


def _checked(lists: Iterable[list[str]]) -> Iterator[list[str]]:
    """Notes written one way only: 60, never 060; anything else is named with its position."""
    before = 0
    for tokens in lists:
        proper = {}
        for token in dict.fromkeys(tokens):  # in their order, so that the first that is wrong is named
            if token in ("\n", UNKNOWN):
                proper[token] = token
            elif token.isascii() and token.isdigit() and len(token) < 9 and int(token) <= 127:
                proper[token] = str(int(token))
            else:
                position = before + tokens.index(token)
                raise CorpusError(
                    f"Token {position} is {token[:40]!r}: a note is a number from 0 to 127. "
                    "For another text choose another --kind: chars, words, ids."
                )
        before += len(tokens)
        yield [proper[token] for token in tokens]
