"""What `train` and `eval` say of a run that has ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from commands import TINY, tiny_run, unroll

from unroll.learner import Learner


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
