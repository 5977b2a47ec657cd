"""From the top layer's h to the negative log-likelihood of each target, and back, by torch's products on threads.

Dense layer, leaky ReLU, dense layer to the vocabulary, softmax: nearly all the work is six large products. A product of
thousands of rows works through more memory than the caches hold, so rows go through all layers a chunk at a time. Each
thread takes rows of its own, since threads that share a product wait for each other.

Shapes: M runs, N rows (all scored positions of all rows of a batch), P threads, R rows of a chunk, H hidden, D dense,
V vocabulary.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from unroll.engines.cpu import workers
from unroll.engines.cpu.buffer_pool import take
from unroll.model.head import LEAK

ROWS = 160  # rows of a chunk: its dense activations (0.7 MB at D = 1024) and its weights fit into a core's cache


def nll(h_MNH: Tensor, dense_W: Tensor, dense_b: Tensor, out_W: Tensor, out_b: Tensor, targets_MN: Tensor) -> Tensor:
    """−log softmax at each target: [M, N]. A symbol whose bias is −inf cannot be predicted and gets no gradient."""
    nll_MN: Tensor = _Nll.apply(h_MNH, dense_W, dense_b, out_W, out_b, targets_MN)
    return nll_MN


class _Nll(torch.autograd.Function):
    """Divides each run's rows among threads; a run's numbers are the same alone and in a fleet."""

    @staticmethod
    def forward(
        ctx: Any, h_MNH: Tensor, dense_W: Tensor, dense_b: Tensor, out_W: Tensor, out_b: Tensor, targets_MN: Tensor
    ) -> Tensor:
        nll_MN = torch.empty_like(targets_MN, dtype=h_MNH.dtype)
        chunks = _chunks(h_MNH.shape[1])
        held = [[_take(thread_chunks, dense_W, out_W) for thread_chunks in chunks] for _ in h_MNH]

        def work(m: int, thread: int) -> None:
            for rows, (x_RD, log_p_RV) in zip(chunks[thread], held[m][thread], strict=True):
                torch.addmm(dense_b[m], h_MNH[m, rows], dense_W[m], out=x_RD)
                torch.nn.functional.leaky_relu_(x_RD, LEAK)
                logits_RV = torch.addmm(out_b[m], x_RD, out_W[m])
                torch.log_softmax(logits_RV, -1, out=log_p_RV)
                chosen = log_p_RV.gather(-1, targets_MN[m, rows].unsqueeze(-1))
                torch.neg(chosen.flatten(), out=nll_MN[m, rows])

        workers.each_of(len(h_MNH), len(chunks), work)
        ctx.held = held
        ctx.save_for_backward(h_MNH, dense_W, out_W, targets_MN)
        return nll_MN

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_nll_MN: Tensor) -> tuple[Tensor | None, ...]:
        h_MNH, dense_W, out_W, targets_MN = ctx.saved_tensors
        held, ctx.held = ctx.held, ()  # the gradients overwrite what was held
        M, N, H = h_MNH.shape
        D, V = out_W.shape[1:]
        chunks = _chunks(N)
        P = len(chunks)
        d_h = torch.empty(M, N, H, dtype=h_MNH.dtype)
        # Each thread adds up its rows' part of the weights' gradients.
        d_W_MPHD = dense_W.new_empty(M, P, H, D)
        d_O_MPDV = out_W.new_empty(M, P, D, V)
        d_dense_b_MPD = dense_W.new_zeros(M, P, D)
        d_out_b_MPV = out_W.new_zeros(M, P, V)
        minus_one = h_MNH.new_full((), -1)
        W_back = dense_W.transpose(1, 2)
        O_back = out_W.transpose(1, 2)

        def work(m: int, thread: int) -> None:
            d_W = d_W_MPHD[m, thread]
            d_O = d_O_MPDV[m, thread]
            begun = 0.0
            for rows, (x_RD, d_logits) in zip(chunks[thread], held[m][thread], strict=True):
                targets, d_nll = (v[m, rows].unsqueeze(-1) for v in (targets_MN, d_nll_MN))
                # (softmax − one-hot) · d_nll
                d_logits.exp_().scatter_add_(-1, targets, minus_one.expand_as(targets)).mul_(d_nll)
                d_out_b_MPV[m, thread] += d_logits.sum(0)
                torch.addmm(d_O, x_RD.t(), d_logits, beta=begun, out=d_O)
                d_x = d_logits @ O_back[m]
                torch.ops.aten.leaky_relu_backward.grad_input(d_x, x_RD, LEAK, True, grad_input=d_x)
                d_dense_b_MPD[m, thread] += d_x.sum(0)
                torch.addmm(d_W, h_MNH[m, rows].t(), d_x, beta=begun, out=d_W)
                torch.mm(d_x, W_back[m], out=d_h[m, rows])
                begun = 1.0

        workers.each_of(M, P, work)
        totals = (x[:, 0] if P == 1 else x.sum(1) for x in (d_W_MPHD, d_dense_b_MPD, d_O_MPDV, d_out_b_MPV))
        return d_h, *totals, None


def _take(chunks: list[slice], dense_W: Tensor, out_W: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Memory for the dense activations and the log-probabilities of chunks."""
    columns = dense_W.shape[2], out_W.shape[2]
    sizes = [chunk.stop - chunk.start for chunk in chunks]
    return [(take((n, columns[0]), dense_W.dtype), take((n, columns[1]), dense_W.dtype)) for n in sizes]


def _chunks(N: int) -> list[list[slice]]:
    """Each thread's rows, in chunks that go through all layers together."""
    by_thread = []
    for rows in workers.divided(N, min(N, workers.count())):
        bounds = [*range(rows.start, rows.stop, ROWS), rows.stop]
        by_thread.append([slice(start, stop) for start, stop in pairwise(bounds)])
    return by_thread
