"""What was built apart works together: parents, parts, best weights, early ends, configurations."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from commands import unroll as command

import unroll
from unroll.base.errors import ConfigurationError
from unroll.experiment.experiment import Experiment
from unroll.runs.folder import RunFolder

TINY = ["--hidden", 8, "--dense", 16, "--k1", 4, "--k2", 8, "--rows", 4, "--threads", 1, "--test-tokens", 60, "--quiet"]
LETTERS = "the quick brown fox jumps over the lazy dog. "
PARTS = ["--validation-file", "valid.txt", "--test-file", "test.txt"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts, and a run that patience ended after its best evaluation."""
    folder = tmp_path_factory.mktemp("meeting")
    (folder / "train.txt").write_text(LETTERS * 60)
    (folder / "other.txt").write_text("pack my box with five dozen liquor jugs. the lazy dog. " * 40)
    (folder / "small.txt").write_text("the fox. " * 200)
    (folder / "valid.txt").write_text(LETTERS[::-1] * 6)
    (folder / "test.txt").write_text(LETTERS[::2] * 12)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = command(
            "train", "train.txt", *TINY, *PARTS, "--batches", 60, "--learning-rate", 0.5, "--patience", 2,
            "--keep-optimiser", "--out", "parent",
        )  # fmt: skip
    assert done.code == 0, done.err
    run = unroll.load(folder / "parent")
    assert "Ended early" in " ".join(run.notes) or run.status["reason"]
    assert run.best is not None
    assert run.best.batch < run.status["batch"] < 60
    return folder


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return RunFolder(folder).weights()[0]


def test_a_run_begins_from_the_best_weights_where_those_are_asked_for_or_loaded(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made)
    still = ["--batches", 1, "--learning-rate", 1e-30, "--threads", 1, "--quiet"]
    for name, weights in {"last": (), "best": ("--weights", "best")}.items():
        done = command("train", "train.txt", "--from", "parent", *weights, *still, "--out", tmp_path / name)
        assert done.code == 0, done.err
    best, _ = RunFolder(made / "parent").best_weights()
    last = tensors(made / "parent")
    assert all(torch.equal(tensors(tmp_path / "best")[name], best[name]) for name in best)
    assert all(torch.equal(tensors(tmp_path / "last")[name], last[name]) for name in last)
    loaded = unroll.load(made / "parent", weights="best")
    again = unroll.train_from(loaded, "train.txt", tmp_path / "again", batches=1, learning_rate=1e-30)
    assert all(torch.equal(tensors(again.path)[name], best[name]) for name in best)
    with pytest.raises(ConfigurationError, match="An optimiser goes on with the last weights"):
        unroll.train_from(loaded, "train.txt", tmp_path / "kept", optimiser_state="keep")


def test_what_ended_the_parent_early_does_not_end_the_child(made: Path, tmp_path: Path) -> None:
    child = unroll.train_from(made / "parent", made / "train.txt", tmp_path / "child", batches=12)
    assert (child.experiment.patience, child.status["batch"]) == (None, 12)


def test_a_run_that_ended_early_keeps_its_optimiser_for_others_and_is_not_extended(made: Path, tmp_path: Path) -> None:
    child = unroll.train_from(made / "parent", made / "train.txt", tmp_path / "c", batches=2, optimiser_state="keep")
    assert child.experiment.updates_before == unroll.load(made / "parent").status["batch"]
    refused = command("train", "--resume", made / "parent", "--batches", 99)
    assert refused.code == 2
    assert "What ended early is not extended" in refused.err


def test_parts_of_a_child_are_read_with_its_parents_symbols(made: Path, tmp_path: Path) -> None:
    texts = {"validation_file": str(made / "valid.txt"), "test_file": str(made / "test.txt")}
    child = unroll.train_from(made / "parent", made / "small.txt", tmp_path / "child", batches=3, **texts)
    assert child.vocabulary == unroll.load(made / "parent").vocabulary
    assert child.metrics[-1]["validation"]
    again = unroll.load(child.path)
    assert unroll.perplexity(again)[0].perplexity == pytest.approx(child.metrics[-1]["perplexity_windowed"])


def test_a_run_whose_text_and_parts_moved_goes_on_where_they_are_named(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = tmp_path / "old", tmp_path / "new" / "texts"
    for place in (old, new):
        place.mkdir(parents=True)
    names = {"train.txt": "a.txt", "valid.txt": "b.txt", "test.txt": "c.txt"}
    for name, there in names.items():
        shutil.copy(made / name, old / there)
    asked = Experiment(
        corpus=str(old / "a.txt"), validation_file=str(old / "b.txt"), test_file=str(old / "c.txt"), batches=8,
        hidden=8, dense=16, rows=4, threads=1, test_tokens=60, scheme=unroll.Scheme(k1=4, k2=8),
    )  # fmt: skip
    events = unroll.train_fleet([asked], [unroll.Corpus.named(asked)], [tmp_path / "new" / "run"], save_every=2)
    for event in events:
        if isinstance(event, unroll.Stepped) and event.learner.count == 5:
            break
    events.close()
    for there in names.values():
        (old / there).rename(new / there)
    monkeypatch.chdir(tmp_path / "new")
    refused = command("train", "texts/a.txt", "--resume", "run")
    assert refused.code == 2
    assert "Give a file with --validation-file" in refused.err
    other = command(
        "train", "texts/a.txt", "--resume", "run", "--validation-file", "texts/c.txt", "--test-file", "texts/b.txt"
    )
    assert other.code == 2
    done = command(
        "train", "texts/a.txt", "--resume", "run", "--validation-file", "texts/b.txt", "--test-file", "texts/c.txt"
    )
    assert done.code == 0, done.err
    assert unroll.load("run").status["state"] == "finished"


def test_a_configuration_gives_way_to_sets_that_are_given_and_says_what_it_leaves_out(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made)
    few = ["--config", "parent", "--batches", 2, "--quiet"]
    assert command("train", *few, "--validation", 100, "--out", tmp_path / "cut").code == 0
    cut = RunFolder(tmp_path / "cut").experiment
    assert (cut.validation, cut.validation_file, Path(cut.test_file or "").name) == (100, None, "test.txt")
    assert command("train", *few, "--test-file", "valid.txt", "--out", tmp_path / "named").code == 0
    named = RunFolder(tmp_path / "named").experiment
    assert (Path(named.validation_file or "").name, Path(named.test_file or "").name) == ("valid.txt", "valid.txt")
    other = command("train", "other.txt", *few, "--out", tmp_path / "other")
    assert other.code == 0
    assert "parent/run.toml has a validation file beside its own text, which is left out here" in other.err


def test_a_sweep_keeps_no_optimiser(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made)
    swept = command("sweep", "--config", "parent", "--batches", 3, "--seeds", 2, "--most", 2, "--out", tmp_path / "s")
    assert swept.code == 0, swept.err
    asked = Experiment.from_toml(made / "parent", batches=2)
    assert asked.keep_optimiser
    with pytest.raises(ConfigurationError, match="keep_optimiser is for a run alone"):
        unroll.train_all([asked], tmp_path / "refused", progress=False)
    assert not (tmp_path / "refused").exists()
