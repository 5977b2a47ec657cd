"""Every cell: forward is differentiable, backward is its chain rule, and a step is a step of a sequence."""

from __future__ import annotations

import pytest
import torch
from helpers import check_close, every_cell, every_kernel, random_ids, random_model, random_tensor, tiny

from unroll.engines import kernels
from unroll.model import cells

M, B, H = 2, 3, 5
INACTIVE = 1e9


def random_step(cell: cells.RecurrentCell) -> tuple[torch.Tensor, torch.Tensor, cells.State, cells.Extra]:
    """The inputs of one step: pre_x, pre_h, the state before, the extra parameters."""
    G = cell.GATES * H
    state = tuple(random_tensor(M, B, H, seed=10 + n, grad=True) for n in range(len(cell.STATES)))
    extra = {
        name: random_tensor(M, *shape, seed=20 + n, grad=True)
        for n, (name, shape) in enumerate(cell.extra_shapes(H).items())
    }
    return random_tensor(M, B, G, seed=1, grad=True), random_tensor(M, B, G, seed=2, grad=True), state, extra


def check_backward(cell: cells.RecurrentCell, limit: float) -> torch.Tensor:
    """Hold the hand-written backward to autograd; the gradients that arrive at the sums, before the clip."""

    def clip(sums: torch.Tensor) -> torch.Tensor:
        sums = sums.clone()
        sums.register_hook(lambda gradient: gradient.clamp(-limit, limit))
        return sums

    pre_x, pre_h, state, extra = random_step(cell)
    after, _ = cell.forward(pre_x, pre_h, state, extra, clip)
    d_after = tuple(random_tensor(M, B, H, seed=30 + n) for n in range(len(after)))
    inputs = (pre_x, pre_h, *state, *extra.values())
    # The simple RNN's state reaches the next only through pre_h.
    truth = torch.autograd.grad(after, inputs, d_after, allow_unused=True)
    truth = [torch.zeros_like(i) if g is None else g for i, g in zip(inputs, truth, strict=True)]

    with torch.no_grad():
        after, saved = cell.forward(pre_x, pre_h, state, extra)
        d_sums, d_pre_h, d_state = cell.backward(d_after, saved, extra, limit)
        over_time = [tuple(s.unsqueeze(1) for s in states) for states in (state, after)]
        d_extra = cell.extra_gradients(d_sums.unsqueeze(1), *over_time)
    assert d_extra.keys() == extra.keys()
    got = (d_sums.clamp(-limit, limit), d_pre_h, *d_state, *(d_extra[name] for name in extra))
    names = ("pre_x", "pre_h", *cell.STATES, *extra)
    for name, mine, autograds in zip(names, got, truth, strict=True):
        check_close(mine, autograds, 1e-12, f"gradient of {name}")
    return d_sums.abs()


@every_cell
def test_forward_passes_gradcheck(cell: str, peepholes: str) -> None:
    one = cells.load(cell, peepholes)
    pre_x, pre_h, state, extra = random_step(one)

    def step(pre_x: torch.Tensor, pre_h: torch.Tensor, *rest: torch.Tensor) -> cells.State:
        return one.forward(pre_x, pre_h, rest[: len(state)], dict(zip(extra, rest[len(state) :], strict=True)))[0]

    assert torch.autograd.gradcheck(step, (pre_x, pre_h, *state, *extra.values()))


@every_cell
def test_backward_equals_autograd(cell: str, peepholes: str) -> None:
    assert check_backward(cells.load(cell, peepholes), INACTIVE).max() < INACTIVE


@every_cell
@pytest.mark.parametrize("share", [0.3, 0.7])
def test_backward_equals_autograd_while_clipping(cell: str, peepholes: str, share: float) -> None:
    one = cells.load(cell, peepholes)
    limit = float(check_backward(one, INACTIVE).quantile(1 - share))
    clipped = (check_backward(one, limit) > limit).double().mean()
    # Clipping one gate lowers the gradients of gates behind it, so fewer pass the limit than the share says.
    assert share - 0.2 <= clipped <= share + 0.1


@every_cell
def test_parameters_have_the_names_and_shapes_of_a_run_folder(cell: str, peepholes: str) -> None:
    one = cells.load(cell, peepholes)
    assert one.STATES[0] == "h"
    if cell in ("lstm", "gru", "rnn"):
        assert one.extra_shapes(H) == ({"w_c": (3, H)} if peepholes != "off" else {})
    (pre_x, pre_h, state, extra) = random_step(one)
    after, _ = one.forward(pre_x, pre_h, state, extra)
    assert [s.shape for s in after] == [(M, B, H)] * len(one.STATES)


@every_kernel
@pytest.mark.parametrize("layers", [1, 2])
def test_stepwise_equals_over_a_sequence(cell: str, peepholes: str, layers: int, kernel: str) -> None:
    T = 6
    runs = [tiny(cell=cell, peepholes=peepholes, layers=layers, seed=seed) for seed in range(M)]
    model = random_model(runs, [7, 7])
    ids_MTB = random_ids(M, T, B)
    state = first = model.first_state(B)
    with torch.no_grad():
        h_MTBH, at = kernels.load(kernel).run(model.network, ids_MTB, first, torch.full((M,), T))
        for t in range(T):
            state = model.advance(ids_MTB[:, t], state)
            check_close(state[-1][0], h_MTBH[:, t], 1e-12, f"h after step {t}")
    for layer, (stepwise, over_sequence) in enumerate(zip(state, at, strict=True)):
        for name, a, b in zip(model.cell.STATES, stepwise, over_sequence, strict=True):
            check_close(a, b, 1e-12, f"{name} of layer {layer}")
