"""One time step of each cell on the CPU, into buffers that are allocated before the first step.

Gates lie one after another in memory, not side by side, so that a pass over several gates is a pass over one stretch of
memory. In NumPy, sigmoids come first, with weights halved, since 2·σ(a) = tanh(½·a) + 1 and halving is exact: one tanh
serves all gates of a layer. NumPy's tanh gives an element the same bits wherever it lies in an array. If code can be
compiled and rows are whole vectors, one compiled pass does everything after the LSTM's product; it has that property
too.

`h_t` is h in torch, once for every gate.

Shapes: N gates, R rows, I inputs, H hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unroll.engines.cpu import builder
from unroll.engines.cpu.steppers.tiles import add_product
from unroll.model import cells
from unroll.model.cells import gru, lstm, rnn
from unroll.model.network import Layer
from unroll.model.steppers import Array

Step = Callable[["Work", tuple[Array, ...], Tensor], None]


def zeros(*shape: int, dtype: torch.dtype) -> Array:
    """An array of zeros in torch's memory, whose alignment suits products; a product's rounding may depend on it."""
    array: Array = torch.zeros(*shape, dtype=dtype).numpy()
    return array


@dataclass(frozen=True)
class HostLayer:
    """One layer's arranged parameters."""

    inputs: Array  # the first layer: x·W_x + b for every symbol [N, V, H]; the others: b [N, 1, H]
    W_x: Tensor | None  # in the layers above the first [N, I, H]
    W_h: Tensor  # [N, H, H]
    peepholes: Array | None  # the peepholes of o, i, f: [3, 1, H]
    lasagne: bool
    step: Step
    pointwise: Callable[..., None] | None = None  # compiled, for `_lstm_in_one_pass`

    @classmethod
    def of(cls, cell: cells.RecurrentCell, layer: Layer, first: bool) -> HostLayer:
        """Arrange a layer of one run for its step."""
        step, order, sigmoids = ARRANGED[type(cell)]
        pointwise = _pointwise(cell, layer)
        if pointwise:
            step, sigmoids = _lstm_in_one_pass, 0
        half = 0.5 if sigmoids else 1.0
        scale = torch.tensor([half] * sigmoids + [1.0] * (len(order) - sigmoids), dtype=layer.b.dtype).view(-1, 1, 1)
        W_x, W_h, b = (
            (torch.stack([w.chunk(len(order), dim=-1)[gate] for gate in order]) * scale).contiguous()
            for w in (layer.W_x.detach()[0], layer.W_h.detach()[0], layer.b.detach())
        )
        w_c = layer.extra.get("w_c")
        peepholes = None if w_c is None else (half * w_c.detach()[0, [2, 0, 1]]).unsqueeze(1).contiguous().numpy()
        inputs = W_x + b if first else b
        lasagne = cell.peepholes == "lasagne"
        return cls(inputs.numpy(), None if first else W_x, W_h, peepholes, lasagne, step, pointwise)


def _pointwise(cell: cells.RecurrentCell, layer: Layer) -> Callable[..., None] | None:
    H = layer.W_h.shape[1]
    size = layer.W_h.element_size()
    if type(cell) is not lstm.Cell or not builder.available() or H * size % builder.vector_bytes():
        return None
    from unroll.engines.cpu.steppers.lstm_pointwise import pointwise_for

    return pointwise_for(8 * size, cell.peepholes)


class Work:
    """A layer, and scratch for R rows of it; with `alone`, all rows belong to one stream.

    torch adds peepholes in one pass and without extra memory, so more stays in the caches. But it may round the last
    elements of an array differently from the first: NumPy adds them if rows of several streams share an array.
    """

    def __init__(
        self, layer: HostLayer, pre: Array, product: Array, scratch: Array, peepholes: Array | None, alone: bool
    ) -> None:
        self.layer, self.pre, self.product, self.scratch = layer, pre, product, scratch
        self.peepholes, self.alone = peepholes, alone
        self.half, self.one = (np.array(x, pre.dtype) for x in (0.5, 1.0))
        # Views for the steps.
        self.pre_t = torch.from_numpy(pre)
        self.product_t = torch.from_numpy(product)
        self.gates = tuple(pre)
        self.products = tuple(product)
        self.before_last = pre[:-1]
        self.after_first = pre[1:]
        self.middle = pre[1:-1]
        self.product_before_last = product[:-1]
        self.product_middle = product[1:-1]
        self.gates_at = [gate.ctypes.data for gate in self.gates]
        self.peepholes_at = 0 if layer.peepholes is None else layer.peepholes.ctypes.data

    @classmethod
    def of(cls, layer: HostLayer, rows: int, alone: bool = False) -> Work:
        """Allocate scratch for a layer."""
        N, H, _ = layer.W_h.shape
        dtype = layer.W_h.dtype
        # Repeated for every row: NumPy is far slower if one operand is shorter than the others.
        peepholes = None if layer.peepholes is None else np.repeat(layer.peepholes, 1 if alone else rows, axis=1)
        pre, product = (zeros(N, rows, H, dtype=dtype) for _ in range(2))
        return cls(layer, pre, product, zeros(rows, H, dtype=dtype), peepholes, alone)

    def first(self, rows: int) -> Work:
        """The same scratch for the first of a stream's rows."""
        assert self.alone
        pre, product = (x[:, :rows] for x in (self.pre, self.product))
        return Work(self.layer, pre, product, self.scratch[:rows], self.peepholes, self.alone)

    def from_below(self, h_t: Tensor) -> None:
        """Write x·W_x + b, where x is h of the layer below."""
        assert self.layer.W_x is not None  # the first layer has none: it reads symbols
        self.pre[:] = self.layer.inputs
        add_product(self.pre_t, h_t, self.layer.W_x)


