"""A run's folder says where its corpus lies as seen from itself; it is found after moves, or asked for."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from commands import TINY, unroll

from unroll import Experiment, load
from unroll.base.errors import CorpusError
from unroll.experiment import corpus_place
from unroll.runs.folder import RunFolder
from unroll.sweep.folder import SweepFolder
from unroll.training import preflight

SHORT = (*TINY, "--batches", "5")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a text, and the user in it."""
    project = tmp_path / "secret" / "project"
    (project / "texts").mkdir(parents=True)
    (project / "texts" / "book.txt").write_text("to be or not to be, that is the question. " * 100)
    monkeypatch.chdir(project)
    return project


def trained(*options: object) -> None:
    assert unroll("train", "texts/book.txt", *SHORT, "--out", "runs/a", *options, "-q").code == 0


def test_no_file_of_a_run_or_a_sweep_says_where_the_project_lies(project: Path) -> None:
    trained()
    sweep = unroll("sweep", "texts/book.txt", *SHORT, "--out", "sweeps/a", "--seeds", 2, "-q")
    assert sweep.code == 0, sweep.err
    files = [path for name in ("runs", "sweeps") for path in (project / name).rglob("*") if path.is_file()]
    assert len(files) > 10
    for path in files:
        assert b"secret" not in path.read_bytes(), path
    assert 'source = "../../texts/book.txt"\n' in (project / "runs/a/run.toml").read_text()
    text = os.path.realpath("texts/book.txt")
    assert RunFolder("runs/a").experiment.corpus == text
    assert {e.corpus for training in SweepFolder("sweeps/a").trainings for e in training.asked} == {text}


@pytest.mark.parametrize("there", ["runs/b", "best/of/2024/a", "texts/a", "a"])
def test_a_run_that_is_moved_within_its_project_finds_its_text_from_any_directory(
    there: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained()
    (project / there).parent.mkdir(parents=True, exist_ok=True)
    shutil.move("runs/a", there)
    monkeypatch.chdir("/")
    assert load(project / there, "cpu").corpus.tokens == 4200


def test_a_run_that_is_moved_with_its_text_finds_it(project: Path, tmp_path: Path) -> None:
    trained()
    shutil.move(project, tmp_path / "elsewhere")
    assert load(tmp_path / "elsewhere/runs/a", "cpu").corpus.source == str(tmp_path / "elsewhere/texts/book.txt")


def test_a_run_whose_text_is_gone_says_which_it_was_and_goes_on_with_the_same_text_elsewhere(
    project: Path,
) -> None:
    trained()
    half = RunFolder("half")
    half.begin(RunFolder("runs/a").experiment, RunFolder("runs/a").vocabulary)
    sha256 = half.experiment.sha256
    shutil.move("texts/book.txt", "moved.txt")
    refused = unroll("train", "--resume", "half")
    assert refused.code == 2
    assert f"The run was trained on book (4,200 bytes in 1 file, 4,200 tokens, SHA-256 {sha256[:16]}…)." in refused.err
    assert "unroll train CORPUS --resume half" in refused.err
    with pytest.raises(CorpusError, match=r"unroll\.resume\('half', corpus=…\)"):
        preflight.resume("half")
    Path("other.txt").write_text("another text of another length")
    assert "is not the corpus that this run was trained on" in unroll("train", "other.txt", "--resume", "half").err
    went_on = unroll("train", "moved.txt", "--resume", "half")
    assert went_on.code == 0, went_on.err
    assert 'source = "../moved.txt"' in Path("half/run.toml").read_text()


def test_names_and_paths_that_an_older_version_wrote_stay_as_they_are(tmp_path: Path) -> None:
    for corpus in ("", "stdlib", "-", "texts/book.txt"):
        assert corpus_place.shared(Experiment(corpus=corpus), tmp_path).corpus == corpus
    for corpus in ("", "stdlib", "-", "texts/book.txt", "/texts/book.txt", "..", ".txt"):
        assert corpus_place.whole(Experiment(corpus=corpus), tmp_path).corpus == corpus


@pytest.mark.parametrize("corpus", ["/a/b c/é.txt", "/", "/x", "{folder}", "{folder}/in/it.txt", "{folder}.txt"])
def test_a_path_comes_back_as_it_was(corpus: str, tmp_path: Path) -> None:
    asked = Experiment(corpus=corpus.format(folder=tmp_path))
    assert corpus_place.whole(corpus_place.shared(asked, tmp_path), tmp_path) == asked
