"""The GRU with the reset after the product, and one bias; column order r, u, c.

r, u = σ(pre_x + pre_h)    candidate = tanh(pre_x_c + r ⊙ pre_h_c)    h′ = (1 − u) ⊙ h + u ⊙ candidate
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from unroll.model.cells import Clip, Extra, RecurrentCell, State, unclipped


@final
class Cell(RecurrentCell):
    """Gated recurrent unit."""

    GATES = 3
    STATES = ("h",)

    def forward(
        self, pre_x: Tensor, pre_h: Tensor, state: State, extra: Extra, clip: Clip = unclipped
    ) -> tuple[State, State]:
        """One step."""
        (h,) = state
        x_r, x_u, x_c = pre_x.chunk(3, dim=-1)
        h_r, h_u, h_c = pre_h.chunk(3, dim=-1)
        r, u = torch.sigmoid(clip(x_r + h_r)), torch.sigmoid(clip(x_u + h_u))
        candidate = torch.tanh(clip(torch.addcmul(x_c, r, h_c)))
        return (torch.lerp(h, candidate, u),), (r, u, candidate, h_c, h)

    def backward(self, d_state: State, saved: State, extra: Extra, clip: float) -> tuple[Tensor, Tensor, State]:
        """The chain rule through one step, by hand."""
        (d_h,) = d_state
        r, u, candidate, h_c, h = saved
        d_c = d_h * u * (1 - candidate * candidate)
        d_u = d_h * (candidate - h) * (u * (1 - u))
        # The reset gate stands inside the candidate's sum, so it receives that sum's gradient after the clip.
        d_c_clipped = d_c.clamp(-clip, clip)
        d_r = d_c_clipped * h_c * (r * (1 - r))
        d_pre_h = torch.cat((d_r.clamp(-clip, clip), d_u.clamp(-clip, clip), d_c_clipped * r), dim=-1)
        return torch.cat((d_r, d_u, d_c), dim=-1), d_pre_h, (d_h * (1 - u),)
