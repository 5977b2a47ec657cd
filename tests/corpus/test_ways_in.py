"""Corpora that are no path: standard input, an address, an iterable in Python; and fields between separators."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import TINY, unroll
from hypothesis import given
from hypothesis import strategies as st

from unroll import Corpus, Experiment, Scheme, train
from unroll.base.errors import ConfigurationError, CorpusError, RunError
from unroll.corpus import sources
from unroll.corpus.tokens import Vocabulary, load

TEXT = b"to be or not to be " * 100


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch):
    def pipe(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return pipe


def test_standard_input_is_trained_on_and_what_is_lost_with_it_is_said(tmp_path: Path, piped) -> None:
    piped(TEXT)
    result = unroll("train", "-", "--batches", 3, "--out", tmp_path / "run", *TINY)
    assert result.code == 0
    assert "this run cannot be resumed" in result.err
    result = unroll("eval", tmp_path / "run")
    assert result.code == 2
    assert "It came through standard input, which is gone. Save the text to a file" in result.err
    (tmp_path / "saved.txt").write_bytes(TEXT)
    toml = tmp_path / "run" / "run.toml"
    toml.write_text(toml.read_text().replace('source = "-"', f'source = "{tmp_path}/saved.txt"'))
    assert unroll("eval", tmp_path / "run").code == 0
    piped(TEXT)
    result = unroll("eval", tmp_path / "run", "--corpus", "-")
    assert (result.code, result.err) == (0, "")


def test_standard_input_is_checked_as_a_file_is_and_bounded(piped, monkeypatch: pytest.MonkeyPatch) -> None:
    piped(gzip.compress(TEXT))
    assert Corpus.open("-").tokens == len(TEXT)
    for content, words in ((b"", "standard input is empty"), (b"%PDF-1.7\n", "standard input is a PDF document")):
        piped(content)
        assert words in unroll("data", "info", "-").err
    monkeypatch.setattr(sources, "MOST_PIPED", 100)
    piped(TEXT)
    assert "Standard input has more than 100 bytes" in unroll("data", "info", "-").err


@pytest.mark.parametrize("address", ["https://example.org/book.txt", "s3://bucket/book", "HTTP://EXAMPLE.ORG"])
def test_an_address_is_to_be_downloaded_first(address: str) -> None:
    with pytest.raises(CorpusError, match="is an address, and a corpus is a file: download it"):
        Corpus.open(address)


def test_texts_and_ids_come_from_python_as_they_would_from_a_file(tmp_path: Path) -> None:
    assert Corpus.from_text(line for line in ("to be ", "or not ")).sha256 == Corpus.from_text("to be or not ").sha256
    (tmp_path / "ids.txt").write_text("7001 12 7001 \n 12")
    from_file = Corpus.open(str(tmp_path / "ids.txt"), kind="ids")
    for ids in ([7001, 12, 7001, "\n", 12], iter(["7001", "12", "7001", "\n", "12"])):
        corpus = Corpus.from_ids(ids)
        assert (corpus.sha256, corpus.vocabulary) == (from_file.sha256, from_file.vocabulary)
    numbers = np.arange(600) % 7
    assert Corpus.from_ids(numbers).ids.tolist() == numbers.tolist()
    for wrong in (["New York"], ["a", ""], ["a\tb"]):
        with pytest.raises(CorpusError, match="An id has at least one character and no white space"):
            Corpus.from_ids(wrong)


def test_an_opened_corpus_in_an_experiment_is_told_where_it_belongs(tmp_path: Path) -> None:
    corpus = Corpus.from_text("to be or not to be " * 100)
    with pytest.raises(ConfigurationError, match=r"Got a Corpus\. An open one goes to the training .* unroll\.train\("):
        Experiment(corpus=corpus)
    small = Experiment(batches=2, hidden=8, dense=8, rows=4, threads=1, scheme=Scheme(k1=5, k2=10))
    assert train(small, tmp_path / "run", corpus).experiment.tokens == 1900


# --- fields between separators ----------------------------------------------------------------------------------------


FIELDS = "a, New York ,3\n\nb,,4\r\na,New York,3"


@pytest.mark.parametrize(("separator", "between"), [(",", ","), ("tab", "\t"), ("|", "|"), ("]", "]"), ("^", "^")])
def test_fields_between_separators_lose_the_white_space_around_them(separator: str, between: str) -> None:
    kind = load("ids", separator)
    counts = kind.counts([FIELDS.replace(",", between)])
    assert counts == {"a": 2, "New York": 2, "3": 2, "b": 1, "4": 1, "\n": 3}
    symbols = sorted(counts)
    ids = np.concatenate(list(kind.encode(["New York" + between + "b\na"], symbols)))
    assert kind.decode(ids, symbols) == f"New York{between}b\na"


@given(st.lists(st.sampled_from(list("ab ,\n")), max_size=60), st.integers(1, 7))
def test_pieces_are_cut_anywhere_and_the_fields_stay_whole(letters: list[str], size: int) -> None:
    text = "".join(letters)
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    assert load("ids", ",").counts(pieces) == load("ids", ",").counts([text])


def test_a_run_on_fields_remembers_its_separator(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("17,open door,ok\n" * 200)
    options = ["--kind", "ids", "--separator", ",", "--batches", 3, "-q", *TINY]
    assert unroll("train", tmp_path / "log.csv", *options, "--out", tmp_path / "run").code == 0
    assert unroll("eval", tmp_path / "run").code == 0
    drawn = unroll("sample", tmp_path / "run", "--length", 8, "--prompt", "17,open door", "--temperature", 0.01)
    assert drawn.code == 0, drawn.err
    vocabulary = (tmp_path / "run" / "vocabulary.json").read_text()
    assert '"separator": ","' in vocabulary
    read = Vocabulary.from_json(vocabulary, "vocabulary.json")
    assert read.decode(read.encode("17,ok\n17")) == "17,ok\n17"
    for wrong in ('",,"', '"\\n"', "7", '""'):
        with pytest.raises(RunError, match=r"separator in vocabulary\.json must be one character"):
            Vocabulary.from_json(vocabulary.replace('","', wrong), "vocabulary.json")


def test_vocabularies_with_another_separator_are_others_and_those_without_are_what_they_were() -> None:
    plain, cut = Vocabulary("ids", ("1", "2")), Vocabulary("ids", ("1", "2"), ",")
    assert plain.digest != cut.digest
    assert "separator" not in plain.to_json()


@pytest.mark.parametrize("separator", ["", ",,", "\n", "\0"])
def test_what_cannot_separate_is_refused(separator: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1,2\n")
    with pytest.raises(ConfigurationError, match="separator must be one character"):
        Corpus.open(str(tmp_path / "a.txt"), "ids", separator=separator)
    with pytest.raises(ConfigurationError, match="separator must be one character"):
        Experiment(separator=separator)
    with pytest.raises(ConfigurationError, match="the kind chars has none"):
        Corpus.open(str(tmp_path / "a.txt"), "chars", separator=",")
