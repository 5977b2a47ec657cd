"""The bar that a model should pass: what counting and what compressing reach on the same test set.

All of them see the train set and are scored on the test set that follows it, so their numbers stand beside a model's.
"""

from __future__ import annotations

import lzma
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from unroll.corpus import kneser_ney
from unroll.corpus.corpus import Corpus

XZ_BYTES = 8 << 20  # of the train set's end: xz looks no further back
_XZ = [{"id": lzma.FILTER_LZMA2, "preset": 6}]


@dataclass(frozen=True)
class Baseline:
    """How many bits one method needs for the test set."""

    name: str
    bits: float
    tokens: int
    bytes: int

    @property
    def bits_per_token(self) -> float:
        """Bits for one token."""
        return self.bits / self.tokens

    @property
    def bits_per_byte(self) -> float:
        """Bits for one byte of the file: comparable between kinds of tokens."""
        return self.bits / self.bytes

    @property
    def perplexity(self) -> float:
        """2 to the power of the bits per token."""
        return float(2**self.bits_per_token)


def baselines(corpus: Corpus, split_seed: int = 0) -> list[Baseline]:
    """Frequencies, pairs, Kneser-Ney and xz, in this order; the test set must have a token."""
    test = corpus.test_ids(split_seed)
    test_bytes = corpus.vocabulary.render(test)
    size = len(test_bytes)
    order = kneser_ney.order_for(corpus.unique)
    counted = {
        "unigram": corpus.unigram_perplexity(split_seed),
        "bigram": corpus.bigram_perplexity(split_seed),
        f"{order}-gram": corpus.ngram_perplexity(order, split_seed),
    }
    rows = [Baseline(name, len(test) * math.log2(value), len(test), size) for name, value in counted.items()]
    train_bytes = corpus.vocabulary.render(corpus.train_end(XZ_BYTES, split_seed))[-XZ_BYTES:]
    return [*rows, Baseline("xz", 8 * compressed_growth(train_bytes, test_bytes), len(test), size)]


def compressed_growth(before: bytes, text: bytes) -> int:
    """How many bytes longer xz's output gets when `text` follows `before`."""
    with ThreadPoolExecutor(2) as pool:  # lzma works outside the interpreter's lock
        without, together = pool.map(_compressed, (before, before + text))
    return together - without


def _compressed(content: bytes) -> int:
    return len(lzma.compress(content, lzma.FORMAT_RAW, filters=_XZ))
