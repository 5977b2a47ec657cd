"""Every suffix of a text in lexicographic order, and the longest match of any other text in it, in pure NumPy.

The sort doubles. Suffixes that are ordered by their first h tokens are ordered by 2h once each tied one looks up the
rank of the suffix h tokens further on. The sort begins with as many tokens as fit beside a position into 64 bits, and
from then on touches only what is still tied (Larsson and Sadakane), which in natural text is little. A key holds a
group, a rank and a position in one integer, so that a plain sort does all the work, at two to six times the speed of an
argsort. The order is complete for every text: one repeated symbol and two copies of a book only take more doublings.

Letters: n tokens of text, m tokens of a sample.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unroll.base.errors import CorpusError

Ids = NDArray[np.integer[Any]]
Order = NDArray[np.int32]
Positions = NDArray[np.int64]

LONGEST = 2**31 - 1  # tokens: positions are kept in 32 bits
PIECE = 1 << 20  # suffixes sorted at a time: bounds the memory
FIRST_LOOK = 16  # tokens compared at first; most pairs of suffixes differ sooner
AT_ONCE = 1 << 18  # tokens compared in one go


def suffix_array(ids: Ids) -> Order:
    """The positions at which the suffixes of a text begin, in the order of the suffixes.

    >>> text = "abracadabra"
    >>> [text[position:] for position in suffix_array(np.frombuffer(text.encode(), np.uint8))][:5]
    ['a', 'abra', 'abracadabra', 'acadabra', 'adabra']
    """
    n = len(ids)
    if n > LONGEST:
        raise CorpusError(f"A text must have at most {LONGEST:,} tokens to be sorted. Got {n:,}.")
    if n == 0:
        return np.empty(0, np.int32)
    keys, position_bits, known = _first_keys(ids)
    keys.sort()
    order = np.empty(n, np.int32)
    heads = np.ones(n + 1, bool)  # whether a group begins here of suffixes that are still tied; many groups have one
    for a in range(0, n, PIECE):
        part = keys[a : a + PIECE]
        order[a : a + PIECE] = part & np.uint64((1 << position_bits) - 1)
        heads[a + 1 : a + len(part)] = np.diff(part >> np.uint64(position_bits)) != 0
        if a:
            heads[a] = keys[a - 1] >> np.uint64(position_bits) != part[0] >> np.uint64(position_bits)
    del keys
    # A suffix's rank is the start of its group, counted from 1; past the end of the text it is 0, before all others.
    ranks = np.zeros(n + 1, np.int32)
    for a, b in _pieces(heads, PIECE):
        ranks[order[a:b]] = 1 + a + np.maximum.accumulate(np.where(heads[a:b], np.arange(b - a), 0))
    while _split_ties(order, ranks, heads, known):
        known *= 2
    return order


def _first_keys(ids: Ids) -> tuple[NDArray[np.uint64], int, int]:
    """A key for each suffix: its first tokens, then its position; the bits of a position, and the number of tokens."""
    n = len(ids)
    position_bits = (n - 1).bit_length()
    low = int(ids.min())
    high = int(ids.max())
    if (high - low + 1).bit_length() > 64 - position_bits:
        ids = np.unique(ids, return_inverse=True)[1]
        low = 0
        high = int(ids.max())
    bits = (high - low + 1).bit_length()  # of a token, counted from 1: 0 is the end
    known = (64 - position_bits) // bits
    keys = np.zeros(n, np.uint64)
    for a in range(0, n, PIECE):
        part = keys[a : a + PIECE]
        for j in range(known):
            tokens = ids[a + j : a + j + len(part)]
            part <<= np.uint64(bits)
            part[: len(tokens)] |= (tokens.astype(np.int64) - low).astype(np.uint64) + np.uint64(1)
        part <<= np.uint64(position_bits)
        part |= np.arange(a, a + len(part), dtype=np.uint64)
    return keys, position_bits, known


def _pieces(heads: NDArray[np.bool_], most: int) -> list[tuple[int, int]]:
    """Cut the order where groups begin, into pieces of at most `most` suffixes, or of a single group."""
    n = len(heads) - 1
    cuts = [0]
    while cuts[-1] < n:
        a = cuts[-1]
        inside = np.flatnonzero(heads[a + 1 : a + most + 1])
        cuts.append(a + 1 + (int(inside[-1]) if len(inside) else most + int(heads[a + most + 1 :].argmax())))
    return list(pairwise(cuts))


def _split_ties(order: Order, ranks: NDArray[np.int32], heads: NDArray[np.bool_], known: int) -> bool:
    """Order what is tied over its first `known` tokens by twice as many, in place; whether anything was tied."""
    n = len(order)
    rank_bits = n.bit_length()
    any_tied = False
    # Ranks that this round has refined are as true as the old ones, so pieces need not wait for each other.
    for a, b in _pieces(heads, min(PIECE, 1 << (64 - rank_bits) // 2)):
        tied = np.flatnonzero(~(heads[a:b] & heads[a + 1 : b + 1]))
        if not len(tied):
            continue
        any_tied = True
        tied += a
        positions = order[tied]
        position_bits = (len(tied) - 1).bit_length()
        keys = np.cumsum(heads[tied]).astype(np.uint64) - np.uint64(1)
        keys <<= np.uint64(rank_bits)
        keys |= ranks[np.minimum(positions.astype(np.int64) + known, n)].astype(np.uint64)
        keys <<= np.uint64(position_bits)
        keys |= np.arange(len(tied), dtype=np.uint64)
        keys.sort()
        positions = positions[keys & np.uint64((1 << position_bits) - 1)]
        order[tied] = positions
        keys >>= np.uint64(position_bits)
        begins = np.ones(len(tied), bool)
        np.not_equal(keys[1:], keys[:-1], out=begins[1:])
        heads[tied] = begins
        ranks[positions] = 1 + np.maximum.accumulate(np.where(begins, tied, 0))
    return any_tied


def longest_matches(text: Ids, order: Order, sample: Ids) -> Positions:
    """For each token of a sample, the length of the longest stretch that begins there and stands in the text."""
    m = len(sample)
    if not m or not len(text):
        return np.zeros(m, np.int64)
    # As a position moves on, the end of its longest match never moves back: between two positions whose matches end
    # together, every match ends there too. So a copied page costs a few searches, not one for each of its tokens.
    ends = np.full(m, m)
    ends[:1] = _search(text, order, sample, np.zeros(1, np.int64))[1]
    for stride in (1 << level for level in reversed(range((m - 1).bit_length()))):
        at = np.arange(stride, m, 2 * stride)
        before = ends[at - stride]
        after = np.where(at + stride < m, ends[np.minimum(at + stride, m - 1)], m)
        ends[at] = before
        at = at[before != after]
        ends[at] = at + _search(text, order, sample, at)[1]
    return ends - np.arange(m)


def occurrences(text: Ids, order: Order, stretch: Ids) -> Order:
    """Every position at which a stretch stands in the text, in no order."""
    at = np.zeros(1, np.int64)
    first = _search(text, order, stretch, at)[0]
    last = _search(text, order, stretch, at, past_equal=True)[0]
    return np.asarray(order[int(first[0]) : int(last[0])])


def _search(
    text: Ids, order: Order, sample: Ids, at: Positions, past_equal: bool = False
) -> tuple[Positions, Positions]:
    """Where each suffix of the sample would stand in the order, and its longest match with any suffix of the text.

    The suffixes on either side of that point match longest, and a binary search has looked at both.
    """
    low = np.zeros_like(at)
    high = np.full_like(at, len(order))
    longest = np.zeros_like(at)
    while True:
        open_ = np.flatnonzero(low < high)
        if not len(open_):
            return low, longest
        middle = (low[open_] + high[open_]) // 2
        positions = order[middle].astype(np.int64)
        starts = at[open_]
        shared = _shared(text, positions, sample, starts)
        longest[open_] = np.maximum(longest[open_], shared)
        text_ends = positions + shared == len(text)
        sample_ends = starts + shared == len(sample)
        next_text = text[np.minimum(positions + shared, len(text) - 1)]
        next_sample = sample[np.minimum(starts + shared, len(sample) - 1)]
        smaller = np.where(sample_ends, past_equal, text_ends | (next_text < next_sample))
        low[open_] = np.where(smaller, middle + 1, low[open_])
        high[open_] = np.where(smaller, high[open_], middle)


def _shared(text: Ids, positions: Positions, sample: Ids, starts: Positions) -> Positions:
    """How many tokens each pair of suffixes shares, compared in stretches that double."""
    limits = np.minimum(len(text) - positions, len(sample) - starts)
    shared = np.zeros_like(positions)
    going = np.arange(len(positions))
    width = FIRST_LOOK
    while len(going):
        offsets = shared[going, None] + np.arange(width)
        ours = text[np.minimum(positions[going, None] + offsets, len(text) - 1)]
        theirs = sample[np.minimum(starts[going, None] + offsets, len(sample) - 1)]
        differ = (ours != theirs) | (offsets >= limits[going, None])
        run = np.where(differ.any(1), differ.argmax(1), width)
        shared[going] += run
        going = going[run == width]
        width = min(2 * width, max(FIRST_LOOK, AT_ONCE // max(1, len(going))))
    return shared
