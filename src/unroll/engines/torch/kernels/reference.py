"""The truth: a plain loop over layers and time steps, differentiated by autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from unroll.engines.kernels import products_by_torch
from unroll.model.cells import State
from unroll.model.network import Network, States, embed, state_at


class _Clip(torch.autograd.Function):
    """Does nothing in the forward pass; clips the gradient, element by element, in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, limit: float) -> Tensor:
        ctx.limit = limit
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0].clamp(-ctx.limit, ctx.limit), None


def supports(network: Network, device: torch.device) -> str | None:
    """Accept every cell on every device, in all precisions but bfloat16."""
    return products_by_torch(network)


def run(network: Network, ids_MTB: Tensor, first: States, at_M: Tensor) -> tuple[Tensor, States]:
    """All layers over all time steps."""

    def clip(sums: Tensor) -> Tensor:
        clipped: Tensor = _Clip.apply(sums, network.clip)
        return clipped

    at: list[State] = []
    h_MTBH: Tensor | None = None
    for layer, state in zip(network.layers, first, strict=True):
        history = []
        for t in range(ids_MTB.shape[1]):
            product = embed(layer.W_x, ids_MTB[:, t]) if h_MTBH is None else h_MTBH[:, t] @ layer.W_x
            pre_x = product + layer.b.unsqueeze(1)
            pre_h = state[0] @ layer.W_h
            state, _ = network.cell.forward(pre_x, pre_h, state, layer.extra, clip)
            history.append(state)
        over_time = tuple(torch.stack(component, dim=1) for component in zip(*history, strict=True))
        h_MTBH = over_time[0]
        at.append(state_at(tuple(s.detach() for s in over_time), at_M))
    assert h_MTBH is not None
    return h_MTBH, tuple(at)
