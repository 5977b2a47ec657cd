"""Softmax directly on h: the negative log-likelihood of each target, and back, compiled for this CPU.

As `compiled_head.py` for a model without a dense layer; `direct_head_code.py` has the code.

Shapes: M runs, N rows (all scored positions of all rows of a batch), P threads, H hidden, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from unroll.engines.cpu import dropout_masks, parallel_calls, workers
from unroll.engines.cpu.buffer_pool import take
from unroll.engines.cpu.packing import grown, packed, padded, start
from unroll.engines.cpu.partial_sums import PartialSums
from unroll.model.dropout import OUT, Dropout


def nll(
    h_MNH: Tensor,
    out_W: Tensor,
    out_b: Tensor,
    targets_MN: Tensor,
    dropout: Dropout | None = None,
    in_bf16: bool = False,
) -> Tensor:
    """−log softmax at each target: [M, N]. A symbol whose bias is −inf cannot be predicted and gets no gradient."""
    H, V = (padded(n, h_MNH.dtype) for n in out_W.shape[1:])
    inputs = grown(h_MNH, 2, H), grown(grown(out_W, 1, H), 2, V), grown(out_b, 1, V, -torch.inf)
    factors = None
    if dropout and dropout.drops:
        factors = grown(dropout_masks.factors(dropout, OUT, *h_MNH.shape[1:]), 2, H)
    nll_MN: Tensor = _Nll.apply(in_bf16, factors, *inputs, targets_MN)
    return nll_MN


class _Nll(torch.autograd.Function):
    """Divides each run's rows among threads; a run's numbers are the same alone and in a fleet."""

    @staticmethod
    def forward(
        ctx: Any,
        in_bf16: bool,  # products multiply bfloat16
        factors: Tensor | None,  # dropout's, of h
        h_MNH: Tensor,
        out_W: Tensor,
        out_b: Tensor,
        targets_MN: Tensor,
    ) -> Tensor:
        from unroll.engines.cpu.direct_head_code import forward_for
        from unroll.engines.cpu.products import room_for
        from unroll.engines.cpu.softmax_code import FORWARD

        M, N, H = h_MNH.shape
        V = out_W.shape[2]
        h_MNH = h_MNH.contiguous()
        targets_MN = targets_MN.contiguous()
        if factors is not None:
            h_MNH = torch.mul(h_MNH, factors, out=take((M, N, H), h_MNH.dtype))
        p_MNV = take((M, N, V), h_MNH.dtype)
        shift_MN, total_MN, chosen_MN = (h_MNH.new_empty(M, N) for _ in range(3))
        inputs = (h_MNH, packed(out_W, in_bf16=in_bf16), out_b.contiguous())
        results = (p_MNV, shift_MN, total_MN, chosen_MN)
        stretches = _divided_rows(N)
        room_PM = take((len(stretches), M, room_for(FORWARD, H, in_bf16)), h_MNH.dtype)

        calls = []
        for m in range(M):
            of_run = [start(a, m) for a in (*inputs, *results, targets_MN)]
            calls += [
                (*of_run, start(room, m), stretch.start, stretch.stop - stretch.start, H, V)
                for stretch, room in zip(stretches, room_PM, strict=True)
            ]
        parallel_calls.do(forward_for(8 * h_MNH.dtype.itemsize, in_bf16), calls)
        ctx.held, ctx.settings = p_MNV, (in_bf16, factors)
        ctx.save_for_backward(h_MNH, out_W, targets_MN)
        return total_MN.log_().add_(shift_MN).sub_(chosen_MN)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_nll_MN: Tensor) -> tuple[Tensor | None, ...]:
        from unroll.engines.cpu.direct_head_code import backward_for
        from unroll.engines.cpu.products import room_for
        from unroll.engines.cpu.softmax_code import BACK

        h_MNH, out_W, targets_MN = ctx.saved_tensors
        in_bf16, factors = ctx.settings
        p_MNV, ctx.held = ctx.held, None  # the gradients overwrite what was held
        M, N, H = h_MNH.shape
        V = out_W.shape[2]
        stretches = _divided_rows(N)
        P = len(stretches)
        d_h = take((M, N, H), h_MNH.dtype)
        # Each thread adds up its rows' part of the weights' gradients.
        sums = PartialSums(P, [(M, H, V), (M, V)], h_MNH.dtype)
        room_PM = take((P, M, room_for(BACK, V, in_bf16)), h_MNH.dtype)
        inputs = (h_MNH, packed(out_W, True, in_bf16), p_MNV, d_nll_MN.contiguous(), targets_MN)

        calls = []
        for m in range(M):
            of_run = [start(a, m) for a in inputs]
            for stretch, thread_sums, room in zip(stretches, sums.by_thread, room_PM, strict=True):
                of_thread = (start(a, m) for a in (d_h, *thread_sums, room))
                calls.append((*of_run, *of_thread, stretch.start, stretch.stop - stretch.start, H, V))
        parallel_calls.do(backward_for(8 * h_MNH.dtype.itemsize, in_bf16), calls)
        if factors is not None:
            d_h.mul_(factors)
        d_O, d_o = sums.totals()
        return None, None, d_h, d_O, d_o, None


def _divided_rows(N: int) -> list[slice]:
    return workers.divided(N, min(N, workers.count()))
