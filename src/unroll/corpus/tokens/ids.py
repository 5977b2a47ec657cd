"""Ids: one token a field between white space (playlists, event logs), and one a line end.

With a separator (`--separator ,`) the fields stand between those, and may hold spaces. Quotes mean nothing: a comma
inside them separates, too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unroll.corpus.tokens import _fields

WRITES_FIELDS = True
PATTERN = re.compile(r"[^\s]+|\n")


def counts(pieces: Iterable[str]) -> Counter[str]:
    """How often each field occurs."""
    return _fields.count(_fields.split(pieces, PATTERN))


def encode(pieces: Iterable[str], symbols: Sequence[str]) -> Iterator[NDArray[np.int32]]:
    """Ids by look-up."""
    return _fields.look_up(_fields.split(pieces, PATTERN), symbols)


def separated(separator: str) -> Separated:
    """The same kind for fields between separators; "tab" is one."""
    return Separated("\t" if separator == "tab" else separator)


class Separated:
    """Fields between separators, without the white space around them; empty ones are no tokens."""

    def __init__(self, separator: str) -> None:
        self.separator = separator
        self.pattern = re.compile(rf"[^{re.escape(separator)}\n]+|\n")

    def counts(self, pieces: Iterable[str]) -> Counter[str]:
        """How often each field occurs."""
        return _fields.count(self._lists(pieces))

    def encode(self, pieces: Iterable[str], symbols: Sequence[str]) -> Iterator[NDArray[np.int32]]:
        """Ids by look-up."""
        return _fields.look_up(self._lists(pieces), symbols)

    def decode(self, ids: NDArray[np.integer[Any]], symbols: Sequence[str]) -> str:
        """Fields with separators between them, lines as they were."""
        between = re.escape(self.separator)
        return re.sub(f"{between}?\n{between}?", "\n", self.separator.join(symbols[i] for i in ids))

    def _lists(self, pieces: Iterable[str]) -> Iterator[list[str]]:
        for fields in _fields.split(pieces, self.pattern, self.separator):
            bare = (field if field == "\n" else field.strip() for field in fields)
            yield [field for field in bare if field]


def decode(ids: NDArray[np.integer[Any]], symbols: Sequence[str]) -> str:
    """Fields with single spaces between them, lines as they were."""
    return re.sub(r" ?\n ?", "\n", " ".join(symbols[i] for i in ids))
