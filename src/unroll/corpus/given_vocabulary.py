"""A text read with a vocabulary that there was before it: that of weights from which another run begins.

Ids keep their meaning. Symbols that the vocabulary lacks are refused, or come after those that it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from unroll.corpus.parts import PartFiles
from unroll.corpus.tokens import NAMED, UNKNOWN, Ids, Vocabulary, smallest_type, symbol_name

if TYPE_CHECKING:
    from unroll.corpus.corpus import Corpus

CHUNK = 1 << 22  # tokens looked at together


@dataclass(frozen=True)
class Lacking:
    """The symbols of a text that a vocabulary lacks, the most frequent first."""

    symbols: tuple[str, ...]
    counts: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """How often they occur."""
        return sum(self.counts)

    def __str__(self) -> str:
        """The first few of them, with how often each occurs."""
        first = zip(self.symbols[:NAMED], self.counts, strict=False)
        named = ", ".join(f"{symbol_name(symbol)} {count:,} times" for symbol, count in first)
        more = f" and {len(self.symbols) - NAMED:,} more" if len(self.symbols) > NAMED else ""
        return f"{named}{more}"


def lacking(vocabulary: Vocabulary, corpus: Corpus) -> Lacking:
    """What a vocabulary lacks to read a corpus."""
    known = set(vocabulary.symbols)
    counts = np.zeros(corpus.unique, np.int64)
    if known.issuperset(corpus.vocabulary.symbols):
        return Lacking((), ())
    for begin in range(0, corpus.tokens, CHUNK):
        counts += np.bincount(corpus.ids[begin : begin + CHUNK], minlength=corpus.unique)
    pairs = zip(corpus.vocabulary.symbols, counts.tolist(), strict=True)
    new = sorted(((s, n) for s, n in pairs if s not in known), key=lambda pair: -pair[1])
    return Lacking(tuple(s for s, _ in new), tuple(n for _, n in new))


def longer(vocabulary: Vocabulary, corpus: Corpus, new: Lacking, min_count: int) -> Vocabulary:
    """The vocabulary with new symbols behind its own, in the corpus's order; rare ones share the unknown symbol."""
    often = {symbol for symbol, count in zip(new.symbols, new.counts, strict=True) if count >= min_count}
    if len(often) < len(new.symbols) and UNKNOWN not in vocabulary.symbols:
        often.add(UNKNOWN)
    ordered = [symbol for symbol in corpus.vocabulary.symbols if symbol in often]
    ordered += sorted(often.difference(ordered))
    return replace(vocabulary, symbols=(*vocabulary.symbols, *ordered))


def read_with(corpus: Corpus, vocabulary: Vocabulary, min_count: int) -> Corpus:
    """The corpus with ids of this vocabulary; a SymbolError names what it lacks.

    The corpus was read with all its symbols; `min_count` is recorded of the vocabulary.
    """
    if vocabulary == corpus.vocabulary:
        return _with_unread(replace(corpus, min_count=min_count))
    parts = {
        name: replace(part, ids=vocabulary.translate(part.ids, corpus.vocabulary))
        for name in ("validation_part", "test_part")
        if (part := getattr(corpus, name)) is not None
    }
    ids = _translated(corpus, vocabulary)
    return _with_unread(replace(corpus, vocabulary=vocabulary, ids=ids, min_count=min_count, **parts))


def _with_unread(corpus: Corpus) -> Corpus:
    """The same with its parts, which waited for this vocabulary."""
    files = corpus.unread
    return replace(corpus, unread=PartFiles()).in_parts(files)


def _translated(corpus: Corpus, vocabulary: Vocabulary) -> Ids:
    """The ids, in memory."""
    ids: Ids = np.empty(corpus.tokens, smallest_type(len(vocabulary)))
    for begin in range(0, corpus.tokens, CHUNK):
        chunk = slice(begin, begin + CHUNK)
        ids[chunk] = vocabulary.translate(corpus.ids[chunk], corpus.vocabulary)
    return ids


def in_order(symbols: Sequence[str]) -> str:
    """Symbols for a message: the first few."""
    more = f" and {len(symbols) - NAMED:,} more" if len(symbols) > NAMED else ""
    return ", ".join(symbol_name(symbol) for symbol in symbols[:NAMED]) + more
