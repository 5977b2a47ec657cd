"""Progressive steps of the LSTM, compiled for this CPU: a token is a handful of calls, whatever the number of rows.

Windows stay with `host`: torch's threads share one reading of the weights, which is faster for a hundred rows at once.

A product adds up each row in one order (see `arithmetic.py`), so what a row predicts cannot depend on its neighbours.

Shapes: B rows, H hidden, D dense, V vocabulary (in here padded to whole vectors), G = 4·H gate columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unroll import machine_code, parts
from unroll.cells import lstm
from unroll.head import LEAK
from unroll.kernels import Layer
from unroll.model import Model
from unroll.panels import grown, packed, padded
from unroll.stepping import Array, Ids, Stepper

FEW = 16  # rows that are not worth a second thread
LARGE = 1 << 22  # bytes of weights that one core alone reads too slowly for a single row


def supports(model: Model, procedure: str) -> bool:
    """Whether the model is an LSTM that computes on the CPU, and code can be made."""
    return (
        procedure in STEPPERS
        and model.device.type == "cpu"
        and type(model.cell) is lstm.Cell
        and machine_code.available()
        and not (procedure == "progressive" and _bytes(model) > LARGE)
    )


def prepare(model: Model, k2: int, procedure: str, capacity: int) -> Stepper:
    """Weights arranged, buffers made, code compiled."""
    with torch.no_grad():
        return STEPPERS[procedure](_Weights(model), k2, capacity)


def _packed(W_KN: Tensor) -> Tensor:
    return packed(W_KN.unsqueeze(0))


def _bytes(model: Model) -> int:
    return sum(p.numel() * p.element_size() for p in model.parameters.values())


class _Layer(NamedTuple):
    """One layer's parameters, arranged: see kernels/_lstm_code.py."""

    table: Tensor  # of the first layer: what each symbol brings [V, G]; of the others: b [G]
    W_x: Tensor  # of the others [H, G], packed
    W_h: Tensor  # [H, G], packed
    w: Tensor  # [3, H]
    step: Callable[..., None]

    @classmethod
    def of(cls, layer: Layer, H: int, first: bool, peepholes: str) -> _Layer:
        from unroll.kernels._lstm_code import columns, forward_for

        W_x, W_h, b = (columns(x.detach()[0], H) for x in (layer.W_x, layer.W_h, layer.b))
        w_c = layer.extra.get("w_c")
        w = W_h.new_zeros(3, H) if w_c is None else grown(w_c.detach()[0], 1, H)
        table = W_x + b if first else b
        code = forward_for(8 * W_h.dtype.itemsize, peepholes, first)
        below = _packed(grown(W_x, 0, W_x.shape[0] if first else H))
        return cls(table.contiguous(), below, _packed(grown(W_h, 0, H)), w.contiguous(), code)


class _Weights:
    """A model of one run as steps want it, and its head."""

    def __init__(self, model: Model) -> None:
        from unroll.head_code import logits_for

        own = {name: value.detach()[0] for name, value in model.parameters.items()}
        self.dtype, self.symbols, self.hidden = model.dtype, model.vocabularies[0], len(own["dense.W"])
        D, V = own["out.W"].shape
        self.H, self.D, self.V = (padded(n, self.dtype) for n in (self.hidden, D, V))
        peepholes, bits = model.cell.peepholes, 8 * self.dtype.itemsize
        network = model.network
        self.layers = [_Layer.of(layer, self.H, n == 0, peepholes) for n, layer in enumerate(network.layers)]
        self.first = [[grown(s[0, 0].detach(), 0, self.H).numpy().copy() for s in x] for x in model.first_state(1)]
        self._head = (
            _packed(grown(grown(own["dense.W"], 0, self.H), 1, self.D)),
            grown(own["dense.b"], 0, self.D).clone(),
            _packed(grown(grown(own["out.W"], 0, self.D), 1, self.V)),
            grown(own["out.b"], 0, self.V).clone(),
        )
        self._head_at = [x.data_ptr() for x in self._head]
        self._logits = logits_for(bits, LEAK)

    def zeros(self, *shape: int) -> Tensor:
        """Memory, aligned as torch does it."""
        return torch.zeros(*shape, dtype=self.dtype)

    def read(self, ids: int, state: list[tuple[int, int]], scratch: _Scratch, first: int, rows: int) -> None:
        """Some rows read a token each; all are addresses, of arrays in which these rows have their own places."""
        gates, t = scratch.gates, scratch.t
        for n, (layer, (h, c)) in enumerate(zip(self.layers, state, strict=True)):
            weights = (x.data_ptr() for x in (layer.W_h, layer.w, layer.table))
            below = state[n - 1][0] if n else ids
            # With 0 rows from one time step to the next, the state after takes the place of the state before.
            layer.step(gates, h, c, t, *weights, below, layer.W_x.data_ptr(), first, rows, 1, 0, self.H, self.H)

    def logits(self, h: int, dense: int, out: int, first: int, rows: int) -> None:
        """The head of some rows."""
        self._logits(h, *self._head_at, dense, out, first, rows, self.H, self.D, self.V)


