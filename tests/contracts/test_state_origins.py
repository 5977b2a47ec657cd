"""Every state origin: where a window's first state comes from, and what learns from it."""

from __future__ import annotations

import pytest
import torch
from helpers import CPU, every_plugin, random_tensor, tiny, tiny_corpus

from unroll.base import plugins
from unroll.engines.choice import engine_of
from unroll.training.learner import Learner


def origin_learner(name: str, **more: object) -> Learner:
    """A learner whose first-state parameters are not 0, so that using them shows."""
    learner = Learner([tiny(state=name, layers=2, **more)], [tiny_corpus()], engine_of(CPU, "reference"))
    with torch.no_grad():
        for n, (key, value) in enumerate(first_states(learner).items()):
            learner.model.parameters[key].copy_(random_tensor(*value.shape, seed=n))
    return learner


def first_states(learner: Learner) -> dict[str, torch.Tensor]:
    return {k: v for k, v in learner.model.parameters.items() if k.startswith("layers.") and k.endswith("0")}


def nll(learner: Learner, carried: float, reset: bool) -> torch.Tensor:
    """The nll of a batch before which every carried state held one value."""
    batch = learner.batches[1]
    state = tuple(tuple(torch.full_like(s, carried) for s in layer) for layer in learner.model.no_state())
    return learner.model.nll(batch._replace(reset_MB=torch.full_like(batch.reset_MB, reset)), state)[0]


@every_plugin("state_origins")
def test_an_origin_says_in_two_words_what_it_does(name: str) -> None:
    origin = plugins.load("state_origins", name)
    assert type(origin.LEARNS) is bool
    assert type(origin.CARRIES) is bool
    assert not (origin.LEARNS and origin.CARRIES)
    scheme = tiny(state=name).scheme
    assert (scheme.learns, scheme.carries) == (origin.LEARNS, origin.CARRIES)


@every_plugin("state_origins")
def test_the_state_before_matters_where_it_is_carried_and_nowhere_else(name: str) -> None:
    learner = origin_learner(name)
    differs = not torch.equal(nll(learner, 0.3, False), nll(learner, -0.3, False))
    assert differs == learner.experiments[0].scheme.carries


@every_plugin("state_origins")
def test_a_reset_puts_zeros_in_place_of_a_carried_state(name: str) -> None:
    learner = origin_learner(name)
    assert torch.equal(nll(learner, 0.3, True), nll(learner, 0.0, False))


@every_plugin("state_origins")
def test_first_states_receive_a_gradient_only_where_they_are_learned(name: str) -> None:
    learner = origin_learner(name)
    parameters = first_states(learner)
    gradients = torch.autograd.grad(nll(learner, 0.3, False).sum(), list(parameters.values()), allow_unused=True)
    learned = [g is not None and bool(g.abs().max() > 0) for g in gradients]
    assert learned == [learner.experiments[0].scheme.learns] * len(parameters)


@every_plugin("state_origins")
@pytest.mark.parametrize("optimiser", plugins.names("optimisers"))
def test_a_run_that_learns_no_first_state_stores_zeros(name: str, optimiser: str) -> None:
    learner = Learner([tiny(state=name, optimiser=optimiser)], [tiny_corpus()], engine_of(CPU, "stacked"))
    for _ in range(4):
        learner.step()
    stored = learner.weights(0)
    scheme = learner.experiments[0].scheme
    firsts = [stored[key] for key in first_states(learner)]
    assert all(bool((value == 0).all()) != scheme.learns for value in firsts)
    assert {key for key in stored if key.startswith("carried.")} == (
        {"carried.0.h", "carried.0.c"} if scheme.carries else set()
    )


def test_the_state_carried_is_the_one_after_k1_inputs() -> None:
    """The next window starts k1 tokens later, so carrying makes two windows one reading of the text."""
    learner = Learner([tiny(state="carried", k1=2, k2=5)], [tiny_corpus()], engine_of(CPU, "reference"))
    _, after = learner.model.nll(learner.batches[0], learner.carried)
    state = learner.model.no_state()
    for t in range(2):
        state = learner.model.advance(learner.batches[0].inputs_MTB[:, t], state)
    for carried, stepwise in zip(after[0], state[0], strict=True):
        torch.testing.assert_close(carried, stepwise.detach(), rtol=1e-12, atol=1e-12)
    assert torch.equal(learner.batches[1].inputs_MTB[:, 0], learner.batches[0].inputs_MTB[:, 2])
