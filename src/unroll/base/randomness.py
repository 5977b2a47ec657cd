"""Randomness as a pure function of (seed, purpose, batch, element): nothing to save, nothing to restore.

The generator is Philox-4x32-10 (Salmon et al., 2011): ten rounds of multiply and xor turn a counter and a key into
four 32-bit words. The key is the run's seed; the counter holds the element, the batch and the purpose. A run's draws
therefore never depend on which other runs train beside it, on when it was resumed, or on the device.

The rounds use only operators on 64-bit integers, so that one function serves NumPy arrays and torch tensors.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

WORD = 0xFFFFFFFF
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
KEY_STEPS = 0x9E3779B9, 0xBB67AE85
ROUNDS = 10
KEY_BITS = 53  # bits of a number in [0, 1)
# For a permutation: numbers that are sorted at once (at most twice as many), numbers that are dealt at once, and blocks
# that are drawn at once. All of these stay in a cache.
BUCKET, STRETCH, PIECE = 1 << 13, 1 << 18, 1 << 13

Order = NDArray[np.signedinteger[Any]]


def philox(counter: tuple[Any, Any, Any, Any], key: tuple[Any, Any]) -> tuple[Any, Any, Any, Any]:
    """Four 32-bit words (held in 64-bit integers) for each element of the broadcast counter and key."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        # The product of two 32-bit words may wrap around as a signed 64-bit integer: its bits are right all the same.
        p0, p1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0 = ((p1 >> 32) & WORD) ^ c1 ^ k0
        c1 = p1 & WORD
        c2 = ((p0 >> 32) & WORD) ^ c3 ^ k1
        c3 = p0 & WORD
        k0 = (k0 + KEY_STEPS[0]) & WORD
        k1 = (k1 + KEY_STEPS[1]) & WORD
    return c0, c1, c2, c3


def purpose_word(purpose: str) -> int:
    """The 32 bits of the counter that separate one use of a seed from all others."""
    return zlib.crc32(purpose.encode())


def seed_words(seed: int) -> tuple[int, int]:
    """A seed of up to 64 bits as Philox's key."""
    return seed & WORD, (seed >> 32) & WORD


def words(seed: int, purpose: str, batch: int, count: int) -> NDArray[np.int64]:
    """`count` independent words of 32 bits; the first n are the same for every count above n."""
    blocks = np.arange((count + 3) // 4, dtype=np.int64)
    return np.stack(_blocks(seed, purpose, batch, blocks), axis=-1).reshape(-1)[:count]


def _blocks(seed: int, purpose: str, batch: int, blocks: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    """The four words of each of these blocks."""
    other = np.full(1, purpose_word(purpose), np.int64)
    low = np.full(1, batch & WORD, np.int64)
    high = np.full(1, (batch >> 32) & WORD, np.int64)
    key = tuple(np.full(1, word, np.int64) for word in seed_words(seed))
    return philox((blocks, low, other, high), (key[0], key[1]))


def uniform(seed: int, purpose: str, batch: int, count: int) -> NDArray[np.float64]:
    """Uniform in [0, 1), with 53 random bits each."""
    pairs = words(seed, purpose, batch, 2 * count).reshape(-1, 2)
    return _unit_interval(pairs[:, 0], pairs[:, 1])


def _unit_interval(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
    """53 of the bits of two words as a number in [0, 1)."""
    return ((first >> 5) * 67108864.0 + (second >> 6)) / 9007199254740992.0


def first_uniforms(seed: int, purpose: str, first_batch: int, count: int) -> NDArray[np.float64]:
    """uniform(seed, purpose, batch, 1) of `count` batches in a row, at a fraction of the cost of asking for each."""
    batches = np.arange(first_batch, first_batch + count, dtype=np.int64)
    other = np.full(1, purpose_word(purpose), np.int64)
    low, high = seed_words(seed)
    counter = (np.zeros(1, np.int64), batches & WORD, other, batches >> 32)
    first, second, _, _ = philox(counter, (np.full(1, low, np.int64), np.full(1, high, np.int64)))
    return _unit_interval(first, second)


def normal(seed: int, purpose: str, batch: int, count: int) -> NDArray[np.float64]:
    """Standard normal, by Box and Muller."""
    pairs = uniform(seed, purpose, batch, 2 * count).reshape(-1, 2)
    return np.sqrt(-2.0 * np.log1p(-pairs[:, 0])) * np.cos(2.0 * math.pi * pairs[:, 1])


def below(seed: int, purpose: str, batch: int, limit: int) -> int:
    """One integer in [0, limit)."""
    return int(uniform(seed, purpose, batch, 1)[0] * limit)


def permutation(seed: int, purpose: str, batch: int, count: int) -> Order:
    """A random order of 0 … count − 1: sorted by what `uniform` draws for each, the lower number first of equals.

    It takes four bytes a number (eight beyond 2^31) and little else: the numbers are dealt into buckets by the first
    bits of their keys, and then each bucket is sorted by its keys, which are drawn again.
    """
    order: Order = np.empty(count, np.int32 if count <= 1 << 31 else np.int64)
    bits = min(16, (count // BUCKET).bit_length())
    sizes = np.zeros(1 << bits, np.int64)
    for _, buckets in _dealt(seed, purpose, batch, count, bits):
        sizes += np.bincount(buckets, minlength=1 << bits)
    ends = np.cumsum(sizes)
    free = ends - sizes  # the next place in each bucket
    for first, buckets in _dealt(seed, purpose, batch, count, bits):
        by_bucket = np.argsort(buckets, kind="stable")
        here = np.bincount(buckets, minlength=1 << bits)
        begins = np.cumsum(here) - here
        order[(free - begins)[buckets[by_bucket]] + np.arange(len(buckets))] = first + by_bucket
        free += here
    for start, end in zip(ends - sizes, ends, strict=True):
        members = order[start:end]
        numbers = members.astype(np.int64)
        even, odd = _keys(seed, purpose, batch, numbers >> 1)
        order[start:end] = members[np.argsort(np.where(numbers & 1, odd, even), kind="stable")]
    return order


def _dealt(seed: int, purpose: str, batch: int, count: int, bits: int) -> Iterator[tuple[int, NDArray[np.uint16]]]:
    """The bucket of each number, a stretch of numbers at a time, with the first number of the stretch."""
    for first in range(0, count, STRETCH):
        end = min(count, first + STRETCH)
        blocks = (np.arange(b, min(b + PIECE, (end + 1) // 2)) for b in range(first // 2, (end + 1) // 2, PIECE))
        keys = [np.stack(_keys(seed, purpose, batch, piece), axis=-1) >> (KEY_BITS - bits) for piece in blocks]
        yield first, np.concatenate([piece.astype(np.uint16).reshape(-1) for piece in keys])[: end - first]


def _keys(
    seed: int, purpose: str, batch: int, blocks: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The numbers that `uniform` draws for the two elements of each block, as whole numbers."""
    w0, w1, w2, w3 = _blocks(seed, purpose, batch, blocks)
    return (w0 >> 5) << 26 | w1 >> 6, (w2 >> 5) << 26 | w3 >> 6
