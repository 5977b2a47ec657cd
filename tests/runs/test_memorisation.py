"""What a sample shares with the training data: by the library, by the command, and against a scan of the text."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from commands import Result, tiny_run, unroll
from hypothesis import given
from hypothesis import strategies as st

import unroll as package
from unroll.base.errors import ConfigurationError, SymbolError
from unroll.runs import memorisation
from unroll.runs.memorisation import Matches, memorised


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> package.Run:
    return package.load(tiny_run(tmp_path_factory.mktemp("memorisation")), "cpu")


def train_text(run: package.Run) -> str:
    return run.vocabulary.decode(run.corpus.train_ids(run.experiment.split_seed))


def scanned(text: str, sample: str) -> list[int]:
    return [max(n for n in range(len(sample) - i + 1) if sample[i : i + n] in text) for i in range(len(sample))]


def piped(run: package.Run, content: bytes, *options: str) -> Result:
    with patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(content))):
        return unroll("memorised", run.path, "-", *options)


def test_every_position_has_the_longest_match_that_a_scan_of_the_train_set_finds(run: package.Run) -> None:
    drawn = package.sample(run, length=200, seed=3)
    (answer,) = memorised(run, [drawn.text])
    assert answer.matches.lengths.tolist() == scanned(train_text(run), drawn.text)
    assert answer.longest is not None
    assert answer.longest.tokens == tuple(drawn.tokens[answer.longest.at :][: answer.matches.longest])
    assert drawn.text[answer.longest.at :].startswith(answer.longest.text)


def test_an_answer_is_short_where_it_is_shown_in_python(run: package.Run) -> None:
    for length in (3, 200):
        (answer,) = memorised(run, [package.sample(run, length=length, seed=3).text])
        assert f"Matches(tokens={length}, longest={answer.matches.longest})" in repr(answer)
        assert len(repr(answer)) < 300 + length


def test_the_longest_stretch_stands_where_the_answer_says_and_nowhere_before(run: package.Run) -> None:
    corpus = run.corpus
    whole = corpus.vocabulary.decode(corpus.ids)
    for seed in range(5):
        (answer,) = memorised(run, [package.sample(run, length=100, seed=seed).text])
        assert answer.longest is not None
        text, first = answer.longest.text, answer.longest.place
        # The split rotates the corpus, so a stretch may run over its end.
        assert (whole + whole)[first:].startswith(text)
        split = corpus.split(run.experiment.split_seed)
        train = train_text(run)
        positions = [p for p in range(len(train)) if train.startswith(text, p)]
        assert answer.longest.times == len(positions)
        assert first == min((p + split.offset) % corpus.tokens for p in positions)


def test_a_copied_page_is_found_whole_between_what_was_not_copied(run: package.Run) -> None:
    text = train_text(run)
    page = text[700:1000]
    (answer,) = memorised(run, ["aaaaahhhhh" + page + "hhhhhaaaaa"])
    assert answer.longest is not None
    assert page in answer.longest.text
    assert answer.matches.longest >= 300 > answer.test_longest
    assert answer.matches.covered(100) >= 300 / 320


def test_samples_are_answered_one_by_one_as_texts_or_as_ids(run: package.Run) -> None:
    texts = ["abcabc", "hgfedcba", train_text(run)[:50]]
    ids = [run.vocabulary.encode(text) for text in texts]
    answers = [answer.facts() for answer in memorised(run, texts)]
    assert answers == [answer.facts() for answer in memorised(run, ids)]
    assert answers == [answer.facts() for text in texts for answer in memorised(run, [text])]
    assert [answer["tokens"] for answer in answers] == [6, 8, 50]


@pytest.mark.parametrize("length", [1, 7, 100, 300, 5_000])
def test_the_baseline_is_the_test_set_in_stretches_as_long_as_the_sample(run: package.Run, length: int) -> None:
    test = run.vocabulary.decode(run.corpus.test_ids(run.experiment.split_seed))
    assert len(test) == 300
    (answer,) = memorised(run, [("abcdefgh" * 1000)[:length]])
    size = min(length, 300)
    assert [matches.tokens for matches in answer.test] == [size] * (300 // size)
    for number, matches in enumerate(answer.test[:3]):
        stretch = test[number * size : (number + 1) * size]
        assert matches.lengths.tolist() == scanned(train_text(run), stretch)
    assert answer.test_longest == sorted(m.longest for m in answer.test)[len(answer.test) // 2]


@given(st.lists(st.integers(0, 8), min_size=1, max_size=40), st.integers(1, 9))
def test_covered_is_the_share_of_tokens_inside_a_match_that_is_long_enough(wanted: list[int], least: int) -> None:
    lengths = [min(length, len(wanted) - i) for i, length in enumerate(wanted)]
    inside = {j for i, length in enumerate(lengths) if length >= least for j in range(i, i + length)}
    assert Matches(np.array(lengths)).covered(least) == pytest.approx(len(inside) / len(lengths))


def test_ids_that_the_training_data_does_not_have_match_nothing(run: package.Run) -> None:
    (answer,) = memorised(run, [np.array([99, 98, 99])])
    assert answer.longest is None
    assert answer.matches.lengths.tolist() == [0, 0, 0]
    assert answer.facts()["stretch"] is None


def test_a_sample_without_tokens_is_refused_by_its_number(run: package.Run) -> None:
    with pytest.raises(SymbolError, match=r"at least 1 token\. Sample 1 has none"):
        memorised(run, ["abc", ""])


def test_the_order_is_kept_and_a_damaged_one_is_made_again(
    run: package.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNROLL_CACHE", str(tmp_path))
    monkeypatch.setattr(memorisation, "CACHED_FROM", 1)
    messages: list[str] = []

    def answer() -> dict[str, object]:
        return memorised(run, ["abcabcabc"], messages.append)[0].facts()

    fresh = answer()
    (kept,) = (tmp_path / "suffixes").iterdir()
    assert kept.stat().st_size == 32 + 4 * 2700
    assert answer() == fresh
    assert [message[:27] for message in messages] == ["Sorting the 2,700 tokens of"]
    whole = kept.read_bytes()
    for damaged in (whole[:-4], whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:], b""):
        kept.write_bytes(damaged)
        messages.clear()
        assert answer() == fresh
        assert len(messages) == 1
        assert kept.read_bytes() == whole


def put_in_place_of(path: Path, what: str) -> None:
    whole = path.read_bytes()
    path.unlink()
    if what == "a named pipe":
        os.mkfifo(path)
    if what == "a link":
        path.with_name("target").write_bytes(whole)
        path.symlink_to("target")
    if what == "a sparse file":
        with path.open("wb") as file:
            file.truncate(2**40)
    if what == "places that are none":
        order = np.frombuffer(whole[32:], np.int32).copy()
        order[5] = len(order)
        path.write_bytes(hashlib.sha256(order.data).digest() + order.tobytes())


@pytest.mark.parametrize("what", ["a named pipe", "a link", "a sparse file", "places that are none"])
def test_an_order_that_is_none_is_neither_waited_for_nor_believed_nor_written_through(
    run: package.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setenv("UNROLL_CACHE", str(tmp_path))
    monkeypatch.setattr(memorisation, "CACHED_FROM", 1)
    expected = memorised(run, ["abcabcabc"])[0].facts()
    (kept,) = (tmp_path / "suffixes").iterdir()
    whole = kept.read_bytes()
    put_in_place_of(kept, what)
    assert memorised(run, ["abcabcabc"])[0].facts() == expected
    assert not kept.is_symlink()
    assert kept.read_bytes() == whole


def test_what_killed_processes_left_of_orders_is_cleared(
    run: package.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNROLL_CACHE", str(tmp_path))
    monkeypatch.setattr(memorisation, "CACHED_FROM", 1)
    (tmp_path / "suffixes").mkdir()
    name = f"{'0123456789' * 4}.int32"
    for left in (f"{name}.1f-0123abcd.partial", f"{name}.4711.partial", "mine.partial"):
        (tmp_path / "suffixes" / left).write_text("half a file")
        os.utime(tmp_path / "suffixes" / left, (1, 1))
    memorised(run, ["abc"])
    assert {path.suffix for path in (tmp_path / "suffixes").iterdir()} == {".int32", ".partial"}
    assert [path.name for path in (tmp_path / "suffixes").glob("*.partial")] == ["mine.partial"]


def test_where_the_cache_cannot_be_written_the_answer_is_the_same_and_that_is_said_with_its_remedy(
    run: package.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = memorised(run, ["abc"])[0].facts()
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("UNROLL_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(memorisation, "CACHED_FROM", 1)
    messages: list[str] = []
    assert memorised(run, ["abc"], messages.append)[0].facts() == expected
    assert "Sorting the 2,700 tokens" in messages[0]
    assert "sorted anew each time. The environment variable UNROLL_CACHE names another folder" in messages[1]


def test_the_command_answers_for_a_file_as_the_library_does(run: package.Run, tmp_path: Path) -> None:
    file = tmp_path / "sample.txt"
    file.write_text(train_text(run)[100:180] + "aaaa")
    result = unroll("memorised", run.path, file, "--json")
    assert result.code == 0
    assert json.loads(result.out) == memorised(run, [file.read_text()])[0].facts()


def test_the_command_takes_what_sample_writes_into_a_pipe(run: package.Run) -> None:
    drawn = unroll("sample", run.path, "--length", 150, "--seed", 2).out
    assert drawn.endswith("\n")
    result = piped(run, drawn.encode(), "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out) == memorised(run, [drawn[:-1]])[0].facts()


def test_the_command_shows_the_stretch_its_positions_and_the_baseline(run: package.Run) -> None:
    copied = train_text(run)[100:180]
    (answer,) = memorised(run, [copied])
    assert answer.longest is not None
    lines = piped(run, copied.encode()).out.splitlines()
    assert lines[0] == "longest stretch of the 80 tokens that stands in the training data: 80"
    assert lines[1] == f"from token 0 on; in the corpus once, from token {answer.longest.place:,} on:"
    assert lines[2] == f"  | {copied}"
    assert lines[3].startswith(f"test text of the same length: {answer.test_longest} (the middle of 3: ")
    assert lines[-2].split() == ["this", "text", "100.0%", "100.0%", "0.0%"]
    long = piped(run, copied.encode() * 10).out
    assert "test text of 300 tokens, all there is: " in long


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"abcxyz", "Not in the vocabulary of this run: 'x' (U+0078) at position 3"),
        (b"", "Standard input is empty"),
        (b"abc\xff", "Standard input is not utf-8: byte 0xFF at offset 3"),
    ],
)
def test_piped_text_that_cannot_be_looked_up_is_refused_in_words(run: package.Run, content: bytes, says: str) -> None:
    result = piped(run, content)
    assert (result.code, result.out) == (2, "")
    assert says in result.err


def test_a_file_with_unknown_symbols_or_no_file_is_refused_in_words(run: package.Run, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("abcZ")
    assert "'Z' (U+005A) at position 3" in unroll("memorised", run.path, tmp_path / "other.txt").err
    missing = unroll("memorised", run.path, tmp_path / "missing.txt")
    assert missing.code == 2
    assert "No such file" in missing.err


def test_a_run_moved_without_its_corpus_says_so(tmp_path: Path) -> None:
    shutil.move(tiny_run(tmp_path), tmp_path / "moved")
    (tmp_path / "corpus.txt").rename(tmp_path / "elsewhere.txt")
    result = unroll("memorised", tmp_path / "moved", tmp_path / "elsewhere.txt")
    assert result.code == 2
    assert f"The corpus of {tmp_path / 'moved'} is not at hand. Bring it back" in result.err


def test_the_corpus_itself_is_answered_whole_though_its_test_set_was_held_out(run: package.Run) -> None:
    answer = json.loads(unroll("memorised", run.path, run.experiment.corpus, "--json").out)
    assert answer["tokens"] == 3000
    assert answer["longest"] < 3000
    assert answer["covered"]["100"] >= 0.9


@pytest.mark.parametrize("kind", ["bytes", "words", "notes"])
def test_tokens_of_other_kinds_are_looked_up_as_the_run_reads_them(kind: str, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    lines = [" ".join(str(60 + note) for note in generator.integers(0, 12, 20)) for _ in range(200)]
    (tmp_path / "corpus.txt").write_text("\n".join(lines) + "\n")
    run = package.load(tiny_run(tmp_path, "--kind", kind), "cpu")
    stretch = run.corpus.train_ids(run.experiment.split_seed)[500:530]
    (memory,) = memorised(run, [stretch])
    assert memory.matches.lengths[0] == 30
    answer = json.loads(piped(run, run.vocabulary.render(stretch), "--json").out)
    assert answer["longest"] >= 29


def test_one_text_given_for_a_list_of_texts_is_not_taken_for_many_of_a_character(run: package.Run) -> None:
    with pytest.raises(ConfigurationError, match="takes a list of texts"):
        memorised(run, "ab")
