"""On the corpora of the paper, where they are at hand: make test-data DATA=folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import symusic
from commands import unroll

from unroll.corpus.corpus import Corpus

FOLDER = Path(os.environ.get("UNROLL_DATA") or "no-folder-was-given")
pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(not FOLDER.is_dir(), reason=f"the paper's corpora are not at hand ({FOLDER})"),
]


def test_linux_is_the_papers_own_file_to_the_byte() -> None:
    facts = json.loads(unroll("data", "info", FOLDER / "linux.txt", "--json").out)
    assert (facts["tokens"], facts["unique"], facts["paper"]) == (6_546_665, 97, True)
    assert facts["test"] == 11_100


@pytest.mark.parametrize(("name", "tokens", "unique"), [("english", 6_287_601, 88), ("finnish", 11_352_776, 106)])
def test_reconstructions_have_the_counts_that_their_makers_state(name: str, tokens: int, unique: int) -> None:
    facts = json.loads(unroll("data", "info", FOLDER / f"{name}.txt", "--json").out)
    assert (facts["tokens"], facts["unique"], facts["paper"]) == (tokens, unique, False)


@pytest.mark.parametrize("scheme", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["english", "finnish", "linux"])
def test_every_scheme_beats_the_bigram_on_real_text(name: str, scheme: int, tmp_path: Path) -> None:
    small = ["--hidden", 96, "--dense", 128, "--k1", 20, "--k2", 40, "--learning-rate", 0.005, "--test-tokens", 2000]
    corpus = FOLDER / f"{name}.txt"
    batches = 1200 if scheme == 2 else 500  # one loss a window instead of forty
    result = unroll(
        "train", corpus, "--scheme", scheme, "--batches", batches, *small, "--out", tmp_path / "run", "-q", "--json"
    )
    assert result.code == 0, result.err
    own = json.loads(result.out)["metrics"]["perplexity"]
    assert min(own.values()) < Corpus.open(str(corpus)).bigram_perplexity()


def test_the_midi_samples_are_imported_trained_on_and_sampled_to_music_that_another_library_reads(
    tmp_path: Path,
) -> None:
    corpus, run = tmp_path / "notes.txt", tmp_path / "run"
    assert unroll("data", "midi", FOLDER / "midi", "--out", corpus).code == 0
    small = ["--hidden", 48, "--dense", 64, "--k1", 10, "--k2", 20, "--rows", 16, "--learning-rate", 0.005]
    result = unroll("train", corpus, "--batches", 300, *small, "--out", run, "-q", "--json")
    reached = json.loads(result.out)["metrics"]["perplexity"]["windowed"]
    assert reached < Corpus.open(str(corpus)).unigram_perplexity()
    options = ["--prompt", "C4 E4 G4", "--length", 200, "--seed", 1]
    drawn = json.loads(unroll("sample", run, *options, "--json").out)["samples"][0]["text"]
    assert unroll("sample", run, *options, "--out", tmp_path / "tune.mid").code == 0
    score = symusic.Score(str(tmp_path / "tune.mid"))
    notes = sorted((note.start, note.pitch) for track in score.tracks for note in track.notes)
    assert [pitch for _, pitch in notes] == [int(note) for note in drawn.split()]


@pytest.mark.parametrize(("name", "paper"), [("english", False), ("finnish", False), ("linux", True), ("music", False)])
def test_each_data_set_by_name_says_whether_it_is_the_papers_file(name: str, paper: bool, monkeypatch) -> None:
    monkeypatch.setenv("UNROLL_DATA", str(FOLDER))
    shown = unroll("data", "info", name).out
    assert ("the paper's own file" in shown) == paper
    assert (f"{name} (reconstruction)" in shown) != paper
    assert all(word in shown for word in ("train / test", "unigram", "bigram", "symbols"))
