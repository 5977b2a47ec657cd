"""Ids: one token a field between white space (playlists, event logs), and one a line end."""

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


def decode(ids: NDArray[np.integer[Any]], symbols: Sequence[str]) -> str:
    """Fields with single spaces between them, lines as they were."""
    return re.sub(r" ?\n ?", "\n", " ".join(symbols[i] for i in ids))
