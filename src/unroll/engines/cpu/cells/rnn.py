"""The simple recurrent network of cells/rnn.py. Its record is the one sum, and h is all that the way back needs."""

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
        """tanh of the sum."""
        return After(quotients(code, tanh(code, record[0])), (None,))

    def backward(self, code: Code, before: Before) -> Back:
        """Through tanh."""
        (h,), (d_h,) = before.state_after, before.d_state
        return Back((before.clipped(code, d_h * (code.constant(1.0) - h * h)),), (None,))
