"""Every token kind: text to ids and back is the same text, and what is not known is named with its place."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import every_plugin
from hypothesis import given
from hypothesis import strategies as st

from unroll import plugins
from unroll.errors import RunError, SymbolError
from unroll.tokens import UNKNOWN, Vocabulary, smallest_type

KINDS = plugins.names("unroll.tokens")
kinds, texts = st.sampled_from(KINDS), st.text(min_size=1)


@given(kinds, texts)
def test_a_text_survives_the_round_trip(kind: str, text: str) -> None:
    vocabulary = Vocabulary.of(text, kind)
    ids = vocabulary.encode(text)
    assert vocabulary.decode(ids) == text
    assert ids.min() >= 0
    assert ids.max() < len(vocabulary)


@given(kinds, texts)
def test_symbols_are_sorted_different_and_all_of_the_texts(kind: str, text: str) -> None:
    vocabulary = Vocabulary.of(text, kind)
    assert list(vocabulary.symbols) == sorted(set(vocabulary.symbols))
    counts = plugins.load("unroll.tokens", kind).counts(text)
    assert set(counts) == set(vocabulary.symbols)
    assert dict(zip(vocabulary.symbols, np.bincount(vocabulary.encode(text)), strict=True)) == counts


@given(kinds, texts)
def test_a_vocabulary_survives_its_file(kind: str, text: str) -> None:
    vocabulary = Vocabulary.of(text, kind)
    assert Vocabulary.from_json(vocabulary.to_json(), "vocabulary.json") == vocabulary


@given(kinds, texts, st.integers(1, 4))
def test_symbols_rarer_than_min_count_share_one_unknown(kind: str, text: str, min_count: int) -> None:
    counts = plugins.load("unroll.tokens", kind).counts(text)
    vocabulary = Vocabulary.of(text, kind, min_count)
    common = {symbol for symbol, count in counts.items() if count >= min_count}
    rare = set(counts) - common
    assert set(vocabulary.symbols) == common | ({UNKNOWN} if rare else set())
    ids = vocabulary.encode(text)
    whole = Vocabulary.of(text, kind)
    for before, after in zip(whole.encode(text), ids, strict=True):
        symbol = whole.symbols[before]
        assert vocabulary.symbols[after] == (symbol if symbol in common else UNKNOWN)


@every_plugin("tokens")
def test_an_unknown_symbol_is_named_with_its_position(name: str) -> None:
    vocabulary = Vocabulary.of("a b\na b\n", name)
    with pytest.raises(SymbolError, match=r"'Ж'.* at position \d"):
        vocabulary.encode("a b\nЖ b\n")


def test_characters_are_named_with_code_point_and_first_position_five_at_most() -> None:
    with pytest.raises(SymbolError) as told:
        Vocabulary.of("ab", "chars").encode("abébé1234567")
    words = str(told.value)
    assert "'é' (U+00E9) at position 2" in words
    assert "and 3 more" in words
    assert words.count("position") == 5


@pytest.mark.parametrize(
    ("size", "dtype"), [(256, np.uint8), (257, np.int16), (2**15, np.int16), (2**15 + 1, np.int32)]
)
def test_ids_take_the_smallest_type_that_holds_them(size: int, dtype: type) -> None:
    assert smallest_type(size) is dtype
    assert np.iinfo(dtype).max >= size - 1


def test_three_hundred_symbols_survive_their_small_ids() -> None:
    text = "".join(chr(0x4E00 + i) for i in range(300))
    vocabulary = Vocabulary.of(text, "chars")
    assert vocabulary.encode(text).dtype == np.int16
    assert vocabulary.decode(vocabulary.encode(text)) == text


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"kind": "chars"}',
        '{"kind": "chars", "symbols": []}',
        '{"kind": "chars", "symbols": "ab"}',
        '{"kind": "chars", "symbols": ["a", 1]}',
        '{"kind": "chars", "symbols": ["a", ""]}',
        '{"kind": "chars", "symbols": ["a", "a"]}',
        '{"kind": "charz", "symbols": ["a"]}',
        '{"kind": ["chars"], "symbols": ["a"]}',
        '{"kind": "chars", "symbols": ["ab"]}',
    ],
)
def test_a_damaged_vocabulary_is_refused_in_words(content: str) -> None:
    with pytest.raises(RunError, match="here\\.json"):
        Vocabulary.from_json(content, "here.json")