class _Scratch:
    """What a step computes in between, for so many rows."""

    def __init__(self, weights: _Weights, rows: int) -> None:
        self._held = weights.zeros(rows, 4 * weights.H), weights.zeros(rows, weights.H)
        self.gates, self.t = (x.data_ptr() for x in self._held)


class _Head:
    """The h of every row's prediction, and the logits."""

    def __init__(self, weights: _Weights, capacity: int) -> None:
        self._weights = weights
        self.h, dense, out = (weights.zeros(capacity, n) for n in (weights.H, weights.D, weights.V))
        self._held = dense, out
        self._at = self.h.data_ptr(), dense.data_ptr(), out.data_ptr()
        self._logits_BV = out.numpy()[:, : weights.symbols]

    def logits(self, rows: int) -> Array:
        """[B, V]."""
        _shared(rows, lambda first, some: self._weights.logits(*self._at, first, some))
        return self._logits_BV[:rows]


class Progressive:
    """The state runs on."""

    def __init__(self, weights: _Weights, k2: int, capacity: int) -> None:
        self._weights, self._rows = weights, 0
        self._head, self._scratch = _Head(weights, capacity), _Scratch(weights, capacity)
        self._state = [[weights.zeros(capacity, weights.H) for _ in layer] for layer in weights.first]
        self._state[-1][0] = self._head.h  # the top layer's h is what the head reads
        self._at = [(h.data_ptr(), c.data_ptr()) for h, c in self._state]
        self._ids = np.zeros(capacity, np.int64)
        self._ids_at = self._ids.ctypes.data

    def begin(self, rows: int) -> None:
        """So many rows, none of which has read anything."""
        self._rows = rows
        self.restart(range(rows))

    def restart(self, rows: Sequence[int]) -> None:
        """These rows have read nothing."""
        for layer, first in zip(self._state, self._weights.first, strict=True):
            for s, value in zip(layer, first, strict=True):
                s.numpy()[list(rows)] = value

    def read(self, ids_B: Ids) -> None:
        """Each row reads one token."""
        self._ids[: len(ids_B)] = ids_B
        _shared(self._rows, lambda first, rows: self._weights.read(self._ids_at, self._at, self._scratch, first, rows))

    def logits(self) -> Array:
        """What each row predicts."""
        return self._head.logits(self._rows)

    def take(self, rows: Sequence[int]) -> None:
        """Row b goes on from where row rows[b] stood."""
        for layer in self._state:
            for s in layer:
                own = s.numpy()
                own[: len(rows)] = own[list(rows)]
        self._rows = len(rows)


STEPPERS: dict[str, type[Progressive]] = {"progressive": Progressive}


def _shared(rows: int, work: Callable[[int, int], None]) -> None:
    """work(first, rows) for all rows, among the threads if there are enough of them."""
    threads = max(1, min(parts.count(), rows // FEW))
    if threads == 1:
        work(0, rows)
        return
    stretches = parts.divided(rows, threads)
    parts.each(threads, lambda part: work(stretches[part].start, stretches[part].stop - stretches[part].start))
