"""From the top layer's h to the negative log-likelihood of each target, and back, compiled for this CPU.

A thread takes all its rows through all layers, dropout included, in one call: see `head_code.py`.

Shapes: M runs, N rows (all scored positions of all rows of a batch), P threads, H hidden, D dense, V vocabulary.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from unroll.engines.cpu import dropout_masks, parallel_calls, workers
from unroll.engines.cpu.buffer_pool import take
from unroll.engines.cpu.packing import grown, packed, padded, start
from unroll.engines.cpu.partial_sums import PartialSums
from unroll.model.dropout import DENSE, OUT, Dropout


def nll(
    h_MNH: Tensor,
    dense_W: Tensor,
    dense_b: Tensor,
    out_W: Tensor,
    out_b: Tensor,
    targets_MN: Tensor,
    leak: float,
    dropout: Dropout | None = None,
    in_bf16: bool = False,
) -> Tensor:
    """−log softmax at each target: [M, N]. A symbol whose bias is −inf cannot be predicted and gets no gradient."""
    sizes = [padded(n, h_MNH.dtype) for n in (h_MNH.shape[2], *out_W.shape[1:])]
    H, D, V = sizes
    padded_parameters = (
        grown(h_MNH, 2, H),
        grown(grown(dense_W, 1, H), 2, D),
        grown(dense_b, 1, D),
        grown(grown(out_W, 1, D), 2, V),
        grown(out_b, 1, V, -torch.inf),
    )
    factors_of = None
    if dropout and dropout.drops:
        of_h = dropout_masks.factors(dropout, DENSE, *h_MNH.shape[1:])
        of_x = dropout_masks.factors(dropout, OUT, h_MNH.shape[1], dense_b.shape[1])
        factors_of = _Factors(grown(of_h, 2, H), grown(of_x, 2, D))
    nll_MN: Tensor = _Nll.apply(leak, in_bf16, factors_of, *padded_parameters, targets_MN)
    return nll_MN


class _Factors(NamedTuple):
    """A batch's dropout: the factors of h and of the dense activations."""

    of_h: Tensor
    of_x: Tensor


class _Nll(torch.autograd.Function):
    """Divides each run's rows among threads; a run's numbers are the same alone and in a fleet."""

    @staticmethod
    def forward(
        ctx: Any,
        leak: float,
        in_bf16: bool,  # products multiply bfloat16
        factors_of: _Factors | None,
        h_MNH: Tensor,
        dense_W: Tensor,
        dense_b: Tensor,
        out_W: Tensor,
        out_b: Tensor,
        targets_MN: Tensor,
    ) -> Tensor:
        from unroll.engines.cpu.head_code import forward_for
        from unroll.engines.cpu.products import room_for
        from unroll.engines.cpu.softmax_code import FORWARD

        M, N, H = h_MNH.shape
        D, V = out_W.shape[1:]
        h_MNH = h_MNH.contiguous()
        targets_MN = targets_MN.contiguous()
        factors = h_MNH.new_empty(M, 0)
        if factors_of:
            factors = factors_of.of_x
            h_MNH = torch.mul(h_MNH, factors_of.of_h, out=take((M, N, H), h_MNH.dtype))
        x_MND, p_MNV = (take((M, N, n), h_MNH.dtype) for n in (D, V))
        shift_MN, total_MN, chosen_MN = (h_MNH.new_empty(M, N) for _ in range(3))
        W, O = (packed(weights, in_bf16=in_bf16) for weights in (dense_W, out_W))
        inputs = (h_MNH, W, dense_b.contiguous(), O, out_b.contiguous())
        results = (x_MND, p_MNV, shift_MN, total_MN, chosen_MN)
        step = forward_for(8 * h_MNH.dtype.itemsize, leak, bool(factors_of), in_bf16)
        stretches = _divided_rows(N)
        room_PM = take((len(stretches), M, room_for(FORWARD, max(H, D), in_bf16)), h_MNH.dtype)

        calls = []
        for m in range(M):
            of_run = [start(a, m) for a in (*inputs, *results, targets_MN, factors)]
            calls += [
                (*of_run, start(room, m), stretch.start, stretch.stop - stretch.start, H, D, V)
                for stretch, room in zip(stretches, room_PM, strict=True)
            ]
        parallel_calls.do(step, calls)
        ctx.held, ctx.settings = (x_MND, p_MNV, factors), (leak, in_bf16, factors_of)
        ctx.save_for_backward(h_MNH, dense_W, out_W, targets_MN)
        return total_MN.log_().add_(shift_MN).sub_(chosen_MN)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_nll_MN: Tensor) -> tuple[Tensor | None, ...]:
        from unroll.engines.cpu.head_code import backward_for
        from unroll.engines.cpu.products import room_for
        from unroll.engines.cpu.softmax_code import BACK

        h_MNH, dense_W, out_W, targets_MN = ctx.saved_tensors
        leak, in_bf16, factors_of = ctx.settings
        (x_MND, p_MNV, factors), ctx.held = ctx.held, ()  # the gradients overwrite what was held
        M, N, H = h_MNH.shape
        D, V = out_W.shape[1:]
        stretches = _divided_rows(N)
        P = len(stretches)
        d_h = take((M, N, H), h_MNH.dtype)
        # Each thread adds up its rows' part of the weights' gradients.
        sums = PartialSums(P, [(M, H, D), (M, D), (M, D, V), (M, V)], h_MNH.dtype)
        scratch_PMRD = take((P, M, BACK, D), h_MNH.dtype)
        room_PM = take((P, M, room_for(BACK, max(D, V), in_bf16)), h_MNH.dtype)
        inputs = (h_MNH, packed(dense_W, True, in_bf16), packed(out_W, True, in_bf16))
        held = (x_MND, p_MNV, d_nll_MN.contiguous(), targets_MN, factors)
        step = backward_for(8 * h_MNH.dtype.itemsize, leak, bool(factors_of), in_bf16)

        calls = []
        for m in range(M):
            of_run = [start(a, m) for a in (*inputs, *held)]
            for stretch, scratch, thread_sums, room in zip(
                stretches, scratch_PMRD, sums.by_thread, room_PM, strict=True
            ):
                of_thread = (start(a, m) for a in (scratch, d_h, *thread_sums, room))
                calls.append((*of_run, *of_thread, stretch.start, stretch.stop - stretch.start, H, D, V))
        parallel_calls.do(step, calls)
        if factors_of:
            d_h.mul_(factors_of.of_h)
        d_W, d_b, d_O, d_o = sums.totals()
        return None, None, None, d_h, d_W, d_b, d_O, d_o, None


def _divided_rows(N: int) -> list[slice]:
    return workers.divided(N, min(N, workers.count()))
