"""The model's head on an NVIDIA GPU: dense → leaky ReLU → dense → softmax → negative log-likelihood, and back.

Products are batched over runs; everything between two products is one launch (`head.cu`).

Shapes: M runs, N scored rows (positions × rows of a batch), H hidden, D dense, V vocabulary.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from unroll.engines.cuda import compiler, dropout_masks, hopper_head
from unroll.engines.cuda.dropout_masks import OUT, Dropout
from unroll.engines.cuda.products import product
from unroll.model.precisions import PRECISIONS

SOURCE = Path(__file__).with_suffix(".cu")
THREADS = 256


def nll(
    h_MNH: Tensor,
    dense_W: Tensor,
    dense_b: Tensor,
    out_W: Tensor,
    out_b: Tensor,
    targets_MN: Tensor,
    dropout: Dropout,
    precision: str,
    leak: float,
) -> Tensor:
    """The negative log-likelihood of every target: [M, N]."""
    if hopper_head.why_not(h_MNH, dense_W, out_W, precision) is None:
        return hopper_head.nll(h_MNH, dense_W, dense_b, out_W, out_b, targets_MN, dropout, leak)
    result: Tensor = _Head.apply(h_MNH, dense_W, dense_b, out_W, out_b, targets_MN, dropout, precision, leak)
    return result


class _Head(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        dense_W: Tensor,
        dense_b: Tensor,
        out_W: Tensor,
        out_b: Tensor,
        targets: Tensor,
        dropout: Dropout,
        precision: str,
        leak: float,
    ) -> Tensor:
        real = PRECISIONS[precision].products
        (M, N, _), D, V = h.shape, dense_W.shape[2], out_W.shape[2]
        code = _code(real, leak, D)
        h = h.to(real)
        dense_W = dense_W.to(real)
        out_W = out_W.to(real)
        targets = targets.to(torch.int32).contiguous()
        out_b = out_b.contiguous()
        h = dropout.dropped(h)
        x = torch.bmm(h, dense_W)
        code["activate"].launch(_blocks(x, 8), THREADS, x, dense_b.contiguous(), *dropout[:3], OUT, N * D, D)
        logits = product(x, out_W)
        likelihood, sums = torch.empty(2, M, N, device=h.device)
        rows = (-(-N // (THREADS // 32)), M)
        code["likelihood"].launch(rows, THREADS, logits, out_b, targets, likelihood, sums, N, V)
        ctx.save_for_backward(h, dense_W, out_W, out_b, targets, x, logits, sums)
        ctx.code, ctx.dropout, ctx.rows = code, dropout, rows
        nll_MN: Tensor = likelihood
        return nll_MN

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor | None, ...]:
        h, dense_W, out_W, out_b, targets, x, logits, sums = ctx.saved_tensors
        (M, N, V), D, code = logits.shape, x.shape[2], ctx.code
        d_logits = torch.empty(M, N, V, dtype=h.dtype, device=h.device)
        code["likelihood_back"].launch(ctx.rows, THREADS, logits, out_b, targets, sums, d.contiguous(), d_logits, N, V)
        ones = torch.ones(1, 1, 1, dtype=h.dtype, device=h.device).expand(M, 1, N)
        d_out_W = product(x.transpose(1, 2), d_logits)
        d_out_b = product(ones, d_logits).squeeze(1)
        d_x = torch.bmm(d_logits, out_W.transpose(1, 2))
        code["deactivate"].launch(_blocks(d_x, 8), THREADS, d_x, x, *ctx.dropout[:3], OUT, N * D)
        d_dense_W = product(h.transpose(1, 2), d_x)
        d_dense_b = product(ones, d_x).squeeze(1)
        d_h = ctx.dropout.dropped(torch.bmm(d_x, dense_W.transpose(1, 2)))
        return d_h, d_dense_W, d_dense_b, d_out_W, d_out_b, None, None, None, None


def _code(real: torch.dtype, leak: float, D: int) -> compiler.Module:
    kind = dropout_masks.real(real)
    sources = (dropout_masks.SOURCE, SOURCE)
    return compiler.Module.load(sources, {"REAL": kind, "LEAK": f"{leak}f", "WHOLE": int(D % 8 == 0)})


def _blocks(x: Tensor, each: int) -> tuple[int, int]:
    """The grid of blocks whose threads take `each` elements."""
    return -(-x[0].numel() // (each * THREADS)), len(x)
