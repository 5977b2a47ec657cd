"""Words: a word with the space before it, a mark with the space before it, or a single white character.

The pieces lie end to end, so the text comes back as it was. Rare words: `--min-count`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unroll.corpus.tokens import _fields

PATTERN = re.compile(r" ?\w+| ?[^\w\s]|\s")


def counts(pieces: Iterable[str]) -> Counter[str]:
    """How often each word occurs."""
    return _fields.count(_fields.split(pieces, PATTERN))


def encode(pieces: Iterable[str], symbols: Sequence[str]) -> Iterator[NDArray[np.int32]]:
    """Ids by look-up."""
    return _fields.look_up(_fields.split(pieces, PATTERN), symbols)


def decode(ids: NDArray[np.integer[Any]], symbols: Sequence[str]) -> str:
    """The words, end to end."""
    return "".join(symbols[i] for i in ids)
