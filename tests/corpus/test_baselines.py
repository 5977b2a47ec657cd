"""The bar of `unroll data info`: Kneser-Ney equals a plain reading of its formulas, and is a distribution."""

from __future__ import annotations

import lzma
import math
import random
from collections import Counter, defaultdict

import numpy as np
import pytest
from commands import unroll
from hypothesis import given
from hypothesis import strategies as st

from unroll import Corpus
from unroll.corpus import kneser_ney
from unroll.corpus.baselines import baselines, compressed_growth
from unroll.corpus.synthetic import Markov


class PlainKneserNey:
    """The formulas of Chen and Goodman with dictionaries, a token at a time."""

    def __init__(self, train: list[int], symbols: int, order: int) -> None:
        self.symbols, self.order = symbols, order
        self.counts: list[Counter[tuple[int, ...]]] = []
        for n in range(1, order + 1):
            stretches = [tuple(train[i : i + n]) for i in range(len(train) - n + 1)]
            if n < order:
                before = defaultdict(set)
                for i in range(1, len(stretches)):
                    before[stretches[i]].add(train[i - 1])
                self.counts.append(Counter({stretch: len(tokens) for stretch, tokens in before.items()}))
            else:
                self.counts.append(Counter(stretches))

    def discount(self, n: int, count: int) -> float:
        having = Counter(self.counts[n - 1].values())
        size = min(count, 3)
        if not (having[1] and having[2] and having[size]):
            return 0.5
        ratio = having[1] / (having[1] + 2 * having[2])
        estimate = size - (size + 1) * ratio * having[size + 1] / having[size]
        return estimate if 0 < estimate < size else 0.5

    def probability(self, context: tuple[int, ...], token: int) -> float:
        n = len(context) + 1
        below = self.probability(context[1:], token) if context else 1 / self.symbols
        followers = {stretch: count for stretch, count in self.counts[n - 1].items() if stretch[:-1] == context}
        total = sum(followers.values())
        if not total:
            return below
        count = followers.get((*context, token), 0)
        kept = count - self.discount(n, count) if count else 0.0
        return (kept + sum(self.discount(n, c) for c in followers.values()) * below) / total


@given(
    st.integers(1, 6).flatmap(
        lambda symbols: st.tuples(
            st.just(symbols),
            st.lists(st.integers(0, symbols - 1), min_size=5, max_size=60),
            st.lists(st.integers(0, symbols - 1), min_size=1, max_size=20),
        )
    ),
    st.integers(1, 5),
)
def test_kneser_ney_equals_its_formulas_written_with_dictionaries(
    case: tuple[int, list[int], list[int]], order: int
) -> None:
    symbols, train, test = case
    plain, text = PlainKneserNey(train, symbols, order), train + test
    expected = []
    for i in range(len(train), len(text)):
        expected.append(plain.probability(tuple(text[i - order + 1 : i]), text[i]))
    got = kneser_ney.probabilities(np.array(train), np.array(test), symbols, order)
    np.testing.assert_allclose(got, expected, rtol=1e-12)


@given(st.lists(st.integers(0, 4), min_size=5, max_size=80), st.integers(1, 5))
def test_the_probabilities_of_all_symbols_sum_to_one(train: list[int], order: int) -> None:
    symbols = 5
    each = [kneser_ney.probabilities(np.array(train), np.array([token]), symbols, order)[0] for token in range(symbols)]
    assert min(each) > 0
    assert sum(each) == pytest.approx(1, abs=1e-12)


def test_the_longest_stretch_fits_into_64_bits() -> None:
    for symbols in (1, 2, 97, 6208, 6209, 55_108, 1 << 20):
        order = kneser_ney.order_for(symbols)
        assert symbols**order < 2**63
        assert order == 5 or symbols ** (order + 1) > 2**63 - 1
    train, test = np.array([0, 6207] * 9), np.array([6207, 0, 6207])
    assert kneser_ney.probabilities(train, test, 6208, 5)[1:].min() > 0.5


def test_pairs_of_sparse_symbols_are_hardly_worse_than_their_frequencies() -> None:
    drawn = random.Random(1)
    text = "".join(" ".join(str(1000 + drawn.randrange(256)) for _ in range(20)) + "\n" for _ in range(200))
    corpus = Corpus.from_text(text, kind="ids")
    assert corpus.bigram_perplexity() < 1.05 * corpus.unigram_perplexity()


def test_each_order_is_nearer_to_the_entropy_rate_of_a_source_of_first_order() -> None:
    source = Markov()
    corpus = Corpus.from_text(source.text(200_000))
    unigram, bigram, longest = corpus.unigram_perplexity(), corpus.bigram_perplexity(), corpus.ngram_perplexity(5)
    assert unigram > 1.05 * bigram
    assert bigram == pytest.approx(source.perplexity, rel=0.05)
    assert longest == pytest.approx(bigram, rel=0.03)


def test_a_long_train_set_is_counted_from_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = Corpus.from_text(Markov().text(3000))
    whole = corpus.train_ids(3)
    for most in (1, 5, 1000, 2700, 10_000):
        assert np.array_equal(corpus.train_end(most, 3), whole[-most:])
    monkeypatch.setattr("unroll.corpus.corpus.COUNTED", 50)
    short = kneser_ney.probabilities(whole[-50:], corpus.test_ids(3), corpus.unique, 5)
    assert corpus.ngram_perplexity(5, 3) == pytest.approx(math.exp(-np.log(short).mean()))


def test_xz_counts_what_the_test_set_adds_to_the_train_set() -> None:
    noise = random.Random(2).randbytes(4000)
    assert compressed_growth(noise, noise) < 100
    assert compressed_growth(b"", noise) >= 4000
    (row,) = [row for row in baselines(Corpus.from_text("to be or not to be " * 100)) if row.name == "xz"]
    assert (row.tokens, row.bytes) == (190, 190)
    assert row.bits_per_byte < 1


def test_bits_a_byte_count_the_bytes_of_the_file() -> None:
    corpus = Corpus.from_text("äöü " * 500)
    rows = baselines(corpus)
    assert [row.name for row in rows] == ["unigram", "bigram", "5-gram", "xz"]
    assert {(row.tokens, row.bytes) for row in rows} == {(200, 350)}
    for row in rows:
        assert row.bits_per_token * 200 == pytest.approx(row.bits_per_byte * 350)
    assert rows[2].perplexity == pytest.approx(corpus.ngram_perplexity(5))


def test_data_info_shows_the_bar_in_bits(tmp_path) -> None:
    (tmp_path / "text.txt").write_text("to be or not to be " * 100)
    shown = unroll("data", "info", tmp_path / "text.txt").out.splitlines()
    rows = {line.split()[0]: line for line in shown if "bits/byte" in line}
    assert list(rows) == ["unigram", "bigram", "5-gram", "xz"]
    (tmp_path / "text.txt").write_text("to be or not to")
    assert "the test set is too short" in unroll("data", "info", tmp_path / "text.txt").out


def test_xz_is_the_format_that_it_is_named_after() -> None:
    text = b"to be or not to be " * 50
    assert abs(compressed_growth(b"", text) - len(lzma.compress(text))) < 100
