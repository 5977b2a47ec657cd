"""One time step of each cell in ONNX's standard operators. The formulas stand in `model/cells`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

State = tuple[str, ...]  # names of values in the graph
Op = Callable[..., Any]  # op(kind, *inputs, **attributes) -> the output's name; `outputs=n` makes it n names


def lstm(op: Op, peepholes: str, pre_x: str, pre_h: str, state: State, extra: Mapping[str, str]) -> State:
    """The LSTM with any peepholes."""
    _, c = state
    a_i, a_f, a_c, a_o = op("Split", op("Add", pre_x, pre_h), axis=1, outputs=4)
    if peepholes != "off":
        a_i = op("Add", a_i, op("Mul", extra["w_c.0"], c))
        a_f = op("Add", a_f, op("Mul", extra["w_c.1"], c))
    fresh = op("Mul", op("Sigmoid", a_i), op("Tanh", a_c))
    c_next = op("Add", op("Mul", op("Sigmoid", a_f), c), fresh)
    if peepholes != "off":
        a_o = op("Add", a_o, op("Mul", extra["w_c.2"], c if peepholes == "paper" else c_next))
    return op("Mul", op("Sigmoid", a_o), op("Tanh", c_next)), c_next


def gru(op: Op, peepholes: str, pre_x: str, pre_h: str, state: State, extra: Mapping[str, str]) -> State:
    """The GRU with the reset after the product."""
    (h,) = state
    x_r, x_u, x_c = op("Split", pre_x, axis=1, outputs=3)
    h_r, h_u, h_c = op("Split", pre_h, axis=1, outputs=3)
    r, u = op("Sigmoid", op("Add", x_r, h_r)), op("Sigmoid", op("Add", x_u, h_u))
    candidate = op("Tanh", op("Add", x_c, op("Mul", r, h_c)))
    return (op("Add", h, op("Mul", u, op("Sub", candidate, h))),)


def rnn(op: Op, peepholes: str, pre_x: str, pre_h: str, state: State, extra: Mapping[str, str]) -> State:
    """The simple recurrent network."""
    return (op("Tanh", op("Add", pre_x, pre_h)),)


CELLS = {"lstm": lstm, "gru": gru, "rnn": rnn}
