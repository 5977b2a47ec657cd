"""A new run begins from a written configuration, with options on top."""

from __future__ import annotations

import os
import threading
import tomllib
import warnings
from pathlib import Path
from typing import Any

import pytest
from commands import TINY, tiny_run, unroll

from unroll import Experiment, Scheme, load
from unroll.base.errors import ConfigurationError
from unroll.experiment.experiment import write_toml

PART = "[model]\nhidden = 8\ndense = 12\n\n[training]\nbatches = 3\nrows = 4\n\n[scheme]\nk1 = 5\nk2 = 10\n"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with settings that are no default."""
    return tiny_run(tmp_path, "--scheme", 4, "--rotation", "continue", "--seed", 7, batches=3)


def tables(folder: Path) -> dict[str, Any]:
    """A run's run.toml, parsed."""
    return tomllib.loads((folder / "run.toml").read_text())


def test_a_run_from_a_runs_own_file_is_the_same_training(run: Path, tmp_path: Path) -> None:
    result = unroll("train", "--config", run / "run.toml", "--out", tmp_path / "again", "--threads", 1)
    assert result.code == 0, result.err
    assert tables(tmp_path / "again") == tables(run)
    assert load(tmp_path / "again").status["identity"] == load(run).status["identity"]


def test_an_option_wins_and_what_is_not_said_stays(run: Path, tmp_path: Path) -> None:
    result = unroll("train", "--config", run, "--seed", 1, "--k1", 3, "--out", tmp_path / "other", "--threads", 1)
    assert result.code == 0, result.err
    before, after = tables(run), tables(tmp_path / "other")
    before["training"]["seed"], before["scheme"]["k1"] = 1, 3
    assert after == before


