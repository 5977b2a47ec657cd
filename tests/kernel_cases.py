"""Every kernel held to the reference in float64, in every precision: h, the states after step at_M, every gradient.

Errors are ‖got − truth‖ / ‖truth‖, tensor by tensor. TF32 rounds factors to 11 bits before it multiplies them, bfloat16
to 8. An output carries a few of these roundings: of h, the gates, its gradient, and the same of every layer between.
Sums are float32 and add none. So the bound is 4 units of the factors' rounding and 2 more for each layer. In float32
factors are not rounded; each of these units is then 16 units of the sums' rounding, since sums have up to tens of
thousands of terms.
"""

from __future__ import annotations

import itertools

import torch
from evidence import note_error

from unroll.base import plugins
from unroll.engines import kernels, precisions
from unroll.engines.cuda.products import multiplying
from unroll.model import cells
from unroll.model.network import Layer, Network, States
from unroll.model.precisions import PRECISIONS

UNIT = {"float64": 1e-13, "float32": 16 * 2.0**-24, "tf32": 2.0**-11, "bfloat16": 2.0**-9}
UNCLIPPED = 1e9
Outcome = dict[str, torch.Tensor]


def network(
    cell: cells.RecurrentCell, layers: int, M: int, H: int, V: int, clip: float, device: torch.device
) -> Network:
    """A network with weights of the size that training gives them, in float64 but exact in float32."""
    draw = torch.Generator().manual_seed(layers + 10 * M + 100 * H)
    built = []
    for layer in range(layers):
        inputs, G = H if layer else V, cell.GATES * H
        shapes = {"W_x": (inputs, G), "W_h": (H, G), "b": (G,), **cell.extra_shapes(H)}
        # Without gates larger weights would be chaos, in which every rounding grows from step to step.
        scales = {"W_x": inputs**-0.5 if layer else 0.5, "W_h": H**-0.5 * (0.5 if cell.GATES == 1 else 1.0)}
        parameters = {
            name: (torch.randn(M, *shape, generator=draw) * scales.get(name, 0.1)).double().to(device)
            for name, shape in shapes.items()
        }
        built.append(Layer(parameters.pop("W_x"), parameters.pop("W_h"), parameters.pop("b"), parameters))
    return Network(cell, clip, tuple(built), "float64")


def inputs(net: Network, T: int, B: int, V: int) -> tuple[torch.Tensor, States, torch.Tensor, torch.Tensor]:
    M, H, device = *net.layers[0].W_h.shape[:2], net.layers[0].W_h.device
    draw = torch.Generator().manual_seed(T + B)
    ids = torch.randint(0, V, (M, T, B), generator=draw).to(device)
    first = tuple(
        tuple((torch.randn(M, B, H, generator=draw) * 0.5).double().to(device) for _ in net.cell.STATES)
        for _ in net.layers
    )
    at_M = torch.tensor([1 + (3 * m + T // 2) % T for m in range(M)], device=device)
    return ids, first, at_M, (torch.randn(M, T, B, H, generator=draw) * 0.1).double().to(device)


def outcome(kernel: str, net: Network, precision: str, given: tuple) -> Outcome:
    """Everything that a kernel computes in a precision, by name."""
    dtype = PRECISIONS[precision].kept

    def leaf(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(dtype).requires_grad_()

    layers = tuple(
        Layer(leaf(one.W_x), leaf(one.W_h), leaf(one.b), {name: leaf(value) for name, value in one.extra.items()})
        for one in net.layers
    )
    ids, first, at_M, d_h = given
    first = tuple(tuple(leaf(s) for s in state) for state in first)
    with multiplying(precision):
        run = net._replace(layers=layers, precision=precision)
        h, after = kernels.load(kernel).run(run, ids, first, at_M)
        named = {}
        for n, (layer, state) in enumerate(zip(layers, first, strict=True)):
            named |= {f"{n} W_x": layer.W_x, f"{n} W_h": layer.W_h, f"{n} b": layer.b}
            named |= {f"{n} {name}": value for name, value in layer.extra.items()}
            named |= {f"{n} {name}0": s for name, s in zip(net.cell.STATES, state, strict=True)}
        gradients = torch.autograd.grad(h, list(named.values()), d_h.to(h.dtype))
    results = {"h": h.detach()} | {f"d {name}": g for name, g in zip(named, gradients, strict=True)}
    return results | {f"after {n} {s}": v for n, state in enumerate(after) for s, v in zip("hc", state, strict=False)}


def _runs(kernel: str, net: Network) -> bool:
    device = net.layers[0].W_h.device
    if precisions.why_not(net.precision, device):
        return False
    return kernels.load(kernel).supports(net, device) is None


def able(net: Network) -> list[tuple[str, str]]:
    """The kernels and precisions that run this network here, without the reference."""
    return [
        (kernel, precision)
        for kernel, precision in itertools.product(plugins.names("kernels"), UNIT)
        if kernel != "reference" and _runs(kernel, net._replace(precision=precision))
    ]


def check(net: Network, T: int, B: int, V: int, truth: Outcome | None = None) -> set[tuple[str, str]]:
    """Hold every kernel in every precision to the truth; return which pairs there were."""
    given = inputs(net, T, B, V)
    truth = truth or outcome("reference", net, "float64", given)
    pairs = able(net)
    units = 4 + 2 * len(net.layers)
    for kernel, precision in pairs:
        for name, value in outcome(kernel, net, precision, given).items():
            error = float((value.double() - truth[name]).norm() / truth[name].norm().clamp(min=1e-12))
            if value.is_cuda:
                what = f"{name}, {len(net.layers)} layers, T={T}"
                note_error(kernel, precision, what, error, units * UNIT[precision])
            assert error <= units * UNIT[precision], f"{kernel} {precision} {name}: {error:.1e}"
    return set(pairs)


def biting(net: Network, T: int, B: int, V: int) -> tuple[Network, Outcome]:
    """The network with a clip that many of the gradients at the gates exceed, so that they change much."""
    given = inputs(net, T, B, V)
    free = outcome("reference", net, "float64", given)
    net = net._replace(clip=float(free["d 0 b"].abs().median() / (3 * (T * B) ** 0.5)))
    bitten = outcome("reference", net, "float64", given)
    assert (bitten["d 0 W_h"] - free["d 0 W_h"]).norm() > 0.1 * free["d 0 W_h"].norm()
    return net, bitten
