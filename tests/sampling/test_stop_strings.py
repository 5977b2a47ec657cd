"""Text ends before its stop string, wherever tokens begin and end, and nothing of the stop is ever shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unroll.base.errors import InputError, SymbolError
from unroll.corpus.tokens import Vocabulary
from unroll.sampling.stop_strings import Stops, Writer

WORDS = Vocabulary.of("the cat sat on the mat, the other hat\n\nand so on", "words")
CHARS = Vocabulary.of("abc", "chars")
BYTES = Vocabulary.of("aé–b c", "bytes")
NOTES = Vocabulary.of("60 62 64 12 120\n", "notes")
IDS = Vocabulary.of("7 77 song_1 x\n", "ids")


def written(vocabulary: Vocabulary, text: str, *stops: str) -> tuple[str, list[str], int]:
    """The text in the end, the pieces as they became certain, and how many tokens that took."""
    writer, pieces, tokens = Writer(Stops(vocabulary, stops)), [], 0
    for token in vocabulary.encode(text):
        tokens += 1
        pieces.append(writer.add(int(token)))
        if writer.ended:
            break
    pieces.append(writer.finish())
    return writer.text, pieces, tokens


@pytest.mark.parametrize(
    ("vocabulary", "text", "stop", "expected", "tokens"),
    [
        (CHARS, "abcabca", "ca", "ab", 4),
        (CHARS, "aabaaabaaac", "aaac", "aabaaab", 11),  # begins again inside what looked like its beginning
        (WORDS, "the cat sat on the mat", "t s", "the ca", 3),  # straddles two words
        (WORDS, "the cat sat on the mat", "the", "", 1),
        (WORDS, " other the", "the", " o", 1),  # inside one word
        (WORDS, "the mat\n\nand", "\n\n", "the mat", 4),
        (BYTES, "a–b cé", "–", "a", 4),
        (BYTES, "a b", " ", "a", 2),
        (NOTES, "60 62 12 120 64", "120", "60 62 12", 4),  # not at 12
        (NOTES, "120 60 12 62", "12", "120 60", 3),  # not within 120
        (NOTES, "60 62 64 62", "62 64", "60", 3),
        (NOTES, "60 62\n64", "\n", "60 62", 3),
        (NOTES, "60 62 64", "D4", "60", 2),
        (IDS, "77 7 song_1\nx", "7", "77", 2),
        (IDS, "77 7 song_1\nx", "song_1\nx", "77 7", 5),
    ],
)
def test_the_text_ends_before_the_stop(
    vocabulary: Vocabulary, text: str, stop: str, expected: str, tokens: int
) -> None:
    found, pieces, used = written(vocabulary, text, stop)
    assert (found, used) == (expected, tokens)
    assert "".join(pieces) == expected


@given(st.text("ab", max_size=40), st.lists(st.text("ab", min_size=1, max_size=5), max_size=3))
def test_the_text_is_what_stands_before_the_first_of_the_stops(text: str, stops: list[str]) -> None:
    vocabulary = Vocabulary.of("ab", "chars")
    found, pieces, used = written(vocabulary, text, *stops)
    # The stop that is complete first ends the text; of those, the one that began first.
    ends = [(text.index(s) + len(s), text.index(s)) for s in stops if s in text]
    if ends:
        end = min(end for end, _ in ends)
        assert used == end
        assert found == text[: min(begin for e, begin in ends if e == end)]
    else:
        assert found == text
    assert "".join(pieces) == found


@given(st.text("ab", max_size=40), st.lists(st.text("ab", min_size=1, max_size=5), max_size=3))
def test_a_whole_text_holds_a_stop_exactly_when_one_of_its_beginnings_was_ended(text: str, stops: list[str]) -> None:
    vocabulary = Vocabulary.of("ab", "chars")
    ids, held = vocabulary.encode(text).tolist(), Stops(vocabulary, stops)
    first = next((n for n in range(1, len(ids) + 1) if held.end(ids[:n])), None)
    _, _, used = written(vocabulary, text, *stops)
    assert (first is None) == (not any(s in text for s in stops))
    if first is not None:
        assert first == used


def test_text_is_held_back_only_while_it_may_be_a_stop() -> None:
    _, pieces, _ = written(CHARS, "aabcc", "abcb")
    assert pieces == ["", "a", "", "", "abcc", ""]


def test_what_was_held_back_at_the_end_is_text() -> None:
    assert written(CHARS, "cab", "abc")[:2] == ("cab", ["c", "", "", "ab"])


def test_without_stops_every_token_is_shown_at_once() -> None:
    assert written(WORDS, "the cat sat")[1] == ["the", " cat", " sat", ""]


def test_bytes_that_are_not_text_are_kept_as_they_are() -> None:
    vocabulary = Vocabulary("bytes", ("41", "c3", "ff"))
    writer = Writer(Stops(vocabulary, ["B"]))
    shown = "".join(writer.add(token) for token in (0, 2, 1, 0)) + writer.finish()
    assert writer.text.encode("utf-8", "surrogateescape") == b"A\xff\xc3A"
    assert shown == "A\ufffd\ufffdA"


@pytest.mark.parametrize(("vocabulary", "stop"), [(NOTES, "61"), (IDS, "unheard")])
def test_a_field_that_can_never_be_drawn_is_no_stop(vocabulary: Vocabulary, stop: str) -> None:
    with pytest.raises(SymbolError, match=stop):
        Stops(vocabulary, [stop])


def test_a_stop_of_notes_that_is_no_note_is_refused() -> None:
    with pytest.raises(InputError, match="H9"):
        Stops(NOTES, ["H9"])
