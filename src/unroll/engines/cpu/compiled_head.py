"""From the top layer's h to the negative log-likelihood of each target, and back, compiled for this CPU.

As `threaded_head.py`, but a thread takes all its rows through all layers in one call (see `head_code.py`), and
dropout is inside.

Shapes: M runs, N rows (all scored positions of all rows of a batch), P parts, H hidden, D dense, V vocabulary.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from unroll.engines.cpu import dropout_masks, parallel_calls, workers
from unroll.engines.cpu.buffer_pool import take
from unroll.engines.cpu.packing import grown, packed, padded, start
from unroll.engines.cpu.partial_sums import Shares
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
    narrow: bool = False,
) -> Tensor:
    """−log softmax at each target: [M, N]. A symbol whose bias is −inf cannot be predicted and gets no gradient."""
    sizes = [padded(n, h_MNH.dtype) for n in (h_MNH.shape[2], *out_W.shape[1:])]
    H, D, V = sizes
    whole = (
        grown(h_MNH, 2, H),
        grown(grown(dense_W, 1, H), 2, D),
        grown(dense_b, 1, D),
        grown(grown(out_W, 1, D), 2, V),
        grown(out_b, 1, V, -torch.inf),
    )
    dropping = None
    if dropout and dropout.any:
        of_h = dropout_masks.factors(dropout, DENSE, *h_MNH.shape[1:])
        of_x = dropout_masks.factors(dropout, OUT, h_MNH.shape[1], dense_b.shape[1])
        dropping = _Dropping(grown(of_h, 2, H), grown(of_x, 2, D))
    found: Tensor = _Nll.apply(leak, narrow, dropping, *whole, targets_MN)
    return found


class _Dropping(NamedTuple):
    """A batch's dropout: what h and the dense activations are multiplied by."""

    of_h: Tensor
    of_x: Tensor


class _Nll(torch.autograd.Function):
    """Each run's rows in parts, one a thread: a run's numbers are the same alone and in a fleet."""

    @staticmethod
    def forward(
        ctx: Any,
        leak: float,
        narrow: bool,  # products are of bfloat16
        dropping: _Dropping | None,
        h_MNH: Tensor,
        dense_W: Tensor,
        dense_b: Tensor,
        out_W: Tensor,
        out_b: Tensor,
        targets_MN: Tensor,
    ) -> Tensor:
        from unroll.engines.cpu.head_code import FORWARD, forward_for
        from unroll.engines.cpu.products import room_for

        M, N, H = h_MNH.shape
        D, V = out_W.shape[1:]
        h_MNH, targets_MN = h_MNH.contiguous(), targets_MN.contiguous()
        factors = h_MNH.new_empty(M, 0)
        if dropping:
            factors = dropping.of_x
            h_MNH = torch.mul(h_MNH, dropping.of_h, out=take((M, N, H), h_MNH.dtype))
        x_MND, p_MNV = (take((M, N, n), h_MNH.dtype) for n in (D, V))
        shift_MN, total_MN, chosen_MN = (h_MNH.new_empty(M, N) for _ in range(3))
        W, O = (packed(weights, narrow=narrow) for weights in (dense_W, out_W))
        own = (h_MNH, W, dense_b.contiguous(), O, out_b.contiguous())
        results = (x_MND, p_MNV, shift_MN, total_MN, chosen_MN)
        step, rows = forward_for(8 * h_MNH.dtype.itemsize, leak, bool(dropping), narrow), _rows(N)
        room_PM = take((len(rows), M, room_for(FORWARD, max(H, D), narrow)), h_MNH.dtype)

        calls = []
        for m in range(M):
            of_run = [start(a, m) for a in (*own, *results, targets_MN, factors)]
            calls += [
                (*of_run, start(room, m), part.start, part.stop - part.start, H, D, V)
                for part, room in zip(rows, room_PM, strict=True)
            ]
        parallel_calls.do(step, calls)
        ctx.held, ctx.settings = (x_MND, p_MNV, factors), (leak, narrow, dropping)
        ctx.save_for_backward(h_MNH, dense_W, out_W, targets_MN)
        return total_MN.log_().add_(shift_MN).sub_(chosen_MN)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_nll_MN: Tensor) -> tuple[Tensor | None, ...]:
        from unroll.engines.cpu.head_code import BACK, backward_for
        from unroll.engines.cpu.products import room_for

        h_MNH, dense_W, out_W, targets_MN = ctx.saved_tensors
        leak, narrow, dropping = ctx.settings
        (x_MND, p_MNV, factors), ctx.held = ctx.held, ()  # the gradients take the place of what was held
        M, N, H = h_MNH.shape
        D, V = out_W.shape[1:]
        rows = _rows(N)
        P = len(rows)
        d_h = take((M, N, H), h_MNH.dtype)
        # Each part adds up its own share of the weights' gradients.
        shares = Shares(P, [(M, H, D), (M, D), (M, D, V), (M, V)], h_MNH.dtype)
        scratch_PMRD = take((P, M, BACK, D), h_MNH.dtype)
        room_PM = take((P, M, room_for(BACK, max(D, V), narrow)), h_MNH.dtype)
        own = (h_MNH, packed(dense_W, True, narrow), packed(out_W, True, narrow))
        held = (x_MND, p_MNV, d_nll_MN.contiguous(), targets_MN, factors)
        step = backward_for(8 * h_MNH.dtype.itemsize, leak, bool(dropping), narrow)

        calls = []
        for m in range(M):
            of_run = [start(a, m) for a in (*own, *held)]
            for part, scratch, share, room in zip(rows, scratch_PMRD, shares.of, room_PM, strict=True):
                of_part = (start(a, m) for a in (scratch, d_h, *share, room))
                calls.append((*of_run, *of_part, part.start, part.stop - part.start, H, D, V))
        parallel_calls.do(step, calls)
        if dropping:
            d_h.mul_(dropping.of_h)
        d_W, d_b, d_O, d_o = shares.totals()
        return None, None, None, d_h, d_W, d_b, d_O, d_o, None


def _rows(N: int) -> list[slice]:
    return workers.divided(N, min(N, workers.count()))
