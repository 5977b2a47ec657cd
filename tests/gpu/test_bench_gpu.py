"""On a CUDA device: a peer's recorded step trains as its plain one does, and every contestant ends the race."""

from __future__ import annotations

import math

import pytest
import torch

from unroll.studies.benchmark import peers, replay
from unroll.studies.benchmark.contestants import PEERS, ContestantBuilder, Entry
from unroll.studies.benchmark.heats import Timing, run_group
from unroll.studies.benchmark.shapes import Shape, random_corpus

CUDA = torch.device("cuda")
STEPS = 8
TOLERANCE = {"float32": 1e-4, "tf32": 1e-3, "float16": 1e-2}


def small(procedure: str) -> Shape:
    return Shape(layers=2, hidden=64, procedure=procedure, k1=5, k2=9, rows=16, dense=64)


@pytest.mark.parametrize("procedure", ["multi-loss", "single-loss", "conditional"])
@pytest.mark.parametrize(
    ("build", "precision"),
    [(peers.lstm_graphed, "float32"), (peers.lstm_graphed, "tf32"), (peers.cudnn_half, "float16")],
)
def test_replays_go_on_training_where_the_warm_up_stopped(build, precision: str, procedure: str) -> None:
    shape, corpus, losses = small(procedure), random_corpus(tokens=20_000), []
    for record in (False, True):
        torch.manual_seed(0)
        trainer = build(shape, corpus, CUDA, precision, record=record)
        run_losses = []
        for _ in range(STEPS):
            trainer.step()
            run_losses.append(float(trainer.peer.last_loss))
        assert int(trainer.peer.windows.number) == replay.WARM_UP + STEPS
        losses.append(run_losses)
    assert losses[1] == pytest.approx(losses[0], rel=TOLERANCE[precision])
    assert len(set(losses[1])) == STEPS


@pytest.mark.parametrize("procedure", ["multi-loss", "single-loss", "conditional"])
def test_every_contestant_but_one_that_is_not_installed_ends_the_race(procedure: str) -> None:
    shape = small(procedure)
    group = [Entry(shape, "unroll", "float32"), Entry(shape, "unroll-fleet", "float32", 3)]
    group += [Entry(shape, name, way.precision) for name, way in PEERS.items() if name != "flashrnn"]
    builder = ContestantBuilder(random_corpus(tokens=20_000), CUDA)
    rows = run_group(group, builder.build, CUDA, Timing(0.01, 2, 5), lambda row: None)
    assert [row.problem for row in rows] == [None] * len(group)
    assert all(row.loss is not None and math.isfinite(row.loss) for row in rows)
