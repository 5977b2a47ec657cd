"""What a seed means must not change: the first losses of a few runs, as they were when they were recorded.

A change that moves these numbers changes every user's results: say so in the changelog and record them anew with
`python tests/golden/test_golden.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from unroll import SCHEMES, Corpus, Experiment, Scheme
from unroll.engines.choice import engine_of
from unroll.training.learner import Learner

RECORD = Path(__file__).parent / "losses.json"
SMALL = {"hidden": 16, "dense": 24, "rows": 8, "precision": "float64", "test_tokens": 200}
RUNS = {
    "scheme 1": Experiment(scheme=Scheme(k1=7, k2=20), **SMALL),
    "scheme 2, GRU, RMSprop": Experiment(
        scheme=Scheme(loss="last", k1=7, k2=20), cell="gru", optimiser="rmsprop", seed=3, **SMALL
    ),
    "scheme 4, two layers, dropout": Experiment(
        scheme=Scheme(state="carried", sample="progressive", k1=30, k2=20), layers=2, dropout=0.25, seed=5, **SMALL
    ),
    "no dense layer, no peepholes, RMSprop, dropout": Experiment(
        scheme=Scheme(state="carried", sample="progressive", k1=20, k2=20),
        layers=2,
        peepholes="off",
        optimiser="rmsprop",
        dropout=0.25,
        seed=7,
        **SMALL | {"dense": 0},
    ),
    "exponential, shuffled, RNN": Experiment(
        scheme=Scheme(loss="exponential", k3=5, k1=5, k2=20), cell="rnn", shuffle=True, **SMALL
    ),
}


def losses(experiment: Experiment) -> list[float]:
    """The loss of each of the first batches, over an epoch's end."""
    corpus = Corpus.from_text("".join(chr(97 + (i * i + i // 7) % 23) for i in range(2000)))
    learner = Learner([experiment], [corpus], engine_of(torch.device("cpu"), "reference"))
    found = []
    for _ in range(learner.batches.schedules[0].batches_an_epoch + 3):
        learner.step()
        (loss,) = learner.take_losses([0])
        assert loss is not None
        found.append(loss)
    return found


@pytest.mark.parametrize("name", RUNS)
def test_the_first_losses_of_a_seed_are_as_recorded(name: str) -> None:
    assert losses(RUNS[name]) == pytest.approx(json.loads(RECORD.read_text())[name], rel=1e-9)


def test_the_golden_runs_cover_the_four_schemes_state_origins() -> None:
    assert {e.scheme.state for e in RUNS.values()} == {s.state for s in SCHEMES.values()}


if __name__ == "__main__":
    RECORD.write_text(json.dumps({name: losses(run) for name, run in RUNS.items()}, indent=1) + "\n")