def test_a_flag_that_is_not_given_leaves_the_files_value(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(PART + "[corpus]\nascii = true\n" + "[evaluation]\nevaluate = 'both'\n")
    (tmp_path / "book.txt").write_text("to be or not to bé " * 300)
    result = unroll("train", tmp_path / "book.txt", "--config", tmp_path / "c.toml", "--out", tmp_path / "r")
    assert result.code == 0, result.err
    assert tables(tmp_path / "r")["corpus"]["ascii"] is True
    assert tables(tmp_path / "r")["evaluation"]["evaluate"] == "both"


def test_another_scheme_replaces_the_files_but_not_its_k1_and_k2(run: Path, tmp_path: Path) -> None:
    result = unroll("train", "--config", run, "--scheme", 2, "--out", tmp_path / "other", "--threads", 1)
    assert result.code == 0, result.err
    assert load(tmp_path / "other").experiment.scheme == Scheme(loss="last", sample="windowed", k1=5, k2=10)
    result = unroll("train", "--config", run, "--sample", "windowed", "--out", tmp_path / "third", "--threads", 1)
    assert load(tmp_path / "third").experiment.scheme == Scheme(state="carried", sample="windowed", k1=5, k2=10)


def test_a_preset_goes_on_top_of_the_file(tmp_path: Path, run: Path) -> None:
    result = unroll(
        "train", "--config", run, "--preset", "small", "--batches", 2, "--out", tmp_path / "s", "--threads", 1
    )
    assert result.code == 0, result.err
    written, begun = load(run).experiment, load(tmp_path / "s").experiment
    assert (begun.hidden, begun.rows, begun.learning_rate) == (128, 16, 0.008)
    assert (begun.scheme.k1, begun.scheme.k2) == (100, 100)
    assert (begun.scheme.number, begun.seed, begun.clip) == (written.scheme.number, written.seed, written.clip)


def test_a_text_that_has_changed_is_refused_unless_it_is_named(run: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text(corpus.read_text()[:-1] + "A")
    refused = unroll("train", "--config", run, "--out", tmp_path / "r")
    assert refused.code == 2
    assert not (tmp_path / "r").exists()
    assert "is not the corpus that this run was trained on" in refused.err
    assert "give a CORPUS beside it" in refused.err
    named = unroll("train", corpus, "--config", run, "--out", tmp_path / "r", "--threads", 1)
    assert named.code == 0, named.err
    assert tables(tmp_path / "r")["corpus"]["sha256"] != tables(run)["corpus"]["sha256"]


def test_another_text_has_its_own_kind_and_facts(run: Path, tmp_path: Path) -> None:
    (tmp_path / "tune.txt").write_text("60 62 64 65 67 65 64 62\n" * 200)
    result = unroll("train", tmp_path / "tune.txt", "--config", run, "--out", tmp_path / "r", "--threads", 1)
    assert result.code == 0, result.err
    assert "read as notes" in result.err
    assert "say --kind chars" in result.err
    corpus = tables(tmp_path / "r")["corpus"]
    assert (corpus["kind"], corpus["title"], corpus["unique"]) == ("notes", "tune", 6)


def test_what_a_run_computed_on_is_chosen_anew_and_what_a_person_wrote_is_taken(tmp_path: Path) -> None:
    ran = Experiment(corpus="x", sha256="0" * 64, device="cuda:3", kernel="persistent", threads=64)
    (tmp_path / "run.toml").write_text(write_toml(ran))
    (tmp_path / "mine.toml").write_text('[machine]\ndevice = "cpu"\nkernel = "stacked"\nthreads = 1\n')
    from_run, mine = (Experiment.from_toml(tmp_path / name) for name in ("run.toml", "mine.toml"))
    assert (from_run.device, from_run.kernel, from_run.threads) == ("auto", "auto", None)
    assert (mine.device, mine.kernel, mine.threads) == ("cpu", "stacked", 1)


def test_a_sweep_varies_what_options_say_around_the_file(run: Path, tmp_path: Path) -> None:
    result = unroll("sweep", "--config", run, "--k1", "3,5", "--seeds", 2, "--plan", "--most", 1, "--threads", 1)
    assert result.code == 0, result.err
    assert "4 experiments" in result.out
    assert result.out.count("conditional") == 4
    assert "k1_3" in result.out
    assert "lstm1x8" in result.out


def test_python_has_one_door_with_changes_by_name(run: Path, tmp_path: Path) -> None:
    trained = load(run).experiment
    assert Experiment.from_toml(run) == Experiment.from_toml(run / "run.toml")
    assert Experiment.from_toml(run).identity == trained.identity
    other = Experiment.from_toml(run, seed=9, k1=2, scheme=3, corpus=str(tmp_path / "else.txt"))
    assert (other.seed, other.hidden, other.sha256, other.kind) == (9, trained.hidden, "", "auto")
    assert other.scheme == Scheme(sample="progressive", k1=2, k2=10)
    with pytest.raises(TypeError, match="lr is learning_rate here"):
        Experiment.from_toml(run, lr=1)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file"),
        (b"\xff\xfe", "cannot be read: 'utf-8' codec"),
        (b"[training\n", "is not valid TOML"),
        (b"#" + b"\n" * (1 << 17), "has more than 65,536 bytes"),
        (b"[training]\nlr = 1\n", "lr is learning_rate under [optimiser] here"),
        (b"[training]\nbatches = 0\n", "batches must be at least 1"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused_in_words(tmp_path: Path, content: bytes | None, said: str) -> None:
    if content is not None:
        (tmp_path / "c.toml").write_bytes(content)
    refused = unroll("train", "stdlib", "--config", tmp_path / "c.toml", *TINY, "--out", tmp_path / "r")
    assert refused.code == 2
    assert said in refused.err
    assert not (tmp_path / "r").exists()


def test_a_configuration_may_come_through_a_pipe_and_a_strangers_folder_through_none(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(PART))
    writer.start()
    assert Experiment.from_toml(pipe).hidden == 8
    writer.join()
    (tmp_path / "sent").mkdir()
    os.mkfifo(tmp_path / "sent" / "run.toml")
    with pytest.raises(ConfigurationError, match="a named pipe, not a regular file"):
        Experiment.from_toml(tmp_path / "sent")


def test_a_configuration_without_a_corpus_asks_for_one_and_resume_takes_none(run: Path, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(PART)
    assert "Give a CORPUS" in unroll("train", "--config", tmp_path / "c.toml").err
    assert "Give a CORPUS" in unroll("sweep", "--config", tmp_path / "c.toml", "--out", tmp_path / "s").err
    refused = unroll("train", "--resume", run, "--config", tmp_path / "c.toml")
    assert refused.code == 2
    assert "leave out --out, --config" in refused.err
    refused = unroll("sweep", "--resume", run, "--config", tmp_path / "c.toml")
    assert refused.code == 2
    assert "--config" in refused.err


def test_a_plug_in_that_is_another_now_is_said(tmp_path: Path) -> None:
    line = f'[plugins]\ncell = "registered, sha256 {"0" * 64}"\n'
    (tmp_path / "run.toml").write_text(write_toml(Experiment(corpus="x", sha256="0" * 64)) + "\n" + line)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        Experiment.from_toml(tmp_path / "run.toml")
    assert "cell: the plug-in was registered" in str(said[0].message)
