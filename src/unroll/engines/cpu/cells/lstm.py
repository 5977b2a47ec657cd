"""The LSTM of model/cells/lstm.py. A record is its gates i, f, g, o; tanh of c after the step is kept as well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from unroll.engines.cpu.arithmetic import quotients, sigmoid, tanh
from unroll.engines.cpu.builder import Code
from unroll.engines.cpu.cells import After, Back, Before, CellStep, Vectors
from unroll.model.cells import RecurrentCell


@final
@dataclass(frozen=True)
class Step(CellStep):
    """LSTM with peepholes `paper`, `lasagne` or `off`."""

    INPUTS = RECURRENT = (0, 1, 2, 3)
    STATES = 2
    KEPT = 1
    EXTRA = 3  # the peepholes of i, f and o

    peepholes: str

    @classmethod
    def of(cls, cell: RecurrentCell) -> Step:
        """A step with the cell's peepholes."""
        return cls(cell.peepholes)

    def forward(self, code: Code, record: Vectors, state: Vectors, w: Vectors) -> After:
        """Compute a step with one division for i, f and g, and one for o and tanh of c."""
        (a_i, a_f, a_g, a_o), (_, c) = record, state
        if self.peepholes != "off":
            a_i = code.fma(w[0], c, a_i)
            a_f = code.fma(w[1], c, a_f)
        i, f, g = quotients(code, sigmoid(code, a_i), sigmoid(code, a_f), tanh(code, a_g))
        c_after = code.fma(i, g, f * c)
        if self.peepholes != "off":
            a_o = code.fma(w[2], c if self.peepholes == "paper" else c_after, a_o)
        o, t = quotients(code, sigmoid(code, a_o), tanh(code, c_after))
        return After((o * t, c_after), (i, f, g, o), (t,))

    def backward(self, code: Code, before: Before) -> Back:
        """Pass the gradient back. Peepholes see gradients before the clip."""
        (i, f, g, o), (t,), (_, c), (_, c_after), (d_h, d_c), w, _ = before
        one = code.constant(1.0)
        d_o = d_h * t * (o * (one - o))
        d_c = code.fma(d_h * o, one - t * t, d_c)
        if self.peepholes == "lasagne":
            d_c = code.fma(d_o, w[2], d_c)
        d_i = d_c * g * (i * (one - i))
        d_f = d_c * c * (f * (one - f))
        d_g = d_c * i * (one - g * g)
        d_c, d_w = d_c * f, []
        if self.peepholes != "off":
            d_c = code.fma(d_f, w[1], code.fma(d_i, w[0], d_c))
            if self.peepholes == "paper":
                d_c = code.fma(d_o, w[2], d_c)
            d_w = [(d_i, c), (d_f, c), (d_o, c if self.peepholes == "paper" else c_after)]
        return Back([before.clipped(code, d) for d in (d_i, d_f, d_g, d_o)], (None, d_c), d_w)
