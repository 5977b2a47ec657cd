"""From h to logits, in a model that somebody made: which decoders our head can stand for.

Ours is one layer, or dense, leaky ReLU with slope 0.01, layer to the vocabulary. A plain linear decoder is the first,
and a leaky ReLU with our own slope the second, both to the last bit. Any piecewise linear function that bends at 0 is a
sum of two leaky ReLUs: with L ours, a·max(x, 0) + b·min(x, 0) = p·L(x) + q·L(−x) for every x. So a decoder with ReLU
between two layers has twice the units: exact but for the rounding of the factors p and q.

Shapes: H hidden, D dense, V vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from unroll.base.errors import ConfigurationError
from unroll.model.head import LEAK, Affine

KNOWN = (
    "nn.Linear; nn.Sequential of Linear, LeakyReLU or ReLU, Linear; or the same with one nn.Dropout before each Linear"
)


class Decoder(NamedTuple):
    """The parameters of our head, of one run, and its dropout."""

    out: Affine  # [D, V], without a dense layer [H, V]
    dense: Affine | None = None  # [H, D]
    dropout: float = 0.0

    @property
    def inputs(self) -> int:
        """How many numbers it takes."""
        return len((self.dense or self.out).W)

    def with_a_unit(self) -> Decoder:
        """The same for an h with one more unit, which is not looked at."""
        W, b = self.dense or self.out
        first = Affine(torch.cat((W, torch.zeros_like(W[:1]))), b)
        return self._replace(out=first) if self.dense is None else self._replace(dense=first)

    def values(self) -> dict[str, Tensor]:
        """The weights by the names that a run has for them."""
        layers = {"out": self.out} if self.dense is None else {"dense": self.dense, "out": self.out}
        return {f"{name}.{part}": value for name, layer in layers.items() for part, value in layer._asdict().items()}


def read(decoder: nn.Module) -> Decoder:
    """Our head for a decoder that somebody made; an error in words where it cannot stand for it."""
    parts = list(decoder) if isinstance(decoder, nn.Sequential) else [decoder]
    kinds = [type(part) for part in parts]
    rate = 0.0
    if len(parts) == 5 and isinstance(parts[0], nn.Dropout) and isinstance(parts[3], nn.Dropout):
        rate, second = parts[0].p, parts[3].p
        if rate != second:
            raise ConfigurationError(f"Both dropouts of the decoder must be equal. Got {rate:g} and {second:g}.")
        parts = [parts[1], parts[2], parts[4]]
    if len(parts) == 2 and isinstance(parts[0], nn.Dropout):
        rate, parts = parts[0].p, parts[1:]
    if len(parts) == 1 and type(parts[0]) is nn.Linear:
        return Decoder(_values(parts[0]), dropout=rate)
    if len(parts) == 3:
        dense, activation, out = parts
        slope = _slope(activation)
        if type(dense) is type(out) is nn.Linear and slope is not None:
            ours = Decoder(_values(out), _values(dense), rate)
            return ours if slope == LEAK else _bent(ours, slope)
    got = ", ".join(kind.__name__ for kind in kinds)
    raise ConfigurationError(f"This decoder cannot be represented. It must be {KNOWN}. Got {got}.")


def _slope(activation: nn.Module) -> float | None:
    """What negative numbers are multiplied by; None for what is not linear on both sides of 0."""
    if type(activation) is nn.LeakyReLU:
        return float(activation.negative_slope)
    return 0.0 if type(activation) is nn.ReLU else None


def _values(linear: nn.Module) -> Affine:
    """As our layers have them: a column an output."""
    assert isinstance(linear, nn.Linear)
    weight = linear.weight.detach().cpu().t()
    bias = torch.zeros_like(weight[0]) if linear.bias is None else linear.bias.detach().cpu()
    return Affine(weight, bias)


def _bent(decoder: Decoder, slope: float) -> Decoder:
    """Another slope than ours, by each unit and its opposite."""
    (out_W, out_b), dense = decoder.out, decoder.dense
    assert dense is not None
    p = (1 - LEAK * slope) / (1 - LEAK * LEAK)
    q = LEAK * p - slope
    out_DV = torch.cat((out_W.double() * p, out_W.double() * q)).to(out_W.dtype)
    both = Affine(torch.cat((dense.W, -dense.W), dim=1), torch.cat((dense.b, -dense.b)))
    return decoder._replace(out=Affine(out_DV, out_b), dense=both)
