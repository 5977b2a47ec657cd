"""From the top layer's h to the negative log-likelihood of each target, and back, on the CPU.

Dense layer, leaky ReLU, dense layer to the vocabulary, softmax: nearly all of it is six large products. A product of
thousands of rows works through more memory than the caches hold, so rows go through all layers a chunk at a time. And
a chunk is one batch of smaller products, one a thread, since threads that share a product wait for each other.

Shapes: M runs, N rows (all scored positions of all rows of a batch), P parts, R rows of a part, H hidden, D dense,
V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from unroll.spare import Spare

LEAK = 0.01
ROWS = 160  # of a part, so that its dense activations (0.7 MB at D = 1024) and its weights share a core's cache


_spare = Spare()


def nll(h_MNH: Tensor, dense_W: Tensor, dense_b: Tensor, out_W: Tensor, out_b: Tensor, targets_MN: Tensor) -> Tensor:
    """−log softmax at each target: [M, N]. A symbol whose bias is −inf cannot be predicted and gets no gradient."""
    found: Tensor = _Nll.apply(h_MNH, dense_W, dense_b, out_W, out_b, targets_MN)
    return found


class _Nll(torch.autograd.Function):
    """The runs one after the other: a run's numbers are the same alone and in a fleet."""

    @staticmethod
    def forward(
        ctx: Any, h_MNH: Tensor, dense_W: Tensor, dense_b: Tensor, out_W: Tensor, out_b: Tensor, targets_MN: Tensor
    ) -> Tensor:
        nll_MN = torch.empty_like(targets_MN, dtype=h_MNH.dtype)
        ctx.held = []
        for m in range(len(h_MNH)):
            for rows, parts in _chunks(h_MNH.shape[1]):
                h = h_MNH[m, rows].unflatten(0, (parts, -1))
                W, O = (w[m].expand(parts, -1, -1) for w in (dense_W, out_W))
                x_PRD = _spare.take((*h.shape[:2], W.shape[2]), h.dtype)
                torch.baddbmm(dense_b[m], h, W, out=x_PRD)
                torch.nn.functional.leaky_relu_(x_PRD, LEAK)
                log_p_PRV = torch.log_softmax(torch.baddbmm(out_b[m], x_PRD, O), -1)
                chosen = log_p_PRV.gather(-1, targets_MN[m, rows].reshape(parts, -1, 1))
                torch.neg(chosen.flatten(), out=nll_MN[m, rows])
                ctx.held.append((x_PRD, log_p_PRV))
        ctx.save_for_backward(h_MNH, dense_W, out_W, targets_MN)
        return nll_MN

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_nll_MN: Tensor) -> tuple[Tensor | None, ...]:
        h_MNH, dense_W, out_W, targets_MN = ctx.saved_tensors
        held, ctx.held = iter(ctx.held), ()  # the gradients take the place of what was held
        M, N, H = h_MNH.shape
        D, V = out_W.shape[1:]
        d_h = torch.empty(M, N, H, dtype=h_MNH.dtype)
        d_dense_W, d_out_W = torch.empty_like(dense_W), torch.empty_like(out_W)
        d_dense_b, d_out_b = dense_W.new_zeros(M, D), out_W.new_zeros(M, V)
        minus_one = h_MNH.new_full((), -1)
        for m in range(M):
            chunks = _chunks(N)
            most = max(parts for _, parts in chunks)
            W_back, O_back = dense_W[m].t().contiguous(), out_W[m].t().contiguous()
            # Each part adds up its own share of the weights' gradients.
            d_W_PHD, d_O_PDV = dense_W.new_zeros(most, H, D), out_W.new_zeros(most, D, V)
            for rows, parts in chunks:
                x_PRD, d_logits = next(held)
                targets, d_nll = (v[m, rows].reshape(parts, -1, 1) for v in (targets_MN, d_nll_MN))
                # (softmax − one-hot) · d_nll
                d_logits.exp_().scatter_add_(-1, targets, minus_one.expand_as(targets)).mul_(d_nll)
                d_out_b[m] += d_logits.sum((0, 1))
                d_O_PDV[:parts].baddbmm_(x_PRD.transpose(1, 2), d_logits)
                d_x = _spare.take(tuple(x_PRD.shape), x_PRD.dtype)
                torch.bmm(d_logits, O_back.expand(parts, -1, -1), out=d_x)
                torch.ops.aten.leaky_relu_backward.grad_input(d_x, x_PRD, LEAK, True, grad_input=d_x)
                d_dense_b[m] += d_x.sum((0, 1))
                h = h_MNH[m, rows].unflatten(0, (parts, -1))
                d_W_PHD[:parts].baddbmm_(h.transpose(1, 2), d_x)
                torch.bmm(d_x, W_back.expand(parts, -1, -1), out=d_h[m, rows].unflatten(0, (parts, -1)))
                _spare.give(x_PRD, d_x)
            torch.sum(d_W_PHD, 0, out=d_dense_W[m])
            torch.sum(d_O_PDV, 0, out=d_out_W[m])
        return d_h, d_dense_W, d_dense_b, d_out_W, d_out_b, None


def _chunks(N: int) -> list[tuple[slice, int]]:
    """Which rows go together, and in how many equal parts."""
    threads = torch.get_num_threads()
    size = threads * ROWS
    chunks = [slice(start, min(start + size, N)) for start in range(0, N, size)]
    return [(rows, threads if (rows.stop - rows.start) % threads == 0 else 1) for rows in chunks]
