"""The LSTM of the paper's equation, with its peepholes; column order i, f, c, o.

    i = σ(a_i + w_i ⊙ c)    f = σ(a_f + w_f ⊙ c)    g = tanh(a_c)    c′ = f ⊙ c + i ⊙ g
    o = σ(a_o + w_o ⊙ c)    h′ = o ⊙ tanh(c′)       where a = pre_x + pre_h

`paper` feeds c into all three gates, `lasagne` feeds c′ into the output gate, `off` feeds nothing.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from unroll.model.cells import Clip, Extra, RecurrentCell, State, unclipped


@final
class Cell(RecurrentCell):
    """LSTM with peepholes `paper`, `lasagne` or `off`."""

    GATES = 4
    STATES = ("h", "c")

    def extra_shapes(self, hidden: int) -> dict[str, tuple[int, ...]]:
        """w_c: the peepholes of i, f and o."""
        return {} if self.peepholes == "off" else {"w_c": (3, hidden)}

    def forward(
        self, pre_x: Tensor, pre_h: Tensor, state: State, extra: Extra, clip: Clip = unclipped
    ) -> tuple[State, State]:
        """One step."""
        _, c = state
        a_i, a_f, a_c, a_o = clip(pre_x + pre_h).chunk(4, dim=-1)
        if self.peepholes == "off":
            i, f, g = torch.sigmoid(a_i), torch.sigmoid(a_f), torch.tanh(a_c)
            c_next = torch.addcmul(f * c, i, g)
            o = torch.sigmoid(a_o)
        else:
            w_i, w_f, w_o = extra["w_c"].unsqueeze(-2).unbind(-3)
            i, f = torch.sigmoid(torch.addcmul(a_i, w_i, c)), torch.sigmoid(torch.addcmul(a_f, w_f, c))
            g = torch.tanh(a_c)
            c_next = torch.addcmul(f * c, i, g)
            o = torch.sigmoid(torch.addcmul(a_o, w_o, c if self.peepholes == "paper" else c_next))
        t = torch.tanh(c_next)
        return (o * t, c_next), (i, f, g, o, t, c)

    def backward(self, d_state: State, saved: State, extra: Extra, clip: float) -> tuple[Tensor, Tensor, State]:
        """The chain rule through one step, by hand."""
        d_h, d_c = d_state
        i, f, g, o, t, c = saved
        d_o = d_h * t * (o * (1 - o))
        d_c = torch.addcmul(d_c, d_h * o, 1 - t * t)
        if self.peepholes == "lasagne":
            d_c = torch.addcmul(d_c, d_o, extra["w_c"][..., 2:3, :])
        d_i = d_c * g * (i * (1 - i))
        d_f = d_c * c * (f * (1 - f))
        d_g = d_c * i * (1 - g * g)
        d_before = d_c * f
        if self.peepholes != "off":
            w_i, w_f, w_o = extra["w_c"].unsqueeze(-2).unbind(-3)
            d_before = torch.addcmul(torch.addcmul(d_before, d_i, w_i), d_f, w_f)
            if self.peepholes == "paper":
                d_before = torch.addcmul(d_before, d_o, w_o)
        d_sums = torch.cat((d_i, d_f, d_g, d_o), dim=-1)
        return d_sums, d_sums.clamp(-clip, clip), (torch.zeros_like(d_h), d_before)

    def extra_gradients(self, d_sums: Tensor, before: State, after: State) -> Extra:
        """Peepholes multiply a state elementwise: their gradient is a sum over time and rows."""
        if self.peepholes == "off":
            return {}
        d_i, d_f, _, d_o = d_sums.chunk(4, dim=-1)
        c_out = before[1] if self.peepholes == "paper" else after[1]
        sums = [torch.einsum("mtbh,mtbh->mh", d, c) for d, c in ((d_i, before[1]), (d_f, before[1]), (d_o, c_out))]
        return {"w_c": torch.stack(sums, dim=1)}
