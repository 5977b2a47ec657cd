"""What a run will take on the disk is known before it begins, for every cell, optimiser and precision."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from helpers import tiny, tiny_corpus

from unroll import train_fleet
from unroll.base import plugins
from unroll.training.preflight import checkpoints_bytes, weights_bytes


@pytest.mark.parametrize(
    ("cell", "optimiser", "precision"),
    [*product(plugins.names("cells"), plugins.names("optimisers"), ("float32", "float64"))],
)
def test_what_a_run_takes_on_the_disk_is_estimated_well(
    cell: str, optimiser: str, precision: str, tmp_path: Path
) -> None:
    settings = {"cell": cell, "optimiser": optimiser, "precision": precision, "kernel": "reference", "batches": 2}
    corpus, experiment = tiny_corpus(), tiny(hidden=48, dense=96, **settings)
    sizes: list[int] = []
    for _ in train_fleet([experiment], [corpus], [tmp_path / "run"], save_every=1):
        sizes += [path.stat().st_size for path in (tmp_path / "run" / "checkpoints").glob("*")]
    assert 3 * max(sizes) == pytest.approx(checkpoints_bytes(experiment, corpus.unique), rel=0.1)
    weights = (tmp_path / "run" / "weights.safetensors").stat().st_size
    assert weights == pytest.approx(weights_bytes(experiment, corpus.unique), rel=0.1)
