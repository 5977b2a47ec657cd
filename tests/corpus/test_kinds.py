"""Every token kind trains: a short run on generated data beats the unigram, and its samples are files one can use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import symusic
from commands import unroll
from helpers import every_plugin

from unroll.corpus.corpus import Corpus
from unroll.corpus.music import reading, writing
from unroll.corpus.synthetic import Markov

SMALL = ["--k1", 8, "--k2", 8, "--hidden", 24, "--dense", 32, "--rows", 16, "--learning-rate", 0.01, "--threads", 1]
WORDS = ["the", "cat", "dog", "sees", "likes", "a", "bird", "sings"]
TRACKS = ["7001", "7002", "8113", "9000", "12", "55555", "31", "400"]


def generated(kind: str) -> str:
    """A text of this kind with structure to learn: a Markov chain over its symbols, in lines."""
    letters = Markov(symbols=8, concentration=0.3).text(12_000)
    lines = [letters[i : i + 12] for i in range(0, len(letters), 12)]
    symbols = {"notes": [str(60 + i) for i in range(8)], "ids": TRACKS, "words": WORDS}.get(kind)
    if symbols is None:
        return "\n".join(lines) + "\n"
    return "".join(" ".join(symbols[ord(c) - 97] for c in line) + "\n" for line in lines)


def trained(kind: str, folder: Path, source: Path | None = None) -> Path:
    corpus = source or folder / "corpus.txt"
    if source is None:
        corpus.write_text(generated(kind))
    result = unroll("train", corpus, "--kind", kind, "--batches", 150, "--out", folder / "run", "-q", *SMALL)
    assert result.code == 0, result.err
    return folder / "run"


@every_plugin("tokens")
def test_a_short_run_beats_the_unigram(name: str, tmp_path: Path) -> None:
    run = trained(name, tmp_path)
    corpus = Corpus.open(str(tmp_path / "corpus.txt"), name)
    reached = json.loads(unroll("eval", run, "--json").out)["perplexity"]
    assert max(reached.values()) < 0.9 * corpus.unigram_perplexity()


@every_plugin("tokens")
def test_a_sample_written_to_a_file_reads_back_as_what_was_drawn(name: str, tmp_path: Path) -> None:
    run = trained(name, tmp_path)
    result = unroll("sample", run, "--length", 60, "--seed", 4, "--out", tmp_path / "drawn.txt", "--json")
    drawn = json.loads(result.out)["samples"][0]
    back = Corpus.open(str(tmp_path / "drawn.txt"), name)
    vocabulary = json.loads((run / "vocabulary.json").read_text())["symbols"]
    assert [back.vocabulary.symbols[i] for i in back.ids] == [vocabulary[i] for i in drawn["tokens"]]


def piped(encoding: str, *arguments: object) -> bytes:
    """What a process writes to a pipe that it takes to be in this encoding, and so strictly."""
    command = [sys.executable, "-m", "unroll", *map(str, arguments)]
    environment = {**os.environ, "PYTHONIOENCODING": f"{encoding}:strict"}
    found = subprocess.run(command, capture_output=True, check=False, env=environment)
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.mark.parametrize("options", [[], ["--beams", 1]])
def test_bytes_come_out_of_a_pipe_as_they_were_drawn(tmp_path: Path, options: list[object]) -> None:
    (tmp_path / "corpus.bin").write_bytes(bytes(range(128, 256)) * 40)
    run = trained("bytes", tmp_path, tmp_path / "corpus.bin")
    arguments = ["sample", run, "--length", 40, *options]
    drawn = json.loads(unroll(*arguments, "--json").out)["samples"][0]["tokens"]
    assert piped("utf-8", *arguments) == bytes(128 + token for token in drawn) + b"\n"


def test_text_that_the_terminals_encoding_lacks_is_spelt_out(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("a漢 " * 1000)
    assert b"\\u6f22" in piped("cp1252", "data", "info", tmp_path / "corpus.txt")


def test_midi_files_are_imported_trained_on_and_sampled_to_a_file_that_another_library_reads(tmp_path: Path) -> None:
    folder = tmp_path / "midi"
    folder.mkdir()
    for place, line in enumerate(generated("notes").splitlines()[:40]):
        writing.write_midi([[int(n) for n in line.split()]], folder / f"{place:02d}.mid")
    run = trained("notes", tmp_path, folder)
    options = ["--prompt", "C4 E4 G4", "--length", 80, "--seed", 2]
    drawn = json.loads(unroll("sample", run, *options, "--json").out)["samples"][0]["text"]
    assert unroll("sample", run, *options, "--out", tmp_path / "tune.mid", "--tempo", 120).code == 0
    for where in ((), ("--out", tmp_path / "other.mid")):  # said before anything is drawn
        told = unroll("sample", run, *options, *where, "--tempo", 0, "--temperature", -1)
        assert told.code == 2
        assert all(word in told.err for word in ("tempo must be between", "temperature must be"))
    expected = [int(note) for note in drawn.split()]
    assert reading.read_notes(tmp_path / "tune.mid") == expected
    score = symusic.Score(str(tmp_path / "tune.mid"))
    notes = sorted((note.start, note.pitch) for track in score.tracks for note in track.notes)
    assert [pitch for _, pitch in notes] == expected


def test_a_prompt_of_notes_may_be_names_numbers_or_a_midi_file(tmp_path: Path) -> None:
    run = trained("notes", tmp_path)
    writing.write_midi([[60, 64, 67]], tmp_path / "prompt.mid")
    texts = {
        unroll("sample", run, "--length", 20, "--prompt", prompt).out
        for prompt in ("C4 E4 G4", "60 64 67", str(tmp_path / "prompt.mid"))
    }
    assert len(texts) == 1


def test_a_run_of_letters_writes_no_music(tmp_path: Path) -> None:
    run = trained("chars", tmp_path)
    result = unroll("sample", run, "--length", 5, "--out", tmp_path / "tune.mid")
    assert result.code == 2
    assert "this run's tokens are chars" in result.err
    assert not (tmp_path / "tune.mid").exists()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with subfolders, other files and bytes above 127."""
    for name, content in {
        "b.c": b"int b; /* \xe9 */\n", "a.c": b"int a;\n", "a.h": b"#define A\n", "sub/c.c": b"int c;\n",
        "sub/deep/d.c": b"int d;\n", "test/t.c": b"int t;\n", "picture.c": b"\0\0\0", ".git/x.c": b"int x;\n",
    }.items():  # fmt: skip
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "tree"


