"""Rules of loss weightings."""

from __future__ import annotations

import math

from unroll.base import plugins
from unroll.experiment.scheme import Scheme
from unroll.studies.contracts import cases, require

WINDOWS = (1, 2, 3, 7, 40, 300)


def it_scores_at_least_one_position_of_a_window(name: str) -> None:
    """`scored(k2)` is a whole number from 1 to k2."""
    for k2 in WINDOWS:
        K = plugins.load("loss_weights", name).scored(k2)
        require(isinstance(K, int) and 1 <= K <= k2, f"scored({k2}) is {K!r}.")


def it_weighs_every_scored_position(name: str) -> None:
    """`weights(k2, k3)` are k3 floats, finite, none below 0, not all 0, for every k3 from 1 to k2."""
    for k2 in WINDOWS:
        for k3 in range(1, k2 + 1):
            weights = plugins.load("loss_weights", name).weights(k2, k3)
            where = f"weights({k2}, {k3})"
            require(len(weights) == k3, f"{where} are {len(weights)}.")
            right = all(isinstance(w, float) and math.isfinite(w) and w >= 0 for w in weights)
            require(right, f"{where} must be finite floats of at least 0. Got {weights}.")
            require(sum(weights) > 0, f"{where} are all 0: nothing would be learned.")


def normalised_weights_sum_to_one(name: str) -> None:
    """With `normalise` they sum to 1, so that one scored position is single-loss."""
    for k2 in WINDOWS:
        total = sum(Scheme(loss=name, k1=1, k2=k2, normalise=True).weights)
        require(abs(total - 1) < 1e-12, f"With k2 = {k2} they sum to {total}.")
    one = Scheme(loss=name, k3=1, normalise=True).weights
    require(one == (1.0,), f"With k3 = 1 the weights are {one}.")


def it_trains(name: str) -> None:
    """Five batches of training give losses that are finite."""
    learner = cases.learner(cases.experiment(loss=name))
    for _ in range(5):
        learner.step()
    (loss,) = learner.take_losses([0])
    require(loss is not None and math.isfinite(loss), f"The loss is {loss}.")
