"""What `train` and `eval` say about a run that has ended."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import TINY, tiny_run, unroll

from unroll.engines.judged_update import JudgedUpdate
from unroll.runs.folder import RunFolder


@pytest.fixture
def diverging(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run's loss is lost in its sixth batch."""
    judge = JudgedUpdate.judged

    def spoiled(update: JudgedUpdate, nll_MKB: torch.Tensor) -> Any:
        return judge(update, torch.where(update.fleet.number == 5, torch.nan, nll_MKB))

    monkeypatch.setattr(JudgedUpdate, "judged", spoiled)


@pytest.mark.parametrize("quiet", [[], ["-q"]])
def test_a_run_that_diverges_says_so_even_if_it_is_to_be_quiet(
    tmp_path: Path, diverging: None, quiet: list[str]
) -> None:
    tiny_run(tmp_path, batches=1)
    result = unroll("train", tmp_path / "corpus.txt", "--batches", 9, "--out", tmp_path / "sick", *TINY, *quiet)
    assert result.code == 0, "divergence is a result"
    assert "Stopped. At batch 6 the loss was not finite. The weights of batch 5 are kept." in result.err


def test_training_and_eval_mean_the_same_by_the_middle_of_carried_states(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, "--scheme", 4, "--evaluate-carried")  # of 4 rows, so that no one row is the middle
    trained = RunFolder(run).metrics[-1]["carried"]
    shown = json.loads(unroll("eval", run, "--start", "carried", "--json").out)
    assert shown["perplexity"]["progressive"] == pytest.approx(trained, rel=1e-6)
    assert shown["perplexity"]["progressive"] == pytest.approx(statistics.median(shown["rows"]), rel=1e-12)
    assert sorted(shown["rows"])[1] < trained < sorted(shown["rows"])[2]


def test_what_training_and_eval_scored_is_said_where_it_differs(tmp_path: Path) -> None:
    run = tiny_run(tmp_path)
    cut = ["--batches", 2, "--test-tokens", 100, "--out", tmp_path / "cut", *TINY]
    printed = unroll("train", tmp_path / "corpus.txt", *cut).err.splitlines()
    assert any(line.endswith(" over 90 predicted tokens of the test set's first 100") for line in printed)
    whole = unroll("train", tmp_path / "corpus.txt", "--batches", 2, "--out", tmp_path / "whole", *TINY).err
    assert any(line.endswith(" over 290 predicted tokens of the test set") for line in whole.splitlines())
    assert json.loads(unroll("eval", tmp_path / "whole", "--json").out)["tokens"] == 290, "as training says"

    def heading(folder: Path, *options: object) -> str:
        return unroll("eval", folder, *options).out.splitlines()[1]

    assert heading(run) == "its test set"
    assert heading(run, "--test-tokens", 50) == "its test set's first 50 tokens (training scored all of it)"
    assert heading(tmp_path / "cut") == "its test set (training scored its first 100 tokens)"
    assert heading(tmp_path / "cut", "--test-tokens", 100) == "its test set's first 100 tokens"
    assert heading(run, "--test-tokens", 300) == "its test set", "all of it"
    (tmp_path / "other.txt").write_text("abcd" * 50)
    other = ["--corpus", tmp_path / "other.txt"]
    assert heading(run, *other).endswith("other.txt, taken whole")
    assert heading(run, *other, "--test-tokens", 50).endswith("other.txt, its first 50 tokens")


def sweep_of_one(folder: Path) -> Path:
    tiny_run(folder, batches=1)
    options = ["--most", 1, "--batches", 3, "--out", folder / "sweep", *TINY]
    assert unroll("sweep", folder / "corpus.txt", *options).code == 0
    return folder / "sweep"


def test_a_sweep_given_as_a_run_is_not_taken_for_a_damaged_run(tmp_path: Path) -> None:
    sweep = sweep_of_one(tmp_path)
    for command in (["eval", sweep], ["train", "--resume", sweep], ["sample", sweep]):
        result = unroll(*command)
        assert result.code == 2
        assert f"is a sweep: its runs are in {sweep / 'runs'}." in result.err
        assert f"unroll sweep --resume {sweep}" in result.err
        assert "Copy" not in result.err


def test_a_run_of_a_sweep_gets_its_curve_when_train_is_asked_to_go_on_with_it(tmp_path: Path) -> None:
    (run,) = (sweep_of_one(tmp_path) / "runs").iterdir()
    assert not (run / "perplexity.png").exists()
    result = unroll("train", "--resume", run)
    assert result.code == 0
    assert f"Curve: {run / 'perplexity.png'}" in result.err
    assert (run / "perplexity.png").read_bytes().startswith(b"\x89PNG")
    drawn = (run / "perplexity.png").stat().st_mtime_ns
    assert "Curve" not in unroll("train", "--resume", run).err
    assert (run / "perplexity.png").stat().st_mtime_ns == drawn
