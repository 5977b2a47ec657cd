"""The minimal GRU of Feng and others: gate and candidate see the input alone; column order z, c.

z = σ(pre_x_z)    h′ = (1 − z) ⊙ h + z ⊙ pre_x_c

h·W_h is computed by the caller and not used: no gradient reaches W_h.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from unroll.model.cells import Clip, Extra, RecurrentCell, State, unclipped


@final
class Cell(RecurrentCell):
    """Minimal gated recurrent unit."""

    GATES = 2
    STATES = ("h",)

    def forward(
        self, pre_x: Tensor, pre_h: Tensor, state: State, extra: Extra, clip: Clip = unclipped
    ) -> tuple[State, State]:
        """One step."""
        (h,) = state
        x_z, x_c = pre_x.chunk(2, dim=-1)
        z, candidate = torch.sigmoid(clip(x_z)), clip(x_c)
        return (torch.lerp(h, candidate, z),), (z, candidate, h)

    def backward(self, d_state: State, saved: State, extra: Extra, clip: float) -> tuple[Tensor, Tensor, State]:
        """The chain rule through one step, by hand."""
        (d_h,), (z, candidate, h) = d_state, saved
        d_sums = torch.cat((d_h * (candidate - h) * (z * (1 - z)), d_h * z), dim=-1)
        return d_sums, torch.zeros_like(d_sums), (d_h * (1 - z),)
