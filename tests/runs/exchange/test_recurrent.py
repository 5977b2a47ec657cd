"""Layers for a loop of one's own: what a run's layers compute, clip and cut, with states as values."""

from __future__ import annotations

import math

import pytest
import torch
from helpers import (
    CPU,
    KNOWN,
    check_all_close,
    check_close,
    check_identical,
    every_cell,
    every_kernel,
    random_ids,
    random_tensor,
    tiny,
    tiny_corpus,
)
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from unroll import Recurrent
from unroll.base.errors import ConfigurationError
from unroll.engines.choice import engine_of
from unroll.training.learner import Learner


def made(cell: str, peepholes: str, kernel: str = "reference", **changes: object) -> Recurrent:
    """Layers in float64 whose values are random throughout."""
    settings = {"inputs": 7, "hidden": 5, "layers": 2, "clip": 0.02, **changes}
    layers = Recurrent(cell, peepholes=peepholes, kernel=kernel, **settings).double()
    with torch.no_grad():
        for n, parameter in enumerate(layers.parameters()):
            parameter.copy_(random_tensor(*parameter.shape, seed=n, scale=0.6))
    return layers


def gradients(layers: Recurrent, x: Tensor) -> dict[str, Tensor]:
    """The gradients of a weighted sum of every h, with respect to every parameter."""
    layers.zero_grad()
    h_BTH, _ = layers(x)
    (h_BTH * random_tensor(*h_BTH.shape, seed=99)).sum().backward()
    return {name: parameter.grad.clone() for name, parameter in layers.named_parameters()}


@every_kernel
def test_every_kernel_gives_the_same_h_states_and_clipped_gradients(kernel: str, cell: str, peepholes: str) -> None:
    truth, layers, ids_BT = made(cell, peepholes), made(cell, peepholes, kernel), random_ids(4, 9)
    with torch.no_grad():
        for one, other in zip(tree_leaves(layers(ids_BT, at=4)), tree_leaves(truth(ids_BT, at=4)), strict=True):
            check_close(one, other, 1e-12)
    check_all_close(gradients(layers, ids_BT), gradients(truth, ids_BT), 1e-11)


@every_kernel
def test_numbers_go_in_as_ids_do(kernel: str, cell: str, peepholes: str) -> None:
    """A one-hot vector is a look-up; any other is a product, with gradients of its own."""
    layers, ids_BT = made(cell, peepholes, kernel), random_ids(4, 9)
    one_hot_BTI = nn.functional.one_hot(ids_BT, 7).double()
    check_close(layers(one_hot_BTI)[0], layers(ids_BT)[0], 1e-12)
    check_all_close(gradients(layers, one_hot_BTI), gradients(layers, ids_BT), 1e-11)
    x_BTI, truth = random_tensor(2, 3, 7, seed=5, grad=True), made(cell, peepholes)
    d_x, d_x_true = (torch.autograd.grad(x(x_BTI)[0].square().sum(), x_BTI)[0] for x in (layers, truth))
    check_close(d_x, d_x_true, 1e-11)


@every_cell
def test_gradients_of_numbers_are_those_of_finite_differences(cell: str, peepholes: str) -> None:
    layers, x_BTI = made(cell, peepholes, clip=math.inf), random_tensor(2, 3, 7, seed=5, grad=True)
    assert torch.autograd.gradcheck(lambda x: layers(x)[0], (x_BTI,), fast_mode=True)


@every_kernel
def test_the_way_back_is_taken_once_or_refused_in_words(kernel: str, cell: str, peepholes: str) -> None:
    layers = made(cell, peepholes, kernel)
    loss = layers(random_ids(2, 4))[0].sum()
    loss.backward(retain_graph=True)
    once = layers.layers[0]["W_h"].grad.clone()
    if kernel in ("reference", "stacked"):
        loss.backward()
        check_close(layers.layers[0]["W_h"].grad, 2 * once, 1e-12)
    else:
        with pytest.raises(ConfigurationError, match=rf"{kernel} goes back through a window once.*kernel='stacked'"):
            loss.backward()


@every_cell
def test_gradients_are_clipped_inside_and_not_after(cell: str, peepholes: str) -> None:
    ids_BT = random_ids(4, 9)
    clipped, loose = (made(cell, peepholes, clip=clip) for clip in (0.02, math.inf))
    check_close(clipped(ids_BT)[0], loose(ids_BT)[0], 0)
    unlike = [n for n, g in gradients(clipped, ids_BT).items() if not torch.allclose(g, gradients(loose, ids_BT)[n])]
    assert {name.rpartition(".")[2] for name in unlike} >= {"W_x", "W_h", "b"}


@every_cell
def test_a_state_is_a_value_from_the_step_asked_for(cell: str, peepholes: str) -> None:
    """Windows of k2 = 6, k1 = 2 tokens apart, read on as one text does; no gradient passes from one to another."""
    layers, ids_BT = made(cell, peepholes), random_ids(3, 12)
    whole, _ = layers(ids_BT)
    state = None
    for begin in (0, 2, 4, 6):
        h_BTH, state = layers(ids_BT[:, begin : begin + 6], state, at=2)
        check_close(h_BTH, whole[:, begin : begin + 6], 1e-12)
        assert not any(s.requires_grad for s in tree_leaves(state))
    layers.zero_grad()
    layers(ids_BT[:, 6:], state)[0].sum().backward()
    assert layers.h0.grad is None, "the first state is two windows away"


