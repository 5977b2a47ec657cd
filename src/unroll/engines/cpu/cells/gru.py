"""The GRU of model/cells/gru.py. A record holds c, r, u, and apart from c its h·W_h, which the reset gate scales."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from unroll.engines.cpu.arithmetic import quotients, sigmoid, tanh
from unroll.engines.cpu.builder import Code
from unroll.engines.cpu.cells import After, Back, Before, CellStep, Vectors


@final
@dataclass(frozen=True)
class Step(CellStep):
    """Gated recurrent unit; its gates are r, u and c."""

    INPUTS = (1, 2, 0)
    RECURRENT = (1, 2, 3)
    STATES = 1

    def forward(self, code: Code, record: Vectors, state: Vectors, w: Vectors) -> After:
        """Compute a step with one division for both gates, and one for the candidate."""
        (x_c, a_r, a_u, h_c), (h,) = record, state
        r, u = quotients(code, sigmoid(code, a_r), sigmoid(code, a_u))
        (candidate,) = quotients(code, tanh(code, code.fma(r, h_c, x_c)))
        return After((code.fma(u, candidate - h, h),), (candidate, r, u, None))

    def backward(self, code: Code, before: Before) -> Back:
        """Pass the gradient back. The reset gate is inside the candidate's sum, so it gets that gradient clipped."""
        (candidate, r, u, h_c), (h,), (d_h,) = before.record, before.state, before.d_state
        one = code.constant(1.0)
        d_c = before.clipped(code, d_h * u * (one - candidate * candidate))
        d_u = before.clipped(code, d_h * (candidate - h) * (u * (one - u)))
        d_r = before.clipped(code, d_c * h_c * (r * (one - r)))
        return Back((d_c, d_r, d_u, d_c * r), (d_h * (one - u),))
