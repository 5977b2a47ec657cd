"""Every token kind: text to ids and back is the same text, and what is not known is named with its place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from unroll.base import plugins
from unroll.base.errors import CorpusError, RunError, SymbolError
from unroll.corpus.tokens import UNKNOWN, Vocabulary, guess_kind, load, reads_bytes, smallest_type

KINDS = plugins.names("tokens")
LOSSLESS = ("bytes", "chars", "words")  # the others give white space back in one form
# What a kind can read, where that is not any text.
READABLE = {kind: st.just(load(kind).EXAMPLE) for kind in KINDS if hasattr(load(kind), "EXAMPLE")} | {
    "notes": st.lists(st.integers(0, 127) | st.just("\n"), min_size=1).map(lambda notes: " ".join(map(str, notes)))
}


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, str]:
    """A kind, and a text with at least one of its tokens."""
    kind = draw(st.sampled_from(KINDS))
    text = draw(READABLE.get(kind, st.text(min_size=1)))
    assume(Vocabulary.of(text, kind).symbols)
    return kind, text


def pieces(kind: str, text: str, size: int = 10**9) -> list[str] | list[bytes]:
    """A text as a stream of small pieces of what the kind reads."""
    content = text.encode() if reads_bytes(kind) else text
    return [content[i : i + size] for i in range(0, len(content), size)]


@given(texts())
def test_a_text_survives_the_round_trip(case: tuple[str, str]) -> None:
    kind, text = case
    vocabulary = Vocabulary.of(text, kind)
    ids = vocabulary.encode(text)
    assert (vocabulary.encode(vocabulary.decode(ids)) == ids).all()
    assert ids.min() >= 0
    assert ids.max() < len(vocabulary)
    if kind in LOSSLESS:
        assert vocabulary.decode(ids) == text
        assert vocabulary.render(ids) == text.encode()


@given(texts(), st.integers(1, 7))
def test_a_stream_cut_anywhere_gives_the_same_ids(case: tuple[str, str], size: int) -> None:
    kind, text = case
    vocabulary = Vocabulary.of(text, kind)
    assert load(kind).counts(pieces(kind, text, size)) == load(kind).counts(pieces(kind, text))
    streamed = np.concatenate([*vocabulary.encode_pieces(pieces(kind, text, size)), np.empty(0, np.uint8)])
    assert (streamed == vocabulary.encode(text)).all()


@given(texts())
def test_the_text_as_it_grows_is_the_text(case: tuple[str, str]) -> None:
    kind, text = case
    vocabulary = Vocabulary.of(text, kind)
    ids = vocabulary.encode(text)
    assert "".join(vocabulary.written(ids.tolist())) == vocabulary.decode(ids)


@given(texts())
def test_symbols_are_sorted_different_and_all_of_the_texts(case: tuple[str, str]) -> None:
    kind, text = case
    vocabulary = Vocabulary.of(text, kind)
    assert list(vocabulary.symbols) == sorted(set(vocabulary.symbols), key=getattr(load(kind), "order", None))
    counts = load(kind).counts(pieces(kind, text))
    assert set(counts) == set(vocabulary.symbols)
    assert dict(zip(vocabulary.symbols, np.bincount(vocabulary.encode(text)), strict=True)) == counts


@given(texts())
def test_a_vocabulary_survives_its_file(case: tuple[str, str]) -> None:
    kind, text = case
    vocabulary = Vocabulary.of(text, kind)
    assert Vocabulary.from_json(vocabulary.to_json(), "vocabulary.json") == vocabulary


@given(texts(), st.integers(1, 4))
def test_symbols_rarer_than_min_count_share_one_unknown(case: tuple[str, str], min_count: int) -> None:
    kind, text = case
    counts = load(kind).counts(pieces(kind, text))
    vocabulary = Vocabulary.of(text, kind, min_count)
    common = {symbol for symbol, count in counts.items() if count >= min_count}
    rare = set(counts) - common
    assert set(vocabulary.symbols) == common | ({UNKNOWN} if rare else set())
    whole = Vocabulary.of(text, kind)
    before, after = whole.encode(text), vocabulary.encode(text)
    assert (vocabulary.translate(before, whole) == after).all()
    for old, new in zip(before, after, strict=True):
        symbol = whole.symbols[old]
        assert vocabulary.symbols[new] == (symbol if symbol in common else UNKNOWN)


@pytest.mark.parametrize("name", ["bytes", "chars", "ids", "notes", "words"])
def test_an_unknown_symbol_is_named_with_its_position(name: str) -> None:
    vocabulary = Vocabulary.of("60 62\n60 62\n", name)
    with pytest.raises(SymbolError, match=r"'(1|31|61)'.* at position \d"):
        vocabulary.encode("60 62\n61 62\n")


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


@pytest.mark.parametrize(
    ("sample", "kind"),
    [
        (b"60 64 67 72\n" * 20, "notes"),
        (b"8812 1299 60 7\n" * 20, "ids"),
        (b"chapter 1 of 3\n" * 20, "chars"),
        (b"1 2 3", "chars"),
        (b"\xff\xfe\x00", "chars"),
        (b"60 64 128 5\n" * 20, "ids"),
    ],
)
def test_the_kind_is_guessed_from_what_a_text_looks_like(sample: bytes, kind: str) -> None:
    assert guess_kind(sample) == kind


@pytest.mark.parametrize(
    ("text", "place"), [("60 x 61", 1), ("60 128", 1), ("-1 5", 0), ("6.5", 0), ("1 2 the first of many words", 2)]
)
def test_the_first_that_is_no_note_is_named_with_its_position(text: str, place: int) -> None:
    with pytest.raises(
        CorpusError, match=rf"Token {place} is '{text.split()[place]}': a note is a number from 0 to 127"
    ):
        Vocabulary.of(text, "notes")