def _lstm(work: Work, state: tuple[Array, ...], h_t: Tensor) -> None:
    """Compute one LSTM step with the gates o, i, f, c; `pre` holds x·W_x + b."""
    h, c = state
    o, i, f, g = work.gates
    lasagne = work.layer.lasagne and work.peepholes is not None
    add_product(work.pre_t, h_t, work.layer.W_h)
    # Lasagne's output gate sees c after the step, so it comes later than the other two.
    sums, sigmoids = (work.after_first, work.middle) if lasagne else (work.pre, work.before_last)
    if work.peepholes is not None:
        w = work.peepholes[1:] if lasagne else work.peepholes
        if work.alone:
            torch.from_numpy(sigmoids).addcmul_(torch.from_numpy(c), torch.from_numpy(w))
        else:
            product = work.product_middle if lasagne else work.product_before_last
            np.multiply(c, w, out=product)
            np.add(sigmoids, product, out=sigmoids)
    np.tanh(sums, out=sums)
    np.add(sigmoids, work.one, out=sigmoids)
    np.multiply(f, c, out=f)
    np.multiply(i, g, out=i)
    np.add(f, i, out=c)
    np.multiply(c, work.half, out=c)
    if lasagne and work.peepholes is not None:
        np.multiply(c, work.peepholes[0], out=work.scratch)
        np.add(o, work.scratch, out=o)
        np.tanh(o, out=o)
        np.add(o, work.one, out=o)
    np.tanh(c, out=work.scratch)
    np.multiply(o, work.scratch, out=h)
    np.multiply(h, work.half, out=h)


def _lstm_in_one_pass(work: Work, state: tuple[Array, ...], h_t: Tensor) -> None:
    """Compute one LSTM step with the gates o, i, f, c, none of them halved."""
    h, c = state
    add_product(work.pre_t, h_t, work.layer.W_h)
    assert work.layer.pointwise  # else the layer would have another step
    work.layer.pointwise(*work.gates_at, h.ctypes.data, c.ctypes.data, work.peepholes_at, *h.shape)


def _gru(work: Work, state: tuple[Array, ...], h_t: Tensor) -> None:
    """Compute one GRU step with the gates r, u, c."""
    (h,) = state
    r, u, candidate = work.gates
    h_c = work.products[2]
    work.product.fill(0)
    add_product(work.product_t, h_t, work.layer.W_h)
    np.add(work.before_last, work.product_before_last, out=work.before_last)
    np.tanh(work.before_last, out=work.before_last)
    np.add(work.before_last, work.one, out=work.before_last)
    np.multiply(work.before_last, work.half, out=work.before_last)
    np.multiply(r, h_c, out=h_c)
    np.add(candidate, h_c, out=candidate)
    np.tanh(candidate, out=candidate)
    np.subtract(candidate, h, out=candidate)
    np.multiply(candidate, u, out=candidate)
    np.add(h, candidate, out=h)


def _rnn(work: Work, state: tuple[Array, ...], h_t: Tensor) -> None:
    (h,) = state
    add_product(work.pre_t, h_t, work.layer.W_h)
    np.tanh(work.gates[0], out=h)


# Each cell's step, the order of its gates, and the number of sigmoids among them.
ARRANGED: dict[type, tuple[Step, tuple[int, ...], int]] = {
    lstm.Cell: (_lstm, (3, 0, 1, 2), 3),
    gru.Cell: (_gru, (0, 1, 2), 2),
    rnn.Cell: (_rnn, (0,), 0),
}
