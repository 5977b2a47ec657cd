"""The order of suffixes and the matches found with it, against scans that cannot be wrong."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from unroll.base.errors import CorpusError
from unroll.runs import suffixes
from unroll.runs.suffixes import longest_matches, occurrences, suffix_array

Ids = NDArray[np.integer[Any]]


def _array(tokens: list[int]) -> Ids:
    return np.array(tokens, np.int64)


# Few symbols, so that matches are long; one symbol; a short period; a text and its copy; symbols far apart.
any_text = st.one_of(
    st.lists(st.integers(0, 2), max_size=60),
    st.lists(st.integers(0, 300), max_size=60),
    st.lists(st.just(7), max_size=60),
    st.builds(
        lambda period, times, rest: period * times + rest,
        st.lists(st.integers(0, 3), min_size=1, max_size=5),
        st.integers(1, 12),
        st.lists(st.integers(0, 3), max_size=3),
    ),
    st.builds(lambda book: book + book, st.lists(st.integers(0, 3), max_size=30)),
    st.lists(st.sampled_from([0, 5, 2**31 - 1]), max_size=40),
    st.lists(st.sampled_from([-(2**63), 0, 2**63 - 1]), max_size=20),
).map(_array)


def scanned(text: Ids, sample: Ids) -> list[int]:
    """The longest match at each position of the sample, by trying every position of the text."""

    def shared(i: int, p: int) -> int:
        length = 0
        while i + length < len(sample) and p + length < len(text) and sample[i + length] == text[p + length]:
            length += 1
        return length

    return [max((shared(i, p) for p in range(len(text))), default=0) for i in range(len(sample))]


@given(any_text)
def test_every_text_is_sorted_completely(text: Ids) -> None:
    tokens = text.tolist()
    assert suffix_array(text).tolist() == sorted(range(len(tokens)), key=lambda position: tokens[position:])


@given(any_text)
def test_small_pieces_sort_as_one_does(text: Ids) -> None:
    with patch.object(suffixes, "PIECE", 4):
        cut = suffix_array(text)
    assert cut.tolist() == suffix_array(text).tolist()


@given(any_text, any_text)
def test_the_longest_match_at_every_position_is_that_of_a_scan(text: Ids, sample: Ids) -> None:
    assert longest_matches(text, suffix_array(text), sample).tolist() == scanned(text, sample)


@given(any_text, st.data())
def test_a_piece_of_the_text_matches_to_its_end(text: Ids, data: st.DataObject) -> None:
    a = data.draw(st.integers(0, len(text)))
    b = data.draw(st.integers(a, len(text)))
    lengths = longest_matches(text, suffix_array(text), text[a:b])
    assert lengths.tolist() == list(range(b - a, 0, -1))


@given(any_text, any_text)
def test_a_sample_longer_than_the_text_finds_the_text_in_itself(text: Ids, around: Ids) -> None:
    sample = np.concatenate((around, text, around))
    lengths = longest_matches(text, suffix_array(text), sample).tolist()
    assert lengths == scanned(text, sample)
    assert max(lengths, default=0) == len(text)


@given(any_text)
def test_texts_with_no_symbol_in_common_match_nowhere(text: Ids) -> None:
    sample = np.array([1_000, 1_001, 1_000], np.int64)
    assert longest_matches(text, suffix_array(text), sample).tolist() == [0, 0, 0]


@given(any_text, st.data())
def test_occurrences_are_all_positions_and_no_others(text: Ids, data: st.DataObject) -> None:
    a = data.draw(st.integers(0, len(text)))
    stretch = text[a : a + data.draw(st.integers(1, 6))]
    if not len(stretch):
        return
    positions = [p for p in range(len(text)) if text[p : p + len(stretch)].tolist() == stretch.tolist()]
    assert sorted(occurrences(text, suffix_array(text), stretch).tolist()) == positions


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.int64])
def test_ids_of_every_width_sort_alike(dtype: type[np.integer[Any]]) -> None:
    ids = np.random.default_rng(0).integers(0, 3, 5_000)
    assert np.array_equal(suffix_array(ids.astype(dtype)), suffix_array(ids))


def test_long_matches_are_compared_in_growing_stretches_and_stay_exact() -> None:
    generator = np.random.default_rng(0)
    text = generator.integers(0, 4, 60_000).astype(np.uint8)
    sample = np.concatenate((text[100:30_100], generator.integers(0, 4, 50), text[40_000:59_999])).astype(np.uint8)
    with patch.object(suffixes, "AT_ONCE", 1 << 10):
        lengths = longest_matches(text, suffix_array(text), sample)
    assert lengths[0] >= 30_000
    assert lengths[30_050:].max() >= 19_999
    for i in generator.integers(0, len(sample), 200):
        stretch, longer = sample[i : i + lengths[i]].tobytes(), sample[i : i + lengths[i] + 1].tobytes()
        assert stretch in text.tobytes()
        assert i + lengths[i] == len(sample) or longer not in text.tobytes()


def test_a_text_too_long_for_32_bits_is_refused_in_words() -> None:
    with patch.object(suffixes, "LONGEST", 3), pytest.raises(CorpusError, match="at most 3 tokens"):
        suffix_array(np.zeros(4, np.uint8))
