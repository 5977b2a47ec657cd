"""A model of one run for compiled steps: parameters arranged once, the arguments of each step's calls, and the head.

A product adds up each row in one order (see `products.py`), so a row's prediction cannot depend on its neighbours.

Shapes: B rows, H hidden, V vocabulary (in here padded to whole vectors), X columns of a record
(see `engines/cpu/cells`) that inputs fill.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unroll.engines.cpu import cells, parallel_calls, workers
from unroll.engines.cpu.cells import CellStep
from unroll.engines.cpu.packing import arranged, grown, packed, padded
from unroll.engines.cpu.steppers.one_row_head import OneRowHead
from unroll.model.head import LEAK, Head
from unroll.model.model import Model
from unroll.model.network import Layer
from unroll.model.steppers import Array

WIDE = 1 << 20  # from this many bytes on, several threads read a matrix for a single row
ROWS_A_THREAD = 16  # with fewer rows for each thread, another thread does not pay
NO_ADDRESS = 0  # of scratch memory that only bfloat16 needs, and of the second state of a cell with one


def _packed(W_KN: Tensor) -> Tensor:
    return packed(W_KN.unsqueeze(0))[0]


class _Layer(NamedTuple):
    """One layer's arranged parameters: see engines/cpu/layer_code.py."""

    inputs: Tensor  # in the first layer x·W_x + b of each symbol [V, X]; in the others b [X]
    W_x: Tensor  # in the other layers [H, X], packed
    W_h: Tensor  # packed
    w: Tensor  # [EXTRA, H]
    step: Callable[..., None]

    @classmethod
    def of(cls, layer: Layer, H: int, first: bool, cell: CellStep) -> _Layer:
        from unroll.engines.cpu.layer_code import forward_for

        W_x, b = (arranged(x.detach()[0], H, cell.INPUTS) for x in (layer.W_x, layer.b))
        W_h = arranged(layer.W_h.detach()[0], H, cell.RECURRENT)
        w_c = layer.extra.get("w_c")
        w = W_h.new_zeros(cell.EXTRA, H) if w_c is None else grown(w_c.detach()[0], 1, H)
        inputs = W_x + b if first else b
        code = forward_for(8 * W_h.dtype.itemsize, cell, first, False)
        W_x_packed = _packed(grown(W_x, 0, W_x.shape[0] if first else H))
        return cls(inputs.contiguous(), W_x_packed, _packed(grown(W_h, 0, H)), w.contiguous(), code)


class Weights:
    """A model of one run, its parameters arranged for steps and for the head."""

    def __init__(self, model: Model) -> None:
        from unroll.engines.cpu import direct_head_code, head_code

        parameters = {name: value.detach()[0] for name, value in model.parameters.items()}
        self.dtype = model.dtype
        self.symbols = model.vocabularies[0]
        head = Head.of(parameters)
        self.hidden = model.experiments[0].hidden
        head_layers = [head.out] if head.dense is None else [head.dense, head.out]
        # Columns of what the head reads and of what each of its layers makes.
        self.widths = [padded(n, self.dtype) for n in (self.hidden, *(len(layer.b) for layer in head_layers))]
        self.H = self.widths[0]
        cell = cells.of(model.cell)
        network = model.network
        assert cell  # else this model is not supported
        self.groups = cell.groups
        self.layers = [_Layer.of(layer, self.H, n == 0, cell) for n, layer in enumerate(network.layers)]
        self.first = [[grown(s[0, 0].detach(), 0, self.H).numpy().copy() for s in x] for x in model.first_state(1)]
        self.head: list[Tensor] = []
        for (W, b), (rows, columns) in zip(head_layers, pairwise(self.widths), strict=True):
            self.head += [_packed(grown(grown(W, 0, rows), 1, columns)), grown(b, 0, columns).clone()]
        self._head_at = [x.data_ptr() for x in self.head]
        bits = 8 * self.dtype.itemsize
        self.logits = head_code.logits_for(bits, LEAK) if len(head_layers) > 1 else direct_head_code.logits_for(bits)

    def zeros(self, *shape: int) -> Tensor:
        """Memory with torch's alignment."""
        return torch.zeros(*shape, dtype=self.dtype)

    def step_call(
        self, n: int, ids: int, state: list[tuple[int, ...]], scratch: Scratch, first: int, rows: int
    ) -> tuple[int, ...]:
        """The arguments of layer n's step that lets `rows` rows read a token each; ids and states are addresses."""
        layer, (h, c) = self.layers[n], (*state[n], NO_ADDRESS)[:2]
        weights = (x.data_ptr() for x in (layer.W_h, layer.w, layer.inputs))
        below = state[n - 1][0] if n else ids
        # With 0 rows from one time step to the next, the state after overwrites the state before.
        buffers = (scratch.record, h, c, scratch.kept, *weights, below, layer.W_x.data_ptr())
        return (*buffers, NO_ADDRESS, first, rows, 1, 0, self.H, self.H)

    def head_call(self, buffers: Sequence[int], first: int, rows: int) -> tuple[int, ...]:
        """The head's arguments for `rows` rows; the buffers, of h and of what each layer makes, are addresses."""
        h, *made = buffers
        return h, *self._head_at, *made, NO_ADDRESS, first, rows, *self.widths


class DividedRows:
    """Calls a function of rows, divided among threads if there are enough; call(first, rows) gives its arguments."""

    def __init__(self, function: Callable[..., None], call: Callable[[int, int], tuple[int, ...]]) -> None:
        self._function, self._call = function, call
        self._planned: tuple[int, int] | None = None  # the rows and threads of the calls that are ready
        self._ready: Callable[[], None]

    def do(self, rows: int) -> None:
        """Call the function for this many rows."""
        threads = max(1, min(workers.count(), rows // ROWS_A_THREAD))
        if (rows, threads) != self._planned:
            calls = [self._call(s.start, s.stop - s.start) for s in workers.divided(rows, threads)]
            self._ready = parallel_calls.ready(self._function, np.array(calls, np.int64), threads)
            self._planned = rows, threads
        self._ready()


class Scratch:
    """Memory for a step's intermediate results."""

    def __init__(self, weights: Weights, rows: int) -> None:
        self._held = weights.zeros(rows, weights.groups * weights.H), weights.zeros(rows, weights.H)
        self.record, self.kept = (x.data_ptr() for x in self._held)


class HeadRows:
    """The top layer's h of every row, and the logits."""

    def __init__(self, weights: Weights, capacity: int) -> None:
        buffers = [weights.zeros(capacity, n) for n in weights.widths]
        self.h = buffers[0]
        self._held = weights, buffers
        self._rows = DividedRows(weights.logits, partial(weights.head_call, [x.data_ptr() for x in buffers]))
        self._one_row = OneRowHead(buffers, weights.head) if weights.head[0].nbytes >= WIDE else None
        self._logits_BV = buffers[-1].numpy()[:, : weights.symbols]

    def logits(self, rows: int) -> Array:
        """The logits of the first rows: [B, V]."""
        if rows == 1 and self._one_row:
            self._one_row.logits(workers.count())
        else:
            self._rows.do(rows)
        return self._logits_BV[:rows]