@every_kernel
def test_two_windows_may_be_open_at_once(kernel: str, cell: str, peepholes: str) -> None:
    """Kernels keep memory for the next call: none that a graph still needs."""
    layers, one, other = made(cell, peepholes, kernel), random_ids(4, 9, seed=1), random_ids(4, 9, seed=2)
    apart = [gradients(layers, x) for x in (one, other)]
    layers.zero_grad()
    h = [layers(x)[0] for x in (one, other)]
    kept = [x.detach().clone() for x in h]
    sum((x * random_tensor(*x.shape, seed=99)).sum() for x in h).backward()
    assert all(torch.equal(x, y) for x, y in zip(h, kept, strict=True))
    for name, parameter in layers.named_parameters():
        check_close(parameter.grad, apart[0][name] + apart[1][name], 1e-12, name)


class OwnLoop(nn.Module):
    """The model of a run, with a head of somebody's own behind our layers."""

    def __init__(self, learner: Learner) -> None:
        super().__init__()
        e = learner.experiments[0]
        self.recurrent = Recurrent(e.cell, 7, e.hidden, e.layers, e.peepholes, e.clip, seed=e.seed)
        self.head = nn.Sequential(nn.Linear(e.hidden, e.dense), nn.LeakyReLU(0.01), nn.Linear(e.dense, 7))
        values = learner.model.values(0)
        self.double().recurrent.fill(values)  # drawn in float32, they were rounded
        with torch.no_grad():
            for n, name in ((0, "dense"), (2, "out")):
                self.head[n].weight.copy_(values[f"{name}.W"].t())
                self.head[n].bias.copy_(values[f"{name}.b"])

    def loss(self, inputs_BT: Tensor, targets_BT: Tensor, state: object, k1: int) -> tuple[Tensor, object]:
        h_BTH, state = self.recurrent(inputs_BT, state, at=k1)
        logits_BTV = self.head(h_BTH)
        return nn.functional.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten()), state


@pytest.mark.parametrize("state", ["learned", "carried"])
@every_cell
def test_a_loop_of_ones_own_trains_as_a_run_does(cell: str, peepholes: str, state: str) -> None:
    """Multi-loss and conditional multi-loss, with a clip that bites: ten batches of torch's own Adam."""
    sampled = "progressive" if state == "carried" else "windowed"
    experiment = tiny(cell=cell, peepholes=peepholes, layers=2, clip=1e-3, state=state, sample=sampled, batches=20)
    learner = Learner([experiment], [tiny_corpus()], engine_of(CPU, "reference"))
    loop = OwnLoop(learner)
    optimiser = torch.optim.Adam(loop.parameters(), experiment.learning_rate)
    held = loop.recurrent.initial_state(experiment.rows) if state == "carried" else None
    for count in range(10):
        batch = learner.batches[count]
        inputs_BT, targets_BT = batch.inputs_MTB[0].t(), batch.targets_MKB[0].t().long()
        loss, after = loop.loss(inputs_BT, targets_BT, held, experiment.scheme.k1)
        if state == "carried":
            held = tuple(s.detach() for s in tree_leaves(after))
            held = held if len(held) > 1 else held[0]
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        learner.step()
    ours = learner.model.values(0)
    theirs = dict(loop.recurrent.named_parameters())
    for name in [n for n in ours if n.startswith("layers") and not n.endswith(("h0", "c0"))]:
        check_close(theirs[name], ours[name], 1e-9, name)
    for name in loop.recurrent.cell.STATES if state == "learned" else ():
        check_close(theirs[f"{name}0"][0], ours[f"layers.0.{name}0"], 1e-9, name)


def test_values_are_those_that_a_run_of_this_seed_starts_from() -> None:
    experiment = tiny(layers=2, seed=11, forget_bias=1.0)
    learner = Learner([experiment], [tiny_corpus()], engine_of(CPU, "reference"))
    layers = Recurrent("lstm", 7, 5, 2, seed=11, forget_bias=1.0).double()
    ours = {n: v.float() for n, v in learner.model.values(0).items() if n in dict(layers.named_parameters())}
    check_identical({n: v.detach().float() for n, v in layers.named_parameters() if n in ours}, ours)
    assert [p for p in Recurrent("gru", 7, 5, learned=False).parameters() if not p.requires_grad]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cell": "lstmm"}, "Did you mean lstm"),
        ({"inputs": 0}, "inputs must be at least 1"),
        ({"hidden": 0}, "hidden must be between"),
        ({"clip": -1.0}, "clip must be a positive number"),
    ],
)
def test_settings_are_checked_as_a_runs_are(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Recurrent(**{"cell": "lstm", "inputs": 7, "hidden": 5, **changes})


def test_inputs_are_checked_before_a_kernel_sees_them() -> None:
    layers = Recurrent("lstm", 7, 5)
    for x, said in [
        (torch.tensor([[7]]), "between 0 and 6. Got 7 to 7"),
        (torch.tensor([[-1]]), "Got -1 to -1"),
        (torch.zeros(2, 3, 6), "7 numbers a step"),
        (torch.zeros(2, 3, 7, dtype=torch.float64), "of torch.float32. Got 7 of torch.float64"),
        (torch.zeros(3, dtype=torch.long), r"Got \[3\]"),
        (torch.zeros(3, 0, dtype=torch.long), r"Got \[3, 0\]"),
    ]:
        with pytest.raises(ConfigurationError, match=said):
            layers(x)
    with pytest.raises(ConfigurationError, match="at must be between 1 and the 4 steps"):
        layers(torch.zeros(2, 4, dtype=torch.long), at=5)
    with pytest.raises(ConfigurationError, match="must be float32 or float64"):
        layers.bfloat16()(torch.zeros(2, 4, dtype=torch.long))
    assert len(KNOWN) > 5
