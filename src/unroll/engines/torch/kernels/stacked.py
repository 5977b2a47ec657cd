"""Uses each cell's own backward, over the run axis, on any device that torch knows.

A layer runs over all time steps before the next begins, so that its input product is one large product. The loop of the
backward pass only carries the state's gradient; the gradient of W_h is one large product after it. (Letting autograd
add up that gradient step by step costs eight times as much.)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from unroll.engines.kernels import products_by_torch
from unroll.model.cells import RecurrentCell, State
from unroll.model.network import Network, States, embed, state_at

RANK = 1


def supports(network: Network, device: torch.device) -> str | None:
    """Accept every cell on every device, in all precisions but bfloat16."""
    return products_by_torch(network)


def run(network: Network, ids_MTB: Tensor, first: States, at_M: Tensor) -> tuple[Tensor, States]:
    """All layers over all time steps."""
    at: list[State] = []
    h_MTBH: Tensor | None = None
    for layer, state in zip(network.layers, first, strict=True):
        if h_MTBH is None:
            # The bias goes into the table of rows, which is far smaller than the rows looked up.
            pre_x_MTBG = embed(layer.W_x + layer.b.unsqueeze(1), ids_MTB)
        else:
            M, T, B, H = h_MTBH.shape
            product = torch.baddbmm(layer.b.unsqueeze(1), h_MTBH.reshape(M, T * B, H), layer.W_x)
            pre_x_MTBG = product.view(M, T, B, -1)
        names = tuple(layer.extra)
        keep = torch.is_grad_enabled()
        over_time = _Layer.apply(
            network.cell, network.clip, names, keep, pre_x_MTBG, layer.W_h, *layer.extra.values(), *state
        )
        h_MTBH = over_time[0]
        at.append(state_at(tuple(s.detach() for s in over_time), at_M))
    assert h_MTBH is not None
    return h_MTBH, tuple(at)


class _Layer(torch.autograd.Function):
    """One layer over time: pre_x_MTBG, W_h, extras and first state in; the states after every step out."""

    @staticmethod
    def forward(
        ctx: Any,
        cell: RecurrentCell,
        clip: float,
        names: tuple[str, ...],
        keep: bool,  # keep what the backward pass needs
        pre_x_MTBG: Tensor,
        W_h: Tensor,
        *rest: Tensor,
    ) -> State:
        extra = dict(zip(names, rest, strict=False))
        first = rest[len(names) :]
        M, T = pre_x_MTBG.shape[:2]
        after = tuple(s.new_empty(M, T, *s.shape[1:]) for s in first)
        saved, state = [], first
        for t in range(T):
            state, needed = cell.forward(pre_x_MTBG[:, t], torch.bmm(state[0], W_h), state, extra)
            if keep:
                saved.append(needed)
            for over_time, s in zip(after, state, strict=True):
                over_time[:, t] = s
        ctx.mark_non_differentiable(*after[1:])
        ctx.cell, ctx.clip, ctx.saved = cell, clip, saved
        ctx.save_for_backward(W_h, *extra.values(), *first, *after)
        ctx.names = names
        return after

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        cell, clip, names = ctx.cell, ctx.clip, ctx.names
        W_h, *rest = ctx.saved_tensors
        extra = dict(zip(names, rest, strict=False))
        rest = rest[len(names) :]
        first = tuple(rest[: len(cell.STATES)])
        after = tuple(rest[len(cell.STATES) :])
        d_h_MTBH = gradients[0]
        M, T, B, H = d_h_MTBH.shape
        W_h_back = W_h.transpose(1, 2)

        d_sums_MTBG = d_h_MTBH.new_empty(M, T, B, W_h.shape[-1])
        d_pre_h_MTBG = torch.empty_like(d_sums_MTBG)
        d_state = tuple(torch.zeros_like(s) for s in first)
        for t in reversed(range(T)):
            d_state = (d_state[0] + d_h_MTBH[:, t], *d_state[1:])
            d_sums_MTBG[:, t], d_pre_h, d_state = cell.backward(d_state, ctx.saved[t], extra, clip)
            d_pre_h_MTBG[:, t] = d_pre_h
            d_state = (torch.baddbmm(d_state[0], d_pre_h, W_h_back), *d_state[1:])

        before = tuple(torch.cat((f.unsqueeze(1), a[:, :-1]), dim=1) for f, a in zip(first, after, strict=True))
        d_W_h = torch.bmm(before[0].reshape(M, T * B, H).transpose(1, 2), d_pre_h_MTBG.view(M, T * B, -1))
        # Peepholes see the gradient before the clip; only then is it clipped for the input product.
        d_extra = cell.extra_gradients(d_sums_MTBG, before, after)
        d_pre_x_MTBG = d_sums_MTBG.clamp_(-clip, clip)
        return None, None, None, None, d_pre_x_MTBG, d_W_h, *(d_extra[name] for name in names), *d_state
