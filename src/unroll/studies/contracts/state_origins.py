"""Rules of state origins."""

from __future__ import annotations

import torch
from torch import Tensor

from unroll.base import plugins
from unroll.studies.contracts import cases, require
from unroll.training.learner import Learner


def it_says_in_two_words_what_it_does(name: str) -> None:
    """LEARNS and CARRIES are True or False, and not both True."""
    origin = plugins.load("state_origins", name)
    for word in ("LEARNS", "CARRIES"):
        require(type(getattr(origin, word)) is bool, f"{word} is {getattr(origin, word)!r}.")
    require(not (origin.LEARNS and origin.CARRIES), "A first state is learned or carried, not both.")


def the_state_before_matters_where_it_is_carried_and_nowhere_else(name: str) -> None:
    """What a window before left changes the loss if CARRIES, and else does not."""
    learner = _learner(name)
    differs = not torch.equal(_nll(learner, 0.3), _nll(learner, -0.3))
    carries = learner.experiments[0].scheme.carries
    matters = "matters" if differs else "does not matter"
    require(differs == carries, f"CARRIES is {carries}, and the state before {matters}.")


def first_states_receive_a_gradient_where_they_are_learned_and_nowhere_else(name: str) -> None:
    """The model's own first state has a gradient if LEARNS, and else has none."""
    learner = _learner(name)
    firsts = [value for key, value in learner.model.parameters.items() if key.startswith("layers.") and key[-1] == "0"]
    loss = _nll(learner, 0.3).sum()
    learned = all(bool(d.any()) for d in cases.gradients(loss, firsts, torch.ones_like(loss)))
    learns = learner.experiments[0].scheme.learns
    require(learned == learns, f"LEARNS is {learns}, and a gradient {'arrives' if learned else 'does not arrive'}.")


def it_trains(name: str) -> None:
    """Five batches of training leave finite weights; first states that nobody learns stay 0."""
    learner = cases.learner(cases.experiment(state=name))
    for _ in range(5):
        learner.step()
    for key, value in learner.weights(0).items():
        require(bool(value.isfinite().all()), f"{key} is not finite.")
        if key in ("layers.0.h0", "layers.0.c0") and not learner.experiments[0].scheme.learns:
            require(not value.any(), f"{key} moved.")


def _learner(name: str) -> Learner:
    """A learner whose first-state parameters are not 0, so that using them shows."""
    learner = cases.learner(cases.experiment(state=name, layers=2))
    with torch.no_grad():
        for n, (key, value) in enumerate(learner.model.parameters.items()):
            if key.startswith("layers.") and key[-1] == "0":
                value.copy_(cases.tensor(*value.shape, seed=n))
    return learner


def _nll(learner: Learner, carried: float) -> Tensor:
    """The nll of a batch before which every carried state held one value."""
    batch = learner.batches[1]
    state = tuple(tuple(torch.full_like(s, carried) for s in layer) for layer in learner.model.no_state())
    return learner.model.nll(batch._replace(reset_MB=torch.zeros_like(batch.reset_MB)), state)[0]
