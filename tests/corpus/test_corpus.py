"""A corpus is read as its owner meant it, or refused in words; the split is exact and never depends on a run's seed."""

from __future__ import annotations

import codecs
import hashlib
import math
import os
import sysconfig
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from helpers import tiny, tiny_corpus
from hypothesis import given
from hypothesis import strategies as st

from unroll import Corpus
from unroll.base.errors import CorpusError
from unroll.corpus import datasets
from unroll.corpus.batches import Batches
from unroll.corpus.corpus import least_tokens

texts = st.text(alphabet="abcdé\n", min_size=20, max_size=400)
split_seeds = st.integers(0, 2**63 - 1)


def written(folder: Path, content: bytes, name: str = "text.txt") -> str:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
    return str(folder / name)


def refused(source: str, **options: str) -> str:
    with pytest.raises(CorpusError) as told:
        Corpus.open(source, **options)
    return str(told.value)


@given(texts, split_seeds)
def test_train_and_test_set_are_disjoint_and_together_the_rotated_corpus(text: str, seed: int) -> None:
    corpus = Corpus.from_text(text)
    split = corpus.split(seed)
    assert split.train + split.test == corpus.tokens
    together = np.concatenate((corpus.train_ids(seed), corpus.test_ids(seed)))
    assert np.array_equal(together, np.roll(corpus.ids, -split.offset))


