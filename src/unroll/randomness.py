"""Randomness as a pure function of (seed, purpose, batch, element): nothing to save, nothing to restore.

The generator is Philox-4x32-10 (Salmon et al., 2011): ten rounds of multiply and xor turn a counter and a key into
four 32-bit words. The key is the run's seed; the counter holds the element, the batch and the purpose. A run's draws
therefore never depend on which other runs train beside it, on when it was resumed, or on the device.

The rounds are written with operators alone, on 64-bit integers, so that one text serves NumPy arrays and torch tensors.
"""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

WORD = 0xFFFFFFFF
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
KEY_STEPS = 0x9E3779B9, 0xBB67AE85
ROUNDS = 10


def philox(counter: tuple[Any, Any, Any, Any], key: tuple[Any, Any]) -> tuple[Any, Any, Any, Any]:
    """Four 32-bit words (held in 64-bit integers) for each element of the broadcast counter and key."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        # The product of two 32-bit words may wrap around as a signed 64-bit integer: its bits are right all the same.
        p0, p1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = ((p1 >> 32) & WORD) ^ c1 ^ k0, p1 & WORD, ((p0 >> 32) & WORD) ^ c3 ^ k1, p0 & WORD
        k0, k1 = (k0 + KEY_STEPS[0]) & WORD, (k1 + KEY_STEPS[1]) & WORD
    return c0, c1, c2, c3


def purpose_word(purpose: str) -> int:
    """The 32 bits of the counter that keep one use of a seed apart from every other."""
    return zlib.crc32(purpose.encode())


def seed_words(seed: int) -> tuple[int, int]:
    """A seed of up to 64 bits as Philox's key."""
    return seed & WORD, (seed >> 32) & WORD


def words(seed: int, purpose: str, batch: int, count: int) -> NDArray[np.int64]:
    """`count` independent words of 32 bits; the first n are the same for every count above n."""
    blocks = np.arange((count + 3) // 4, dtype=np.int64)
    other = np.full(1, purpose_word(purpose), np.int64)
    low, high = np.full(1, batch & WORD, np.int64), np.full(1, (batch >> 32) & WORD, np.int64)
    key = tuple(np.full(1, word, np.int64) for word in seed_words(seed))
    return np.stack(philox((blocks, low, other, high), (key[0], key[1])), axis=-1).reshape(-1)[:count]


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


def permutation(seed: int, purpose: str, batch: int, count: int) -> NDArray[np.int64]:
    """A random order of 0 … count − 1."""
    return np.argsort(uniform(seed, purpose, batch, count), kind="stable").astype(np.int64)
