"""Every loss weighting: sound weights, and k3 meets single-loss at 1 and multi-loss at k2, bit for bit."""

from __future__ import annotations

import math

import pytest
import torch
from helpers import CPU, check_identical, every_plugin, tiny, tiny_corpus
from hypothesis import given
from hypothesis import strategies as st

from unroll import Scheme
from unroll.base import plugins
from unroll.engines.choice import engine_of
from unroll.experiment.scheme import parse_training
from unroll.training.learner import Learner

K2 = 5
NAMES = plugins.names("loss_weights")


@st.composite
def windows(draw: st.DrawFn) -> tuple[int, int]:
    k2 = draw(st.integers(1, 300))
    return k2, draw(st.integers(1, k2))


@given(st.sampled_from(NAMES), windows())
def test_weights_are_finite_non_negative_and_one_a_scored_position(name: str, window: tuple[int, int]) -> None:
    k2, k3 = window
    weighting = plugins.load("loss_weights", name)
    assert 1 <= weighting.scored(k2) <= k2
    weights = weighting.weights(k2, k3)
    assert len(weights) == k3
    assert all(isinstance(w, float) and math.isfinite(w) and w >= 0 for w in weights)
    assert sum(weights) > 0


@given(st.sampled_from(NAMES), windows(), st.booleans())
def test_normalised_weights_sum_to_one(name: str, window: tuple[int, int], with_k3: bool) -> None:
    k2, k3 = window
    scheme = Scheme(loss=name, k1=1, k2=k2, k3=k3 if with_k3 else None, normalise=True)
    assert len(scheme.weights) == scheme.scored
    assert sum(scheme.weights) == pytest.approx(1.0, abs=1e-12)


@every_plugin("loss_weights")
def test_one_scored_position_is_single_loss_once_normalised(name: str) -> None:
    assert Scheme(loss=name, k3=1, normalise=True).weights == Scheme(loss="last").weights == (1.0,)


@every_plugin("loss_weights")
def test_k3_of_the_weightings_own_count_changes_nothing(name: str) -> None:
    own = Scheme(loss=name, k2=40)
    assert Scheme(loss=name, k2=40, k3=own.scored).weights == own.weights


def test_the_papers_future_work_is_written_as_the_paper_writes_it() -> None:
    assert Scheme(loss="equal", k2=100, k3=10).weights == (0.1,) * 10
    assert Scheme(loss="linear", k2=5).weights == (0.2, 0.4, 0.6, 0.8, 1.0)
    assert Scheme(loss="exponential", k2=3).weights == (math.exp(-2), math.exp(-1), 1.0)
    assert Scheme(loss="linear", k2=5, k3=2).weights == (0.8, 1.0)


@pytest.mark.parametrize(
    ("words", "named"), [("multi-loss,k3=1", "single-loss"), (f"multi-loss,k3={K2}", "multi-loss")]
)
def test_k3_meets_the_papers_procedures_in_identity_and_in_every_bit_of_the_weights(words: str, named: str) -> None:
    learners = []
    for training in (words, named):
        learner = Learner([tiny(k2=K2, **parse_training(training))], [tiny_corpus()], engine_of(CPU, "stacked"))
        for _ in range(5):
            learner.step()
        learners.append(learner)
    by_k3, by_name = learners
    assert by_k3.experiments[0].identity == by_name.experiments[0].identity
    check_identical(by_k3.snapshot(0), by_name.snapshot(0))
    assert torch.equal(by_k3.fleet.weights_MK, by_name.fleet.weights_MK)


@every_plugin("loss_weights")
def test_only_scored_positions_reach_the_loss(name: str) -> None:
    """Each weight multiplies its own position: the loss is the weighted sum of the nll, whatever the weighting."""
    learner = Learner([tiny(k2=K2, loss=name)], [tiny_corpus()], engine_of(CPU, "reference"))
    with torch.no_grad():
        nll_MBK, _ = learner.model.nll(learner.batches[0], learner.carried)
    assert nll_MBK.shape[-1] == learner.experiments[0].scheme.scored
    by_hand = sum(w * nll_MBK[0, :, k].mean() for k, w in enumerate(learner.experiments[0].scheme.weights))
    learner.step()
    (loss,) = learner.take_losses([0])
    assert loss == pytest.approx(float(by_hand) / sum(learner.experiments[0].scheme.weights), rel=1e-12)
