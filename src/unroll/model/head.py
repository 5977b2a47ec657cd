"""From the top layer's h to logits: dense layer, leaky ReLU, layer to the vocabulary; or the last of them alone.

Shapes: M runs, N rows (positions × rows of a batch), I inputs of a layer, O outputs, H hidden, D dense, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from unroll.model.dropout import DENSE, OUT, Dropout
from unroll.model.precisions import PRECISIONS

LEAK = 0.01

Product = Callable[[Tensor, Tensor], Tensor]


class Affine(NamedTuple):
    """The parameters of one layer, for all runs: a product, and what is added to it."""

    W: Tensor  # [M, I, O]
    b: Tensor  # [M, O]


class Head(NamedTuple):
    """The parameters of the head, for all runs; a symbol whose bias is −inf cannot be predicted."""

    out: Affine  # to the vocabulary: [M, D, V], without a dense layer [M, H, V]
    dense: Affine | None  # [M, H, D]; None: softmax directly on h

    @classmethod
    def of(cls, parameters: Mapping[str, Tensor]) -> Head:
        """The head among the parameters of a model."""
        dense = Affine(parameters["dense.W"], parameters["dense.b"]) if "dense.W" in parameters else None
        return cls(Affine(parameters["out.W"], parameters["out.b"]), dense)

    def logits(self, h_MNH: Tensor, precision: str, product: Product, dropout: Dropout | None = None) -> Tensor:
        """Each row's logits: [M, N, V]. `product` multiplies factors of fewer bits without rounding the sums."""
        x_MNI = h_MNH
        if self.dense is not None:
            x_MNI = x_MNI if dropout is None else dropout.dropped(x_MNI, DENSE)
            x_MNI = _affine(x_MNI, self.dense, precision, product)
            x_MNI = torch.nn.functional.leaky_relu(x_MNI, LEAK)
        x_MNI = x_MNI if dropout is None else dropout.dropped(x_MNI, OUT)
        return _affine(x_MNI, self.out, precision, product)


def _affine(x_MNI: Tensor, layer: Affine, precision: str, product: Product) -> Tensor:
    W_MIO, b_MO = layer
    factors = PRECISIONS[precision].products
    if factors == W_MIO.dtype:
        return torch.baddbmm(b_MO.unsqueeze(1), x_MNI, W_MIO)
    return product(x_MNI.to(factors), W_MIO.to(factors)) + b_MO.unsqueeze(1)


def nll(logits_MNV: Tensor, targets_MN: Tensor) -> Tensor:
    """The negative log-likelihood of each target, in training, perplexity and scores alike; any shape before V."""
    return torch.logsumexp(logits_MNV, -1) - logits_MNV.gather(-1, targets_MN.long().unsqueeze(-1)).squeeze(-1)
