"""The bias that torch's GRU has inside the product which the reset gate multiplies, in a GRU that has none there.

torch's candidate is tanh(x·W + b + r ⊙ (h·W_h + b_hn)), ours tanh(x·W + b + r ⊙ (h·W_h)). One more unit, always 1,
makes up for it: its row of W_h holds b_hn. It begins at 1, since first states are learned, and stays there: its update
gate is σ(−80), which changes no bit of a 1. Nothing else sees it.

Shapes: I inputs, H hidden (one more on the way out), G gate columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

SHUT = -80.0  # of the update gate; neither its exponential nor one minus it leaves the range of float32
GATES = 3


def with_a_unit(values: Mapping[str, Tensor], inner: Sequence[Tensor]) -> dict[str, Tensor]:
    """The layers of a GRU whose b_hn are `inner`, with one more unit each, and first states."""
    grown = {}
    for layer, b_hn in enumerate(inner):
        W_x, W_h, b = (_columns(values[f"layers.{layer}.{name}"]) for name in ("W_x", "W_h", "b"))
        H = len(b_hn)
        of_unit = torch.zeros_like(W_h[:1])
        of_unit[0, 2 * (H + 1) : 2 * (H + 1) + H] = b_hn  # into the candidates of the others
        b[2 * H + 1] = SHUT  # the last column of the update gates
        first = torch.zeros_like(b[: H + 1])
        first[-1] = 1.0
        grown[f"layers.{layer}.W_x"] = torch.cat((W_x, torch.zeros_like(W_x[:1]))) if layer else W_x
        grown[f"layers.{layer}.W_h"] = torch.cat((W_h, of_unit))
        grown[f"layers.{layer}.b"] = b
        grown[f"layers.{layer}.h0"] = first
    return grown


def _columns(value: Tensor) -> Tensor:
    """One more column for each gate, of zeros."""
    gates = value.chunk(GATES, dim=-1)
    return torch.cat([part for gate in gates for part in (gate, torch.zeros_like(gate[..., :1]))], dim=-1)
