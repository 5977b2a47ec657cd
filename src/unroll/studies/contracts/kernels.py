"""Rules of kernels. They are run on this machine's CPU; a kernel for another device says there why it cannot.

Shapes: M runs, T time, B rows, K steps, H hidden.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from unroll.base import plugins
from unroll.engines import kernels
from unroll.model import cells
from unroll.model.network import Layer, Network, States
from unroll.studies.contracts import NotHere, cases, require

B, H = 3, 5
UNCLIPPED, TIGHT = 1e9, 0.05


def it_says_what_it_cannot_run_in_words(name: str) -> None:
    """`supports` gives None, or a reason in words, for every cell of this installation."""
    for cell in plugins.names("cells"):
        for peepholes in cases.variants(cell):
            reason = kernels.load(name).supports(_network(cell, peepholes, 1, 1, UNCLIPPED), cases.CPU)
            require(reason is None or (isinstance(reason, str) and bool(reason)), f"supports gave {reason!r}.")


def it_gives_the_outputs_and_states_of_the_reference(name: str) -> None:
    """The top layer's h, and every layer's state after step at_M as a value without a gradient."""
    for net, M, T in _known(name):
        (h, after, _), (true_h, true_after, _) = (_run(kernel, net, M, T) for kernel in (name, "reference"))
        where = f"{len(net.layers)} layers, M = {M}, T = {T}"
        cases.require_close(h, true_h, f"h ({where})")
        for mine, truth in zip(after, true_after, strict=True):
            for key, a, b in zip(net.cell.STATES, mine, truth, strict=True):
                require(not a.requires_grad, "A state after step at_M has a gradient.")
                cases.require_close(a, b, f"{key} after at_M ({where})")


def it_gives_the_gradients_of_the_reference(name: str) -> None:
    """The gradients of every weight and first state, clipped at the gates' sums as the reference clips."""
    for clip in (UNCLIPPED, TIGHT):
        for net, M, T in _known(name, clip):
            (_, _, mine), (_, _, truth) = (_run(kernel, net, M, T) for kernel in (name, "reference"))
            for key, gradient in truth.items():
                where = f"{len(net.layers)} layers, M = {M}, T = {T}, clip {clip:g}"
                cases.require_close(mine[key], gradient, f"The gradient of {key} ({where})")


def a_text_in_two_pieces_is_one_pass(name: str) -> None:
    """The state after a piece, given to the next, goes on as one pass does."""
    for net, M, T in _known(name):
        if T < 2:
            continue
        run, ids_MTB, cut = kernels.load(name).run, cases.ids(M, T, B), T // 2
        first = tuple(tuple(torch.zeros(M, B, H).double() for _ in net.cell.STATES) for _ in net.layers)
        whole, at_cut = run(net, ids_MTB, first, torch.tensor([cut] * M))
        rest, _ = run(net, ids_MTB[:, cut:], at_cut, torch.tensor([1] * M))
        cases.require_close(rest, whole[:, cut:], "The second piece", 1e-12)


def the_last_steps_alone_are_the_end_of_all(name: str) -> None:
    """`run_last`, where a kernel has its own, gives the last K steps of `run`; a first state may be given once."""
    for net, M, T in _known(name):
        ids_MTB, at_M = cases.ids(M, T, B), torch.full((M,), T)
        once = tuple(tuple(cases.tensor(M, 1, H, seed=n) for n in range(len(net.cell.STATES))) for _ in net.layers)
        each = tuple(tuple(s.expand(-1, B, -1) for s in state) for state in once)
        with torch.no_grad():
            h_MTBH, _ = kernels.load(name).run(net, ids_MTB, each, at_M)
            for K in {1, T}:
                h_MKBH, _ = kernels.run_last(kernels.load(name), net, ids_MTB, once, at_M, K)
                cases.require_close(h_MKBH, h_MTBH[:, -K:], f"The last {K} of {T} steps", 1e-12)


def _known(name: str, clip: float = UNCLIPPED) -> Iterator[tuple[Network, int, int]]:
    """Networks that the kernel runs here, with M and T; NotHere where there are none."""
    reasons = {}
    for cell in plugins.built_in("cells"):
        for peepholes in cases.variants(cell):
            for layers, M, T in itertools.product((1, 2), (1, 3), (1, 7)):
                net = _network(cell, peepholes, layers, M, clip)
                reason = kernels.load(name).supports(net, cases.CPU)
                if reason is None:
                    yield net, M, T
                reasons[cell, peepholes] = reason
    if None not in reasons.values():
        raise NotHere(f"it runs nothing on this CPU: {next(iter(reasons.values()))}.")


def _network(cell: str, peepholes: str, layers: int, M: int, clip: float) -> Network:
    one, built = cells.load(cell, peepholes), []
    for layer in range(layers):
        G = one.GATES * H
        shapes = {"W_x": (H if layer else cases.VOCABULARY, G), "W_h": (H, G), "b": (G,), **one.extra_shapes(H)}
        weights = {
            key: cases.tensor(M, *shape, seed=100 * layer + n, scale=0.6).requires_grad_()
            for n, (key, shape) in enumerate(shapes.items())
        }
        built.append(Layer(weights.pop("W_x"), weights.pop("W_h"), weights.pop("b"), weights))
    return Network(one, clip, tuple(built))


def _run(kernel: str, net: Network, M: int, T: int) -> tuple[Tensor, States, dict[str, Tensor]]:
    """Outputs, states, and the gradients of a random combination of the outputs."""
    first = tuple(
        tuple(cases.tensor(M, B, H, seed=50 + 10 * layer + n).requires_grad_() for n in range(len(net.cell.STATES)))
        for layer in range(len(net.layers))
    )
    at_M = torch.tensor([1 + (3 * m + 1) % T for m in range(M)])
    h_MTBH, after = kernels.load(kernel).run(net, cases.ids(M, T, B), first, at_M)
    inputs: dict[str, Tensor] = {}
    for n, (layer, state) in enumerate(zip(net.layers, first, strict=True)):
        named = {"W_x": layer.W_x, "W_h": layer.W_h, "b": layer.b, **layer.extra}
        named |= {f"{key}0": s for key, s in zip(net.cell.STATES, state, strict=True)}
        inputs |= {f"{key} of layer {n}": value for key, value in named.items()}
    d_inputs = cases.gradients(h_MTBH, list(inputs.values()), cases.tensor(M, T, B, H, seed=3))
    return h_MTBH, after, dict(zip(inputs, d_inputs, strict=True))
