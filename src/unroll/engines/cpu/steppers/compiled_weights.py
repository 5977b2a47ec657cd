"""A model of one run as compiled steps want it: parameters arranged once, calls of its steps, and the head.

A product adds up each row in one order (see `products.py`), so what a row predicts cannot depend on its neighbours.

Shapes: B rows, H hidden, D dense, V vocabulary (in here padded to whole vectors), X columns that inputs fill, G columns
of a record (see `cell_code`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unroll.engines.cpu import cells, parallel_calls, workers
from unroll.engines.cpu.cells import CellStep
from unroll.engines.cpu.packing import grown, packed, padded
from unroll.engines.cpu.steppers.one_row_head import OneRow
from unroll.model.head import LEAK
from unroll.model.model import Model
from unroll.model.network import Layer
from unroll.model.steppers import Array

WIDE = 1 << 20  # bytes of a matrix that several threads read for a single row
FEW = 16  # rows that are not worth a second thread
NOWHERE = 0  # room that only narrow code needs; the second state of a cell that has but one


def _packed(W_KN: Tensor) -> Tensor:
    return packed(W_KN.unsqueeze(0))[0]


class _Layer(NamedTuple):
    """One layer's parameters, arranged: see engines/cpu/layer_code.py."""

    table: Tensor  # of the first layer: what each symbol brings [V, X]; of the others: b [X]
    W_x: Tensor  # of the others [H, X], packed
    W_h: Tensor  # packed
    w: Tensor  # [EXTRA, H]
    step: Callable[..., None]

    @classmethod
    def of(cls, layer: Layer, H: int, first: bool, cell: CellStep) -> _Layer:
        from unroll.engines.cpu.layer_code import arranged, forward_for

        W_x, b = (arranged(x.detach()[0], H, cell.INPUTS) for x in (layer.W_x, layer.b))
        W_h, w_c = arranged(layer.W_h.detach()[0], H, cell.RECURRENT), layer.extra.get("w_c")
        w = W_h.new_zeros(cell.EXTRA, H) if w_c is None else grown(w_c.detach()[0], 1, H)
        table = W_x + b if first else b
        code = forward_for(8 * W_h.dtype.itemsize, cell, first, False)
        below = _packed(grown(W_x, 0, W_x.shape[0] if first else H))
        return cls(table.contiguous(), below, _packed(grown(W_h, 0, H)), w.contiguous(), code)


class Weights:
    """A model of one run as steps want it, and its head."""

    def __init__(self, model: Model) -> None:
        from unroll.engines.cpu.head_code import logits_for

        own = {name: value.detach()[0] for name, value in model.parameters.items()}
        self.dtype, self.symbols, self.hidden = model.dtype, model.vocabularies[0], len(own["dense.W"])
        D, V = own["out.W"].shape
        self.H, self.D, self.V = (padded(n, self.dtype) for n in (self.hidden, D, V))
        cell, network = cells.of(model.cell), model.network
        assert cell  # or this model is not supported
        self.groups = cell.groups
        self.layers = [_Layer.of(layer, self.H, n == 0, cell) for n, layer in enumerate(network.layers)]
        self.first = [[grown(s[0, 0].detach(), 0, self.H).numpy().copy() for s in x] for x in model.first_state(1)]
        self.head = (
            _packed(grown(grown(own["dense.W"], 0, self.H), 1, self.D)),
            grown(own["dense.b"], 0, self.D).clone(),
            _packed(grown(grown(own["out.W"], 0, self.D), 1, self.V)),
            grown(own["out.b"], 0, self.V).clone(),
        )
        self._head_at = [x.data_ptr() for x in self.head]
        self.logits = logits_for(8 * self.dtype.itemsize, LEAK)

    def zeros(self, *shape: int) -> Tensor:
        """Memory, aligned as torch does it."""
        return torch.zeros(*shape, dtype=self.dtype)

    def step_call(
        self, n: int, ids: int, state: list[tuple[int, ...]], scratch: Scratch, first: int, rows: int
    ) -> tuple[int, ...]:
        """With what layer n's step is called for some rows to read a token each: ids and states are addresses."""
        layer, (h, c) = self.layers[n], (*state[n], NOWHERE)[:2]
        weights = (x.data_ptr() for x in (layer.W_h, layer.w, layer.table))
        below = state[n - 1][0] if n else ids
        # With 0 rows from one time step to the next, the state after takes the place of the state before.
        buffers = (scratch.record, h, c, scratch.kept, *weights, below, layer.W_x.data_ptr())
        return (*buffers, NOWHERE, first, rows, 1, 0, self.H, self.H)

    def head_call(self, h: int, dense: int, out: int, first: int, rows: int) -> tuple[int, ...]:
        """With what the head is called for some rows."""
        return h, *self._head_at, dense, out, NOWHERE, first, rows, self.H, self.D, self.V


class Shared:
    """A function of rows, which threads divide where they are enough; call(first, rows) gives its arguments."""

    def __init__(self, function: Callable[..., None], call: Callable[[int, int], tuple[int, ...]]) -> None:
        self._function, self._call = function, call
        self._planned: tuple[int, int] | None = None  # the rows and threads that calls are there for
        self._ready: Callable[[], None]

    def do(self, rows: int) -> None:
        """For so many rows."""
        threads = max(1, min(workers.count(), rows // FEW))
        if (rows, threads) != self._planned:
            own = [self._call(s.start, s.stop - s.start) for s in workers.divided(rows, threads)]
            self._ready = parallel_calls.ready(self._function, np.array(own, np.int64), threads)
            self._planned = rows, threads
        self._ready()


class Scratch:
    """What a step computes in between, for so many rows."""

    def __init__(self, weights: Weights, rows: int) -> None:
        self._held = weights.zeros(rows, weights.groups * weights.H), weights.zeros(rows, weights.H)
        self.record, self.kept = (x.data_ptr() for x in self._held)


class Head:
    """The h of every row's prediction, and the logits."""

    def __init__(self, weights: Weights, capacity: int) -> None:
        self.h, dense, out = (weights.zeros(capacity, n) for n in (weights.H, weights.D, weights.V))
        self._held = weights, dense, out
        at = self.h.data_ptr(), dense.data_ptr(), out.data_ptr()
        self._rows = Shared(weights.logits, partial(weights.head_call, *at))
        self._one_row = OneRow(self.h, weights.head, dense, out) if weights.head[0].nbytes >= WIDE else None
        self._logits_BV = out.numpy()[:, : weights.symbols]

    def logits(self, rows: int) -> Array:
        """[B, V]."""
        if rows == 1 and self._one_row:
            self._one_row.logits(workers.count())
        else:
            self._rows.do(rows)
        return self._logits_BV[:rows]
