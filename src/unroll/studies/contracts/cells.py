"""Rules of cells.

Shapes: M runs, T time, B rows, H hidden, G gate columns.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unroll.engines import kernels
from unroll.model import cells
from unroll.model.cells import Extra, RecurrentCell, State
from unroll.studies.contracts import cases, require

M, B, H, T = 2, 3, 5, 6
UNCLIPPED = 1e9


def it_says_its_gates_and_its_states(name: str) -> None:
    """It is a RecurrentCell with at least one gate, and states of different names, of which h is the first."""
    for cell in _variants(name):
        require(isinstance(cell, RecurrentCell), f"Cell is a {type(cell).__name__}, no RecurrentCell.")
        require(isinstance(cell.GATES, int) and cell.GATES >= 1, f"GATES is {cell.GATES!r}.")
        require(cell.STATES[:1] == ("h",), f"STATES is {cell.STATES!r}.")
        require(len(set(cell.STATES)) == len(cell.STATES), f"STATES is {cell.STATES!r}.")


def a_step_gives_states_of_the_shape_that_it_got(name: str) -> None:
    """`forward` takes sums of G columns and gives the next states, each [M, B, H], and changes nothing in place."""
    for cell in _variants(name):
        pre_x, pre_h, state, extra = _step(cell)
        before = [x.detach().clone() for x in (pre_x, pre_h, *state)]
        after, _ = cell.forward(pre_x, pre_h, state, extra)
        shapes = [tuple(s.shape) for s in after]
        require(shapes == [(M, B, H)] * len(cell.STATES), f"It gave states of the shapes {shapes}.")
        same = all(torch.equal(a, b) for a, b in zip(before, (pre_x, pre_h, *state), strict=True))
        require(same, "forward changed what it was given.")


def backward_is_the_chain_rule_of_forward(name: str) -> None:
    """`backward` and `extra_gradients` give what autograd makes of `forward`, where no gradient is clipped."""
    for cell in _variants(name):
        _hold_to_autograd(cell, UNCLIPPED)


def gradients_are_clipped_where_they_flow_into_a_sum(name: str) -> None:
    """The same while about half of the gates' gradients are clipped, element by element, at the sums marked `clip`."""
    for cell in _variants(name):
        d_sums = _hold_to_autograd(cell, UNCLIPPED)
        _hold_to_autograd(cell, float(d_sums.abs().median()))


def a_run_computes_alone_what_it_computes_among_others(name: str) -> None:
    """The run axis is a batch: each of M runs has the numbers that it has alone."""
    for cell in _variants(name):
        pre_x, pre_h, state, extra = _step(cell)
        together, _ = cell.forward(pre_x, pre_h, state, extra)
        for m in range(M):
            one = slice(m, m + 1)
            extra_of_m = {key: value[one] for key, value in extra.items()}
            alone, _ = cell.forward(pre_x[one], pre_h[one], tuple(s[one] for s in state), extra_of_m)
            for key, a, b in zip(cell.STATES, alone, together, strict=True):
                cases.require_close(a[0], b[m], f"{key} of run {m}", 1e-12)


def steps_one_by_one_are_the_sequence(name: str) -> None:
    """Sampling's single steps give the h of the kernels `reference` and `stacked` over the whole sequence."""
    for cell in _variants(name):
        runs = [cases.experiment(cell=name, peepholes=cell.peepholes, layers=2, seed=seed) for seed in range(M)]
        model, ids_MTB = cases.model(runs), cases.ids(M, T, B)
        with torch.no_grad():
            for kernel in ("reference", "stacked"):
                state = first = model.first_state(B)
                h_MTBH, _ = kernels.load(kernel).run(model.network, ids_MTB, first, torch.full((M,), T))
                for t in range(T):
                    state = model.advance(ids_MTB[:, t], state)
                    cases.require_close(state[-1][0], h_MTBH[:, t], f"h after step {t} of the kernel {kernel}", 1e-12)


def it_trains(name: str) -> None:
    """Five batches of training leave finite weights that have moved, the same by `reference` and by `stacked`."""
    trained = {}
    for kernel in ("reference", "stacked"):
        learner = cases.learner(cases.experiment(cell=name), kernel=kernel)
        before = learner.weights(0)
        for _ in range(5):
            learner.step()
        trained[kernel] = after = learner.weights(0)
        require(all(bool(value.isfinite().all()) for value in after.values()), "Weights are not finite.")
        moved = [key for key in after if not torch.equal(before[key], after[key])]
        require("layers.0.W_x" in moved, "W_x did not move: no gradient reaches it.")
    for key, value in trained["reference"].items():
        cases.require_close(trained["stacked"][key], value, f"{key} after training", 1e-8)


def _variants(name: str) -> list[RecurrentCell]:
    return [cells.load(name, peepholes) for peepholes in cases.variants(name)]


def _step(cell: RecurrentCell) -> tuple[Tensor, Tensor, State, Extra]:
    """The inputs of one step."""
    G = cell.GATES * H
    state = tuple(cases.tensor(M, B, H, seed=10 + n).requires_grad_() for n in range(len(cell.STATES)))
    extra = {
        key: cases.tensor(M, *shape, seed=20 + n).requires_grad_()
        for n, (key, shape) in enumerate(cell.extra_shapes(H).items())
    }
    pre_x, pre_h = (cases.tensor(M, B, G, seed=n).requires_grad_() for n in (1, 2))
    return pre_x, pre_h, state, extra


def _hold_to_autograd(cell: RecurrentCell, limit: float) -> Tensor:
    """Raise where the hand-written backward differs; the gradients of the sums, before the clip."""

    def clip(sums: Tensor) -> Tensor:
        sums = sums.clone()
        sums.register_hook(lambda gradient: gradient.clamp(-limit, limit))
        return sums

    pre_x, pre_h, state, extra = _step(cell)
    after, _ = cell.forward(pre_x, pre_h, state, extra, clip)
    d_after = tuple(cases.tensor(M, B, H, seed=30 + n) for n in range(len(after)))
    inputs = (pre_x, pre_h, *state, *extra.values())
    output = torch.stack([(s * d).sum() for s, d in zip(after, d_after, strict=True)]).sum()
    truth = cases.gradients(output, inputs, torch.ones_like(output))
    with torch.no_grad():
        after, saved = cell.forward(pre_x, pre_h, state, extra)
        d_sums, d_pre_h, d_state = cell.backward(d_after, saved, extra, limit)
        over_time = [tuple(s.unsqueeze(1) for s in states) for states in (state, after)]
        d_extra = cell.extra_gradients(d_sums.unsqueeze(1), *over_time)
    require(d_extra.keys() == extra.keys(), f"extra_gradients gave {list(d_extra)}; it must give {list(extra)}.")
    got = (d_sums.clamp(-limit, limit), d_pre_h, *d_state, *(d_extra[key] for key in extra))
    clipped = "" if limit == UNCLIPPED else f", clipped at {limit:.2g},"
    for key, mine, autograds in zip(("pre_x", "pre_h", *cell.STATES, *extra), got, truth, strict=True):
        cases.require_close(mine, autograds, f"The gradient of {key}{clipped}", 1e-12)
    return d_sums
