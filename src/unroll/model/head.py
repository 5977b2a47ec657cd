"""From the top layer's h to logits: dense layer, leaky ReLU, dense layer to the vocabulary.

Shapes: M runs, N rows (positions × rows of a batch), H hidden, D dense, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from unroll.model.dropout import DENSE, OUT, Dropout
from unroll.model.precisions import PRECISIONS

LEAK = 0.01

Product = Callable[[Tensor, Tensor], Tensor]


class Head(NamedTuple):
    """The parameters of the two dense layers, for all runs; a symbol whose bias is −inf cannot be predicted."""

    dense_W: Tensor  # [M, H, D]
    dense_b: Tensor  # [M, D]
    out_W: Tensor  # [M, D, V]
    out_b: Tensor  # [M, V]

    def logits(self, h_MNH: Tensor, precision: str, product: Product, dropout: Dropout | None = None) -> Tensor:
        """Each row's logits: [M, N, V]. `product` multiplies factors of fewer bits without rounding the sums."""
        x_MND = h_MNH if dropout is None else dropout.dropped(h_MNH, DENSE)
        x_MND = _dense(x_MND, self.dense_W, self.dense_b, precision, product)
        x_MND = torch.nn.functional.leaky_relu(x_MND, LEAK)
        x_MND = x_MND if dropout is None else dropout.dropped(x_MND, OUT)
        return _dense(x_MND, self.out_W, self.out_b, precision, product)


def _dense(x_MNI: Tensor, W_MIO: Tensor, b_MO: Tensor, precision: str, product: Product) -> Tensor:
    factors = PRECISIONS[precision].products
    if factors == W_MIO.dtype:
        return torch.baddbmm(b_MO.unsqueeze(1), x_MNI, W_MIO)
    return product(x_MNI.to(factors), W_MIO.to(factors)) + b_MO.unsqueeze(1)


def nll(logits_MNV: Tensor, targets_MN: Tensor) -> Tensor:
    """The negative log-likelihood of each target, in training, perplexity and scores alike; any shape before V."""
    return torch.logsumexp(logits_MNV, -1) - logits_MNV.gather(-1, targets_MN.long().unsqueeze(-1)).squeeze(-1)
