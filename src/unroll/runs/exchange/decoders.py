"""From h to logits, in a model that somebody made: which decoders our two dense layers can stand for.

Ours are dense, leaky ReLU with slope 0.01, dense. Any piecewise linear function that bends at 0 is a sum of two of
those: with L the leaky ReLU, a·max(x, 0) + b·min(x, 0) = p·L(x) + q·L(−x) for every x. So a plain linear decoder is two
layers of twice its inputs, and one with ReLU between two layers has twice the units: exact but for the rounding of
the factors p and q. A leaky ReLU with our own slope is taken as it is, to the last bit.

Shapes: H hidden, D dense, V vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from unroll.base.errors import ConfigurationError
from unroll.model.head import LEAK

KNOWN = (
    "nn.Linear; nn.Sequential of Linear, LeakyReLU or ReLU, Linear; or the same with one nn.Dropout before each of "
    "the two Linear"
)


class Decoder(NamedTuple):
    """The parameters of our two dense layers, and their dropout."""

    dense_W: Tensor  # [H, D]
    dense_b: Tensor  # [D]
    out_W: Tensor  # [D, V]
    out_b: Tensor  # [V]
    dropout: float = 0.0


def read(decoder: nn.Module) -> Decoder:
    """Our two dense layers for a decoder that somebody made; an error in words where they cannot stand for it."""
    parts = list(decoder) if isinstance(decoder, nn.Sequential) else [decoder]
    kinds = [type(part) for part in parts]
    rate = 0.0
    if len(parts) == 5 and isinstance(parts[0], nn.Dropout) and isinstance(parts[3], nn.Dropout):
        rate, second = parts[0].p, parts[3].p
        if rate != second:
            raise ConfigurationError(f"Both dropouts of the decoder must be equal. Got {rate:g} and {second:g}.")
        parts = [parts[1], parts[2], parts[4]]
    if len(parts) == 1 and type(parts[0]) is nn.Linear:
        identity = torch.eye(parts[0].in_features, dtype=parts[0].weight.dtype)
        nothing = torch.zeros_like(identity[0])
        return _bent(identity, nothing, *_values(parts[0]), slope=1.0)
    if len(parts) == 3:
        dense, activation, out = parts
        slope = _slope(activation)
        if type(dense) is type(out) is nn.Linear and slope is not None:
            weights = (*_values(dense), *_values(out))
            bent = Decoder(*weights) if slope == LEAK else _bent(*weights, slope=slope)
            return bent._replace(dropout=rate)
    got = ", ".join(kind.__name__ for kind in kinds)
    raise ConfigurationError(f"This decoder cannot be represented. It must be {KNOWN}. Got {got}.")


def _slope(activation: nn.Module) -> float | None:
    """What negative numbers are multiplied by; None for what is not linear on both sides of 0."""
    if type(activation) is nn.LeakyReLU:
        return float(activation.negative_slope)
    return 0.0 if type(activation) is nn.ReLU else None


def _values(linear: nn.Module) -> tuple[Tensor, Tensor]:
    """As our layers have them: a column an output."""
    assert isinstance(linear, nn.Linear)
    weight = linear.weight.detach().cpu().t()
    bias = torch.zeros_like(weight[0]) if linear.bias is None else linear.bias.detach().cpu()
    return weight, bias


def _bent(dense_W: Tensor, dense_b: Tensor, out_W: Tensor, out_b: Tensor, slope: float) -> Decoder:
    """Another slope than ours, by each unit and its opposite."""
    p = (1 - LEAK * slope) / (1 - LEAK * LEAK)
    q = LEAK * p - slope
    out_DV = torch.cat((out_W.double() * p, out_W.double() * q)).to(out_W.dtype)
    return Decoder(torch.cat((dense_W, -dense_W), dim=1), torch.cat((dense_b, -dense_b)), out_DV, out_b)