@given(st.integers(20, 300_000), split_seeds)
def test_the_test_set_is_the_last_11_100_tokens_or_the_last_tenth(tokens: int, seed: int) -> None:
    split = Corpus.from_text("ab" * (tokens // 2) + "a" * (tokens % 2)).split(seed)
    assert split.test == (11_100 if tokens >= 111_000 else tokens // 10)
    assert 0 <= split.offset < tokens


@given(st.one_of(st.integers(1, 500), st.integers(99_000, 101_000)), st.integers(0, 11_100))
def test_the_least_number_of_tokens_gives_both_sets_what_they_need_and_one_less_does_not(train: int, test: int) -> None:
    def sizes(tokens: int) -> tuple[int, int]:
        part = 11_100 if tokens >= 111_000 else tokens // 10
        return tokens - part, part

    least = least_tokens(train, test)
    enough = [sizes(tokens)[0] >= train and sizes(tokens)[1] >= test for tokens in (least - 1, least)]
    assert enough == [False, True]


def test_the_split_offset_is_drawn_from_the_split_seed() -> None:
    corpus = tiny_corpus(tokens=5000)
    assert len({corpus.split(seed).offset for seed in range(20)}) >= 19
    assert corpus.split(3) == corpus.split(3)


def test_the_split_does_not_depend_on_the_runs_seed() -> None:
    corpus = tiny_corpus(tokens=500)
    first, second = (Batches([tiny(seed=seed)], [corpus], "cpu") for seed in (0, 1))
    assert first[0].inputs_MTB.equal(second[0].inputs_MTB)
    other = Batches([tiny(split_seed=1)], [corpus], "cpu")
    assert not first[0].inputs_MTB.equal(other[0].inputs_MTB)


def test_sha256_is_that_of_the_files_bytes(tmp_path: Path) -> None:
    for content in (b"plain", codecs.BOM_UTF8 + "é".encode(), b"a\r\nb"):
        source = written(tmp_path, content)
        assert Corpus.open(source).sha256 == hashlib.sha256(content).hexdigest()


def test_a_file_is_read_as_it_is(tmp_path: Path) -> None:
    corpus = Corpus.open(written(tmp_path, "naïve\n日本 🎈".encode()))
    assert corpus.vocabulary.decode(corpus.ids) == "naïve\n日本 🎈"
    assert (corpus.name, corpus.source) == ("text", str(tmp_path / "text.txt"))
    assert corpus.notes == ()


def test_a_folders_own_files_come_sorted_and_then_its_subfolders(tmp_path: Path) -> None:
    for name, content in {"b.txt": "2", "a.txt": "1", "z/a.txt": "5", "m/n.txt": "4", "m/a.txt": "3"}.items():
        written(tmp_path, content.encode(), name)
    for skipped in (".hidden", ".git/config", "m/.x"):
        written(tmp_path, b"hidden", skipped)
    written(tmp_path, b"\xff\x00", "c.png")
    written(tmp_path, b"\0z", "d.bin")
    corpus = Corpus.open(str(tmp_path))
    assert corpus.vocabulary.decode(corpus.ids) == "12345"
    assert corpus.notes == (
        "5 text files (56 % of bytes) read; 2 files skipped, not utf-8 text: 2 binary files (44 % of bytes).",
    )


def test_one_file_is_not_told_as_several_and_none_skipped_not_at_all(tmp_path: Path) -> None:
    written(tmp_path, b"text")
    assert Corpus.open(str(tmp_path)).notes == ("1 text file read.",)


def test_a_folder_without_text_is_refused(tmp_path: Path) -> None:
    assert "has no text in it (0 files" in refused(str(tmp_path))
    written(tmp_path, b"\xff\xff", "picture")
    written(tmp_path, b"", "empty.txt")
    assert "has no text in it (2 files" in refused(str(tmp_path))


def test_a_byte_order_mark_is_left_out_and_told(tmp_path: Path) -> None:
    corpus = Corpus.open(written(tmp_path, codecs.BOM_UTF8 + b"text"))
    assert corpus.vocabulary.decode(corpus.ids) == "text"
    assert "byte-order mark (3 bytes)" in corpus.notes[0]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_named_and_read_when_asked_for(tmp_path: Path, encoding: str) -> None:
    source = written(tmp_path, "\ufeffnaïve".encode(encoding))
    assert "is UTF-16" in refused(source)
    assert 'encoding="utf-16"' in refused(source)
    corpus = Corpus.open(source, encoding="utf-16")
    assert corpus.vocabulary.decode(corpus.ids) == "naïve"
    assert corpus.encoding == "utf-16"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_files_of_a_folder_may_each_have_a_mark_and_an_order_of_bytes(tmp_path: Path, encoding: str) -> None:
    for name, order in (("a", "le"), ("b", "be"), ("c", "le")):
        written(tmp_path, f"\ufeffnaïve {name} ".encode(f"{encoding}-{order}"), f"{name}.txt")
    corpus = Corpus.open(str(tmp_path), encoding=encoding)
    assert corpus.vocabulary.decode(corpus.ids) == "naïve a naïve b naïve c "


def test_utf_16_without_its_mark_is_refused_for_a_file_and_skipped_in_a_folder(tmp_path: Path) -> None:
    source = written(tmp_path, "naïve".encode("utf-16-le"))
    words = refused(source, encoding="utf-16")
    assert "is not utf-16: " in words
    assert "encoding=" in words
    assert "(1 file skipped, not text: 1 binary file)" in refused(str(tmp_path), encoding="utf-16")


def test_latin_1_is_refused_with_the_byte_and_its_offset(tmp_path: Path) -> None:
    source = written(tmp_path, b"x" * 1234 + b"\xe9t\xe9", "latin.txt")
    words = refused(source)
    assert "is not utf-8: byte 0xE9 at offset 1,234" in words
    assert "latin-1" in words
    assert Corpus.open(source, encoding="latin-1").tokens == 1237


@pytest.mark.parametrize("encoding", ["utf-9", "hex", "rot13", ""])
def test_an_encoding_that_is_none_is_refused_for_files_and_folders(tmp_path: Path, encoding: str) -> None:
    for source in (written(tmp_path, b"text"), str(tmp_path)):
        assert "is not known to Python" in refused(source, encoding=encoding)


def test_a_git_lfs_pointer_is_recognised(tmp_path: Path) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    assert "Git-LFS pointer" in refused(written(tmp_path, pointer))


@pytest.mark.parametrize("start", [b"<!DOCTYPE html>", b"\n  <html lang=en>", codecs.BOM_UTF8 + b"<!doctype html>"])
def test_a_saved_html_page_is_recognised(tmp_path: Path, start: bytes) -> None:
    assert "saved HTML page" in refused(written(tmp_path, start + b"<p>text</p>"))


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    assert "is empty" in refused(written(tmp_path, b""))
    with pytest.raises(CorpusError, match="is empty"):
        Corpus.from_text("")


def test_nul_bytes_are_refused_with_their_offset(tmp_path: Path) -> None:
    assert "NUL character at position 3" in refused(written(tmp_path, b"abc\0def"))


def test_a_missing_path_is_refused_with_the_names_that_are_close() -> None:
    assert "Did you mean stdlib?" in refused("stdlb")


def test_a_pipe_is_told_from_what_is_not_there(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "is neither a file nor a folder" in refused(str(tmp_path / "pipe"))


def test_windows_line_ends_are_counted_and_kept(tmp_path: Path) -> None:
    corpus = Corpus.open(written(tmp_path, b"one\r\ntwo\r\nthree\n"))
    assert corpus.notes[0].startswith("2 Windows line ends (CRLF)")
    assert "\r" in corpus.vocabulary.symbols


def test_many_symbols_are_noted_and_min_count_gathers_the_rare_ones() -> None:
    text = "".join(chr(0x4E00 + i) for i in range(1200)) + "abc" * 10
    (note,) = Corpus.from_text(text).notes
    assert "1,203 different symbols, 1,200 of them fewer than 5 times" in note
    gathered = Corpus.from_text(text, min_count=5)
    assert gathered.vocabulary.symbols == ("a", "b", "c", "\ufffd")
    assert "1,200 tokens rarer than --min-count 5" in gathered.notes[0]
    assert gathered.tokens == len(text)


def test_an_experiment_takes_over_the_corpuss_facts(tmp_path: Path) -> None:
    corpus = Corpus.open(written(tmp_path, b"to be or not to be " * 5), min_count=6)
    described = corpus.described_in(tiny(kind="chars", min_count=1))
    assert described.corpus == str(tmp_path / "text.txt")
    assert (described.sha256, described.tokens, described.unique) == (corpus.sha256, 95, corpus.unique)
    assert described.min_count == 6


@pytest.fixture(scope="module")
def stdlib() -> bytes:
    return b"".join(path.read_bytes() for path in datasets.stdlib())


def test_stdlib_is_the_same_each_time_and_needs_no_network(stdlib: bytes) -> None:
    assert Corpus.open("stdlib").sha256 == Corpus.open("stdlib").sha256 == hashlib.sha256(stdlib).hexdigest()
    assert len(stdlib) > 1_000_000


def test_stdlib_holds_the_library_and_no_tests(stdlib: bytes) -> None:
    root = Path(sysconfig.get_paths()["stdlib"])
    assert (root / "argparse.py").read_bytes() in stdlib
    assert (root / "json/decoder.py").read_bytes() in stdlib
    own_tests = [*root.glob("test/test_*.py"), *root.glob("unittest/test/*.py"), *root.glob("idlelib/idle_test/*.py")]
    long_enough = [path for path in own_tests if path.stat().st_size > 2000][:50]
    assert not [path for path in long_enough if path.read_bytes() in stdlib]


def test_the_synthetic_sources_open_by_name() -> None:
    corpus = Corpus.open("markov")
    assert (corpus.tokens, corpus.unique, corpus.source) == (1_000_000, 8, "markov")


def test_unigram_perplexity_equals_a_plain_count() -> None:
    corpus = tiny_corpus(seed=4, symbols=5, tokens=400)
    train, test = corpus.train_ids(0).tolist(), corpus.test_ids(0).tolist()
    ones = Counter(train)
    frequency = {s: (ones[s] + 1) / (len(train) + 5) for s in range(5)}
    unigram = math.exp(-sum(math.log(frequency[s]) for s in test) / len(test))
    assert corpus.unigram_perplexity() == pytest.approx(unigram, rel=1e-12)


def test_bytes_are_one_token_each_the_mark_included(tmp_path: Path) -> None:
    content = codecs.BOM_UTF8 + b"text\x00\xff"
    corpus = Corpus.open(written(tmp_path, content), kind="bytes")
    assert corpus.vocabulary.render(corpus.ids) == content
