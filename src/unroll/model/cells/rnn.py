"""The simple recurrent network: h′ = tanh(pre_x + pre_h)."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from unroll.model.cells import Clip, Extra, RecurrentCell, State, unclipped


@final
class Cell(RecurrentCell):
    """Simple recurrent network."""

    GATES = 1
    STATES = ("h",)

    def forward(
        self, pre_x: Tensor, pre_h: Tensor, state: State, extra: Extra, clip: Clip = unclipped
    ) -> tuple[State, State]:
        """One step."""
        h = torch.tanh(clip(pre_x + pre_h))
        return (h,), (h,)

    def backward(self, d_state: State, saved: State, extra: Extra, clip: float) -> tuple[Tensor, Tensor, State]:
        """The chain rule through one step, by hand."""
        (h,) = saved
        d_sums = d_state[0] * (1 - h * h)
        return d_sums, d_sums.clamp(-clip, clip), (torch.zeros_like(h),)
