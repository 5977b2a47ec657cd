"""Characters without their case: Tea and tea are one word."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unroll.corpus.tokens import chars


def counts(pieces: Iterable[str]) -> dict[str, int]:
    """How often each small character occurs."""
    return chars.counts(map(_small, pieces))


def encode(pieces: Iterable[str], symbols: Sequence[str]) -> Iterator[NDArray[np.integer[Any]]]:
    """Ids of the small characters."""
    return chars.encode(map(_small, pieces), symbols)


def decode(ids: NDArray[np.integer[Any]], symbols: Sequence[str]) -> str:
    """The small characters, end to end."""
    return chars.decode(ids, symbols)


def _small(text: str) -> str:
    """One by one: what a capital becomes must not depend on where a stream is cut."""
    return "".join(character.lower() for character in text)
