"""What a sample copies: its longest stretch that stands in the training data, and how much copied stretches cover.

Natural text repeats itself, so every answer comes with the same figures for held-out text: the test set, cut into
stretches as long as the sample. The distance between the two is what counts.

The training data is the train set as the run read it: one sequence, rotated by the split. Its suffixes are sorted once;
the cache keeps those of a larger corpus, 4 bytes per token; where they are missing or damaged, they are sorted again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unroll.base import cached_files
from unroll.base.cache import cache_folder
from unroll.base.errors import ConfigurationError, SaveError, SymbolError
from unroll.corpus.tokens import Ids
from unroll.runs.loaded import Run
from unroll.runs.suffixes import Order, longest_matches, occurrences, suffix_array

COVERED_FROM = (20, 50, 100)  # tokens: the least lengths of the matches whose share of a text is shown
CACHED_FROM = 1 << 20  # tokens: fewer are sorted in no noticeable time
OURS = r"[0-9a-f]{40}\.int32"  # names of the files in which orders are kept


@dataclass(frozen=True, eq=False, repr=False)
class Matches:
    """For each token of a text, the length of the longest stretch that begins there and stands in the training data."""

    lengths: NDArray[np.int64]

    def __repr__(self) -> str:
        return f"Matches(tokens={self.tokens}, longest={self.longest})"

    @property
    def tokens(self) -> int:
        """Tokens of the text."""
        return len(self.lengths)

    @property
    def longest(self) -> int:
        """Tokens of the longest match."""
        return int(self.lengths.max(initial=0))

    def covered(self, least: int) -> float:
        """The share of the text's tokens that lie inside a match of at least this many tokens."""
        starts = np.flatnonzero(self.lengths >= least)
        steps = np.zeros(self.tokens + 1, np.int64)
        np.add.at(steps, starts, 1)
        np.add.at(steps, starts + self.lengths[starts], -1)
        return float(np.mean(np.cumsum(steps)[:-1] > 0))

    def part(self, begin: int, end: int) -> Matches:
        """The matches of a part of the text, taken by itself."""
        return Matches(np.minimum(self.lengths[begin:end], np.arange(end - begin, 0, -1)))


@dataclass(frozen=True)
class Stretch:
    """A part of a sample that stands in the training data."""

    text: str
    tokens: tuple[int, ...] = field(repr=False)
    at: int  # the token of the sample at which it begins, from 0
    place: int  # the token of the corpus at which it first stands, from 0
    times: int  # how often it stands in the training data


@dataclass(frozen=True, eq=False)
class Memorised:
    """What a sample shares with the training data, and what as much held-out text shares with it."""

    matches: Matches
    longest: Stretch | None  # None where no token of the sample occurs in the training data
    # Matches of stretches of the test set as long as the sample, or of all of it if it is shorter; perhaps thousands.
    test: tuple[Matches, ...] = field(repr=False)

    @property
    def test_longest(self) -> int:
        """The longest match of held-out text of the same length: the middle one of the stretches."""
        return sorted(matches.longest for matches in self.test)[len(self.test) // 2]

    def test_covered(self, least: int) -> float:
        """The share of held-out text that lies inside a match of at least this many tokens."""
        return sum(matches.covered(least) for matches in self.test) / len(self.test)

    def facts(self) -> dict[str, Any]:
        """The same as plain data, for a program."""
        longest = self.longest
        lengths_of_test = [matches.longest for matches in self.test]
        return {
            "tokens": self.matches.tokens,
            "longest": self.matches.longest,
            "stretch": longest and {"text": longest.text, "tokens": list(longest.tokens)},
            "at": longest and longest.at,
            "place": longest and longest.place,
            "times": longest.times if longest else 0,
            "covered": {str(least): self.matches.covered(least) for least in COVERED_FROM},
            "lengths": self.matches.lengths.tolist(),
            "test": {
                "tokens": self.test[0].tokens,
                "stretches": len(self.test),
                "longest": self.test_longest,
                "range": [min(lengths_of_test), max(lengths_of_test)],
                "covered": {str(least): self.test_covered(least) for least in COVERED_FROM},
            },
        }


def memorised(
    run: Run, samples: Sequence[str | Ids], say: Callable[[str], None] = lambda message: None
) -> list[Memorised]:
    """For each sample, a text or its token ids, find what of it stands in the data that the run was trained on.

    Sorting ten million tokens takes several seconds, once for each corpus and split; `say` announces it.
    """
    if isinstance(samples, str):  # a text is a sequence of texts too, each a character long
        raise ConfigurationError("memorised takes a list of texts. Got one text: write memorised(run, [text]).")
    texts = [run.vocabulary.encode(s) if isinstance(s, str) else np.asarray(s) for s in samples]
    for number, ids in enumerate(texts):
        if not len(ids):
            raise SymbolError(f"A text to look up needs at least 1 token. Sample {number} has none.")
    corpus = run.corpus
    seed, validation = run.experiment.split_seed, run.experiment.validation
    train = corpus.train_ids(seed, validation)
    split = corpus.split(seed, validation)
    order = _order(train, say)
    test = Matches(longest_matches(train, order, corpus.test_ids(seed)))

    def longest_stretch(ids: Ids, matches: Matches) -> Stretch | None:
        if not matches.longest:
            return None
        at = int(matches.lengths.argmax())
        stretch = ids[at : at + matches.longest]
        positions = occurrences(train, order, stretch)
        first = ((positions.astype(np.int64) + split.offset) % corpus.tokens).min()
        return Stretch(run.vocabulary.decode(stretch), tuple(stretch.tolist()), at, int(first), len(positions))

    results = []
    for ids in texts:
        matches = Matches(longest_matches(train, order, ids))
        size = min(len(ids), test.tokens)
        held_out = tuple(test.part(a, a + size) for a in range(0, test.tokens - size + 1, size))
        results.append(Memorised(matches, longest_stretch(ids, matches), held_out))
    return results


def _order(train: Ids, say: Callable[[str], None]) -> Order:
    """The sorted suffixes; those of many tokens come from the cache, whose key is the tokens themselves."""
    if len(train) < CACHED_FROM:
        return suffix_array(train)
    key = hashlib.sha256(train.dtype.str.encode())
    key.update(train.data)
    path = cache_folder() / "suffixes" / f"{key.hexdigest()[:40]}.int32"
    kept = cached_files.numbers(path, np.int32, len(train), len(train))
    if kept is not None:
        return kept.view(np.int32)
    say(f"Sorting the {len(train):,} tokens of the training data, once; the result goes to {path.parent}.")
    order = suffix_array(train)
    try:
        cached_files.keep(path, (hashlib.sha256(order.data).digest(), order.data), OURS)
    except SaveError as error:
        say(f"{error} It is sorted anew each time. {cached_files.REMEDY}")
    return order
