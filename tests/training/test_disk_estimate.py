"""What a run will take on the disk is known before it begins, for every cell, optimiser and precision."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers import tiny, tiny_corpus

from unroll import Corpus, Experiment, train_fleet
from unroll.base import plugins
from unroll.model import optimisers
from unroll.model.initial_values import parameter_count
from unroll.runs.folder import RunFolder
from unroll.training.preflight import checkpoints_bytes, weights_bytes


def check_estimate(experiment: Experiment, corpus: Corpus, run: Path) -> None:
    """Train, and compare the files with what was estimated."""
    sizes: list[int] = []
    for _ in train_fleet([experiment], [corpus], [run], save_every=1):
        sizes += [path.stat().st_size for path in (run / "checkpoints").glob("*")]
    assert 3 * max(sizes) == pytest.approx(checkpoints_bytes(experiment, corpus.unique), rel=0.1)
    weights = sum((run / name).stat().st_size for name in ("weights.safetensors", "best.safetensors"))
    assert weights == pytest.approx(weights_bytes(experiment, corpus.unique), rel=0.1)


@pytest.mark.parametrize(
    ("cell", "optimiser", "precision"),
    [*product(plugins.names("cells"), plugins.names("optimisers"), ("float32", "float64"))],
)
@pytest.mark.parametrize("dense", [0, 96])
def test_what_a_run_takes_on_the_disk_is_estimated_well(
    cell: str, optimiser: str, precision: str, dense: int, tmp_path: Path
) -> None:
    settings = {"cell": cell, "optimiser": optimiser, "precision": precision, "kernel": "reference", "batches": 3}
    corpus, experiment = tiny_corpus(), tiny(hidden=80, dense=dense, **settings)
    check_estimate(experiment, corpus, tmp_path / "run")


def test_the_states_of_many_rows_are_counted(tmp_path: Path) -> None:
    corpus = tiny_corpus(tokens=3000)
    experiment = tiny(state="carried", rows=400, hidden=16, dense=16, batches=3, kernel="reference")
    check_estimate(experiment, corpus, tmp_path / "run")


def test_an_optimiser_with_many_moments_has_room_in_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, experiment = tiny_corpus(), tiny()
    folder = RunFolder.create(tmp_path / "run", experiment, corpus.vocabulary)
    parameters = parameter_count(experiment, corpus.unique)
    before = folder.most_bytes()
    moments = tuple(f"moment_{n}" for n in range(9))
    monkeypatch.setattr(optimisers, "load", lambda name: SimpleNamespace(MOMENTS=moments))
    assert folder.most_bytes() - before == 8 * (9 - 2) * parameters
    assert checkpoints_bytes(experiment, corpus.unique) > 3 * 8 * 10 * parameters
