"""What `train` and `eval` say of a run that has ended."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import TINY, tiny_run, unroll

from unroll.learner import Learner
from unroll.run import RunFolder


@pytest.fixture
def diverging(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run's loss is lost in its sixth batch."""
    judge = Learner._judge

    def spoiled(learner: Learner, loss_M: torch.Tensor, *rest: Any) -> Any:
        return judge(learner, loss_M * (torch.nan if learner.count == 5 else 1.0), *rest)

    monkeypatch.setattr(Learner, "_judge", spoiled)


@pytest.mark.parametrize("quiet", [[], ["-q"]])
def test_a_run_that_diverges_says_so_even_if_it_is_to_be_quiet(
    tmp_path: Path, diverging: None, quiet: list[str]
) -> None:
    tiny_run(tmp_path, batches=1)
    told = unroll("train", tmp_path / "corpus.txt", "--batches", 9, "--out", tmp_path / "sick", *TINY, *quiet)
    assert told.code == 0, "divergence is a result"
    assert "Stopped. At batch 6 the loss was not finite. The weights before it are kept." in told.err


def test_training_and_eval_mean_the_same_by_the_middle_of_carried_states(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, "--scheme", 4, "--evaluate-carried")  # of 4 rows, so that no one row is the middle
    trained = RunFolder(run).metrics[-1]["carried"]
    shown = json.loads(unroll("eval", run, "--start", "carried", "--json").out)
    assert shown["perplexity"]["progressive"] == pytest.approx(trained, rel=1e-6)
    assert shown["perplexity"]["progressive"] == pytest.approx(statistics.median(shown["rows"]), rel=1e-12)
    assert sorted(shown["rows"])[1] < trained < sorted(shown["rows"])[2]
