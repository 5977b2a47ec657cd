"""Symbols of a text that a run does not know are refused, or left out, counted and said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import tiny_run, unroll

from unroll import Corpus, Run, load, perplexity, score, surprisals
from unroll.base.errors import ConfigurationError, SymbolError
from unroll.corpus.tokens import UNKNOWN, Vocabulary
from unroll.runs.known_text import encoded, known_text


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run on a text of four symbols."""
    return load(tiny_run(tmp_path, batches=3))


@pytest.fixture
def foreign(run: Run, tmp_path: Path) -> tuple[str, str]:
    """A text with symbols that the run does not know, and the same text without them."""
    known = "".join(run.vocabulary.symbols) * 9
    return f"É{known[:7]}éé{known[7:]}!", known


def test_a_text_without_what_is_unknown_has_the_score_of_a_text_that_never_had_it(
    run: Run, foreign: tuple[str, str]
) -> None:
    text, bare = foreign
    for sample in ("windowed", "progressive"):
        assert score(run, text, sample, unknown="skip") == score(run, bare, sample)
    skipped = surprisals(run, text, unknown="skip")
    assert skipped.skipped == 4
    assert skipped.total == surprisals(run, bare).total
    assert surprisals(run, bare).skipped == 0


def test_the_perplexity_of_another_text_leaves_out_what_is_unknown(
    run: Run, foreign: tuple[str, str], tmp_path: Path
) -> None:
    text, bare = foreign
    (tmp_path / "text.txt").write_text(text)
    (tmp_path / "bare.txt").write_text(bare)
    (ours,), (same,) = (perplexity(run, corpus=tmp_path / f"{name}.txt", unknown="skip") for name in ("text", "bare"))
    assert ours == same


def test_what_is_unknown_is_refused_unless_it_is_to_be_skipped(
    run: Run, foreign: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text(foreign[0])
    for refused in (
        lambda: score(run, foreign[0]),
        lambda: surprisals(run, foreign[0]),
        lambda: perplexity(run, corpus=tmp_path / "text.txt"),
    ):
        with pytest.raises(SymbolError, match=r"'É' \(U\+00C9\) at position 0.*unknown=\"skip\""):
            refused()
    with pytest.raises(ConfigurationError, match=r"unknown must be refuse or skip\. Got 'drop'"):
        score(run, foreign[1], unknown="drop")


def test_the_commands_say_and_count_what_was_skipped(run: Run, foreign: tuple[str, str], tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text(foreign[0])
    note = "4 of 40 tokens are not in this run's vocabulary and were left out: 'é' (U+00E9) 2 times"
    note = note.replace("40", f"{len(foreign[0])}")
    for command in (["score", run.path, file], ["eval", run.path, "--corpus", file]):
        refused = unroll(*command)
        assert refused.code == 2
        assert "--unknown skip" in refused.err
        result = unroll(*command, "--unknown", "skip")
        assert result.code == 0, result.err
        assert note in result.err
        found = json.loads(unroll(*command, "--unknown", "skip", "--json").out)
        assert found["skipped"] == 4
    assert "4 more left out" in unroll("score", run.path, file, "--unknown", "skip").out
    assert json.loads(unroll("eval", run.path, "--json").out)["skipped"] == 0
    assert unroll("score", run.path, file, "--unknown", "some").code == 2


def test_a_page_of_a_skipped_text_shows_the_tokens_that_were_scored(
    run: Run, foreign: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text(foreign[0])
    page = tmp_path / "page.html"
    result = unroll("score", run.path, tmp_path / "text.txt", "--unknown", "skip", "--out", page)
    assert result.code == 0, result.err
    assert "4 more left out" in page.read_text()


def test_a_text_of_which_nothing_is_known_is_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(SymbolError, match=r"at least 2 tokens\. Got 0"):
        score(run, "ÄÖÜ" * 20, unknown="skip")
    (tmp_path / "text.txt").write_text("ÄÖÜ" * 20)
    assert unroll("eval", run.path, "--corpus", tmp_path / "text.txt", "--unknown", "skip").code == 2


def test_a_run_that_has_a_symbol_for_the_unknown_reads_it_unless_it_is_to_be_skipped() -> None:
    vocabulary = Vocabulary.of("aaabbbc", "chars", min_count=2)
    assert UNKNOWN in vocabulary.symbols
    assert len(encoded(vocabulary, "abz").ids) == 3
    skipped = encoded(vocabulary, "abz", "skip")
    assert vocabulary.decode(skipped.ids) == "ab"
    assert skipped.skipped == {"z": 1}


def test_fields_between_separators_are_skipped_whole() -> None:
    vocabulary = Vocabulary.of("a b,c\nd,c\n", "ids", separator=",")
    read = encoded(vocabulary, "a b,x y,c\n", "skip")
    assert vocabulary.decode(read.ids) == "a b,c\n"
    assert read.note == "1 of 4 tokens are not in this run's vocabulary and were left out: 'x y' 1 time."


def test_a_text_of_another_kind_is_refused_for_that() -> None:
    words = Corpus.from_text("to be or not", kind="words")
    for unknown in ("refuse", "skip"):
        with pytest.raises(SymbolError, match=r"read as words, the run as chars\. Use kind=") as refused:
            known_text(Vocabulary.of("to be", "chars"), words.ids, words.vocabulary, unknown)
        assert "unknown" not in str(refused.value)


def test_a_long_text_names_the_symbols_that_are_skipped_most() -> None:
    vocabulary = Vocabulary.of("ab", "chars")
    note = encoded(vocabulary, "ab" + "".join(c * (n + 1) for n, c in enumerate("cdefghi")), "skip").note
    assert note is not None
    assert "'i' (U+0069) 7 times, 'h' (U+0068) 6 times" in note
    assert note.endswith("and 2 other symbols.")
