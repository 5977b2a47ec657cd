"""A batched product and one launch for each step, on any NVIDIA GPU: the launch does all of the cell's pointwise work.

The loop of the backward pass carries only the state's gradient; the weights' gradients are large products after it.
The products are float32, TF32 or bfloat16, as the precision says; states and sums are float32.

Shapes: M runs, T time, B rows, I inputs, H hidden, G gate columns.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from unroll.engines.cuda import cells, compiler
from unroll.engines.cuda.products import product
from unroll.model.cells import RecurrentCell, State
from unroll.model.network import Network, States, state_at
from unroll.model.precisions import PRECISIONS

RANK = 2
THREADS = 256


def supports(network: Network, device: torch.device) -> str | None:
    """Accept LSTM and GRU on NVIDIA GPUs."""
    if device.type != "cuda":
        return "it needs an NVIDIA GPU"
    if cells.number(network.cell) is None:
        return "it knows the cells lstm and gru"
    if network.precision == "float64":
        return "it has no float64"
    return compiler.why_not()


def run(network: Network, ids_MTB: Tensor, first: States, at_M: Tensor) -> tuple[Tensor, States]:
    """Take all layers over all time steps."""
    at: list[State] = []
    below = ids_MTB.to(torch.int32).contiguous()
    for layer, state in zip(network.layers, first, strict=True):
        w_c = layer.extra.get("w_c")
        below, *over_time = _Layer.apply(
            network, torch.is_grad_enabled(), below, layer.W_x, layer.W_h, layer.b, w_c, *state
        )
        at.append(state_at((below.detach().to(layer.W_h.dtype), *over_time), at_M))
    return below, tuple(at)


class _Layer(torch.autograd.Function):
    """One layer over time: its input and parameters in; h, and c if the cell has one, over time out."""

    @staticmethod
    def forward(
        ctx: Any,
        network: Network,
        trains: bool,
        below: Tensor,
        W_x: Tensor,
        W_h: Tensor,
        b: Tensor,
        w_c: Tensor | None,
        *first: Tensor,
    ) -> State:
        (M, T, B), (H, G) = below.shape[:3], W_h.shape[1:]
        real = PRECISIONS[network.precision].products
        W_x_real = W_x.to(real)
        W_h_real = W_h.to(real)
        if below.dtype == torch.int32:
            ids, pre_x = below, W_x + b.unsqueeze(1)
        else:
            ids = None
            pre_x = product(below.flatten(1, 2), W_x_real).add_(b.unsqueeze(1))
        w_c = None if w_c is None else w_c.contiguous()
        states = W_h.new_empty(M, T + 1, B, H)
        h = torch.empty_like(states, dtype=real)
        saved = h.new_empty(M, T, B, 4, H) if trains else None
        states[:, 0], h[:, 0] = first[-1], first[0]
        step = _function(network.cell, real, "forward")
        for t in range(T):
            pre_h = product(h[:, t], W_h_real)
            step.launch((-(-B * H // THREADS), M), THREADS, pre_x, ids, pre_h, w_c, states, h, saved,
                        pre_x.shape[1], T, B, H, t)  # fmt: skip
        memory = (states[:, 1:],) if len(first) > 1 else ()
        ctx.mark_non_differentiable(*memory)
        if trains:
            ctx.network, ctx.sizes, ctx.real = network, (M, T, B, H, G, W_x.shape[1]), real
            ctx.save_for_backward(below, W_x_real, W_h_real, w_c, states, h, saved)
        return h[:, 1:], *memory

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_top: Tensor, *unused: Tensor) -> tuple[Tensor | None, ...]:
        below, W_x, W_h, w_c, states, h, saved = ctx.saved_tensors
        (M, T, B, H, G, I), network = ctx.sizes, ctx.network
        d_top = d_top.contiguous()
        d_pre_x = h.new_empty(M, T, B, G)
        d_pre_h = torch.empty_like(d_pre_x) if network.cell.GATES == 3 else d_pre_x
        d_h = states.new_zeros(M, B, H)
        d_states = states.new_zeros(M, B, H)
        d_w_c = states.new_zeros(M, B, 3, H)
        W_h_back = W_h.transpose(1, 2)
        step = _function(network.cell, ctx.real, "backward")
        for t in reversed(range(T)):
            step.launch((-(-B * H // THREADS), M), THREADS, d_top, d_h, d_states, saved, states, w_c, d_w_c,
                        d_pre_x, d_pre_h, network.clip, T, B, H, t)  # fmt: skip
            d_h = product(d_pre_h[:, t], W_h_back)
        d_first = (d_h, d_states) if len(network.cell.STATES) > 1 else (d_h + d_states,)
        before = h[:, :T].flatten(1, 2)
        d_sums = d_pre_x.flatten(1, 2)
        d_W_h = product(before.transpose(1, 2), d_pre_h.flatten(1, 2))
        d_W_x, d_b, d_below = cells.input_gradients(below, d_sums, W_x, I)
        d_peepholes = d_w_c.sum(1) if w_c is not None else None
        return None, None, d_below, d_W_x, d_W_h, d_b, d_peepholes, *d_first


def _function(cell: RecurrentCell, real: torch.dtype, name: str) -> compiler.Function:
    kind = "bf16" if real == torch.bfloat16 else "float"
    defines = {"CELL": cells.number(cell), "REAL": kind, "APPROXIMATE": int(kind == "bf16")}
    return cells.module("fused", defines)[name]
