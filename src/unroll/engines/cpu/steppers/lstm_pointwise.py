"""The LSTM's pointwise work after torch's products, as one compiled pass: see `host_cells.py`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from unroll.engines.cpu.builder import Code, Value
from unroll.engines.cpu.cells import lstm
from unroll.engines.cpu.compiler import make


def pointwise(
    code: Code,
    o: Value,  # the gates' sums, [rows, H] each
    i: Value,
    f: Value,
    g: Value,
    h: Value,  # [rows, H]: the next state overwrites it
    c: Value,  # the same
    w: Value,  # [3, H]: the peepholes of o, i and f, if there are any
    rows: Value,
    H: Value,
    *,
    peepholes: str,
) -> None:
    """Compute the next state of each row."""
    with code.loop(rows) as r, code.loop(H // code.lanes) as v:
        j = v * code.lanes
        sums, state = ([code.load(code.at(x, r * H + j)) for x in arrays] for arrays in ((i, f, g, o), (h, c)))
        peephole_rows = () if peepholes == "off" else (1, 2, 0)
        weights = [code.load(code.at(w, H * row + j)) for row in peephole_rows]
        after = lstm.Step(peepholes).forward(code, sums, state, weights)
        for value, goal in zip(after.state, (h, c), strict=True):
            code.store(value, code.at(goal, r * H + j))


@cache
def pointwise_for(bits: int, peepholes: str) -> Callable[..., None]:
    """The code, compiled when it is first used."""
    return make(pointwise, bits, "aaaaaaann", peepholes=peepholes)