def test_a_folder_is_read_in_order_with_the_chosen_files_and_bytes_alone(tree: Path) -> None:
    corpus = Corpus.open(str(tree), ext=(".c",), exclude=("test",), ascii=True)
    assert corpus.vocabulary.decode(corpus.ids) == "int a;\nint b; /*  */\nint c;\nint d;\n"
    assert corpus.notes[0].startswith("4 text files (92 % of bytes) read; 1 file skipped")
    facts = json.loads(unroll("data", "info", tree, "--ext", ".c", "--exclude", "test", "--ascii", "--json").out)
    assert (facts["tokens"], facts["sha256"]) == (corpus.tokens, corpus.sha256)


def test_choosing_among_files_where_there_is_but_one_is_told_and_changes_nothing(tree: Path) -> None:
    one = str(tree / "a.c")
    plain, asked = Corpus.open(one), Corpus.open(one, ext=(".h",), exclude=("*",))
    assert asked.sha256 == plain.sha256
    told = [f"--ext and --exclude choose among a folder's files; {one} is one file, and is read."]
    assert [note for note in asked.notes if note not in plain.notes] == told


def test_how_a_folder_was_read_is_remembered_with_the_run(tree: Path, tmp_path: Path) -> None:
    (tree / "long.c").write_text("int long_enough_for_a_batch;\n" * 200)
    options = ["--ext", ".c", "--exclude", "test", "--ascii", "--batches", 2, "--out", tmp_path / "run", *SMALL]
    assert unroll("train", tree, *options).code == 0
    assert unroll("eval", tmp_path / "run").code == 0


def test_a_name_that_is_not_at_hand_says_how_to_bring_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("UNROLL_CACHE", str(tmp_path))
    monkeypatch.delenv("UNROLL_DATA", raising=False)
    result = unroll("train", "finnish")
    assert result.code == 2
    assert "unroll data fetch finnish --from FILE" in result.err


def test_a_local_file_under_the_papers_name_is_a_reconstruction_wherever_it_is_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("UNROLL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("UNROLL_DATA", raising=False)
    (tmp_path / "mine.txt").write_text(generated("notes"))
    assert "reconstruction" in unroll("data", "fetch", "music", "--from", tmp_path / "mine.txt").out
    assert "music (reconstruction)" in unroll("data", "info", "music").out
    told = unroll("train", "music", "--batches", 2, "--out", tmp_path / "run", *SMALL)
    assert "music (reconstruction)" in told.err
    assert 'title = "music (reconstruction)"' in (tmp_path / "run" / "run.toml").read_text()
    assert "music (reconstruction)" in unroll("eval", tmp_path / "run").out
