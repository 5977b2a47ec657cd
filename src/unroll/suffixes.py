"""Every suffix of a text in lexicographic order, and with it the longest match of any other text, in pure NumPy.

Sorting doubles: suffixes that are ordered by their first h tokens are ordered by 2h once each tied one looks up where the
suffix h tokens further on stands. It begins with as many tokens as fit beside a position into 64 bits, and from then on
touches only what is still tied (Larsson and Sadakane), which in natural text is little. A key holds a group, a rank and a
place in one integer, so that a plain sort, several times as fast as an argsort, does all the work. The order is complete
whatever the text: one repeated symbol and two copies of a book only take more doublings.

Letters: n tokens of text, m tokens of a sample.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.integer[Any]]
Order = NDArray[np.int32]
Places = NDArray[np.int64]

LONGEST = 2**31 - 1  # tokens: places are kept in 32 bits
PIECE = 1 << 20  # suffixes sorted at a time: bounds the memory
FIRST_LOOK = 16  # tokens compared at first; most pairs of suffixes differ sooner
AT_ONCE = 1 << 18  # tokens compared in one go


def suffix_array(ids: Ids) -> Order:
    """The places at which the suffixes of a text begin, in the order of the suffixes.

    >>> text = "abracadabra"
    >>> [text[place:] for place in suffix_array(np.frombuffer(text.encode(), np.uint8))][:5]
    ['a', 'abra', 'abracadabra', 'acadabra', 'adabra']
    """
    n = len(ids)
    if n > LONGEST:
        raise ValueError(f"A text must have at most {LONGEST:,} tokens to be sorted. Got {n:,}.")
    if n == 0:
        return np.empty(0, np.int32)
    keys, place_bits, known = _first_keys(ids)
    keys.sort()
    order = np.empty(n, np.int32)
    heads = np.ones(n + 1, bool)  # whether a group of suffixes that are still tied (often of one) begins here
    for a in range(0, n, PIECE):
        part = keys[a : a + PIECE]
        order[a : a + PIECE] = part & np.uint64((1 << place_bits) - 1)
        heads[a + 1 : a + len(part)] = np.diff(part >> np.uint64(place_bits)) != 0
        if a:
            heads[a] = keys[a - 1] >> np.uint64(place_bits) != part[0] >> np.uint64(place_bits)
    del keys
    # A suffix's rank is where its group begins, from 1; past the end of the text stands 0, before every other.
    ranks = np.zeros(n + 1, np.int32)
    for a, b in _pieces(heads, PIECE):
        ranks[order[a:b]] = 1 + a + np.maximum.accumulate(np.where(heads[a:b], np.arange(b - a), 0))
    while _split_ties(order, ranks, heads, known):
        known *= 2
    return order


def _first_keys(ids: Ids) -> tuple[NDArray[np.uint64], int, int]:
    """For each suffix its first tokens and, in the low bits, its place; the bits of a place, and how many tokens."""
    n = len(ids)
    place_bits = (n - 1).bit_length()
    low, high = int(ids.min()), int(ids.max())
    if (high - low + 1).bit_length() > 64 - place_bits:
        ids = np.unique(ids, return_inverse=True)[1]
        low, high = 0, int(ids.max())
    bits = (high - low + 1).bit_length()  # of a token, counted from 1: 0 is the end
    known = (64 - place_bits) // bits
    keys = np.zeros(n, np.uint64)
    for a in range(0, n, PIECE):
        part = keys[a : a + PIECE]
        for j in range(known):
            tokens = ids[a + j : a + j + len(part)]
            part <<= np.uint64(bits)
            part[: len(tokens)] |= (tokens.astype(np.int64) - (low - 1)).astype(np.uint64)
        part <<= np.uint64(place_bits)
        part |= np.arange(a, a + len(part), dtype=np.uint64)
    return keys, place_bits, known


def _pieces(heads: NDArray[np.bool_], most: int) -> list[tuple[int, int]]:
    """The order cut where groups begin, into pieces of at most `most` suffixes, or of a single group."""
    n, cuts = len(heads) - 1, [0]
    while cuts[-1] < n:
        a = cuts[-1]
        inside = np.flatnonzero(heads[a + 1 : a + most + 1])
        cuts.append(a + 1 + (int(inside[-1]) if len(inside) else most + int(heads[a + most + 1 :].argmax())))
    return list(zip(cuts, cuts[1:], strict=False))


def _split_ties(order: Order, ranks: NDArray[np.int32], heads: NDArray[np.bool_], known: int) -> bool:
    """Order what is tied over its first `known` tokens by twice as many, in place; whether anything was tied."""
    n = len(order)
    rank_bits = n.bit_length()
    # Ranks that this very round has already refined are as true as the old ones, so pieces need not wait for each other.
    any_tied = False
    for a, b in _pieces(heads, min(PIECE, 1 << (64 - rank_bits) // 2)):
        tied = np.flatnonzero(~(heads[a:b] & heads[a + 1 : b + 1]))
        if not len(tied):
            continue
        any_tied = True
        tied += a
        places = order[tied]
        place_bits = (len(tied) - 1).bit_length()
        keys = np.cumsum(heads[tied]).astype(np.uint64) - np.uint64(1)
        keys <<= np.uint64(rank_bits)
        keys |= ranks[np.minimum(places.astype(np.int64) + known, n)].astype(np.uint64)
        keys <<= np.uint64(place_bits)
        keys |= np.arange(len(tied), dtype=np.uint64)
        keys.sort()
        places = places[keys & np.uint64((1 << place_bits) - 1)]
        order[tied] = places
        keys >>= np.uint64(place_bits)
        begins = np.ones(len(tied), bool)
        np.not_equal(keys[1:], keys[:-1], out=begins[1:])
        heads[tied] = begins
        ranks[places] = 1 + np.maximum.accumulate(np.where(begins, tied, 0))
    return any_tied
