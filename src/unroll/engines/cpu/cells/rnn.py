"""The simple recurrent network of model/cells/rnn.py. A record is the one sum; the backward pass needs only h."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from unroll.engines.cpu.arithmetic import quotients, tanh
from unroll.engines.cpu.builder import Code
from unroll.engines.cpu.cells import After, Back, Before, CellStep, Vectors


@final
@dataclass(frozen=True)
class Step(CellStep):
    """Simple recurrent network."""

    INPUTS = RECURRENT = (0,)
    STATES = 1

    def forward(self, code: Code, record: Vectors, state: Vectors, w: Vectors) -> After:
        """Take tanh of the sum."""
        return After(quotients(code, tanh(code, record[0])), (None,))

    def backward(self, code: Code, before: Before) -> Back:
        """Pass the gradient back through tanh."""
        (h,), (d_h,) = before.state_after, before.d_state
        return Back((before.clipped(code, d_h * (code.constant(1.0) - h * h)),), (None,))
