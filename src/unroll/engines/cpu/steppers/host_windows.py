"""Windowed on the CPU: rolling, and as the paper runs it.

k2 windows of each row are in flight. Each row's windows are multiplied by themselves, so no row's bits can depend on
another row. Before k2 tokens have been read, only as many windows as tokens have begun.

Shapes: B rows, H hidden.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from unroll.engines.cpu.steppers import tiles
from unroll.engines.cpu.steppers.host_cells import zeros
from unroll.engines.cpu.steppers.host_progressive import Progressive
from unroll.engines.cpu.steppers.host_weights import Head, Weights
from unroll.engines.cpu.steppers.take_rows import take_rows
from unroll.engines.last_tokens import LastTokens
from unroll.model.steppers import Array, Ids


class _Windows:
    """The windows of one row that are in flight: slot s of each state."""

    def __init__(self, weights: Weights, k2: int) -> None:
        self.state = [[zeros(k2, weights.hidden, dtype=weights.dtype) for _ in layer] for layer in weights.first]
        gates = len(weights.layers[0].W_h)
        self.h_t = [tiles.shared(torch.from_numpy(layer[0]), gates) for layer in self.state]
        self.read = 0

    def copy_from(self, other: _Windows) -> None:
        for layer, source in zip(self.state, other.state, strict=True):
            for s, value in zip(layer, source, strict=True):
                s[:] = value
        self.read = other.read


class Rolling:
    """Windowed: every window in flight reads the new token; the oldest predicts and begins anew."""

    def __init__(self, weights: Weights, k2: int, capacity: int) -> None:
        self._weights, self._k2 = weights, k2
        self._head = Head(weights, capacity)
        whole = weights.work(k2, alone=True)
        self._scratch = [[work.first(n) for work in whole] for n in range(1, k2)] + [whole]
        self._rows: list[_Windows] = []

    def begin(self, rows: int) -> None:
        """Hold this many rows, none of which has read anything."""
        self._rows = [_Windows(self._weights, self._k2) for _ in range(rows)]
        self._head.resize(rows)

    def restart(self, rows: Sequence[int]) -> None:
        """Make these rows forget what they have read."""
        for row in rows:
            self._rows[row].read = 0

    def read(self, ids_B: Ids) -> None:
        """Let each row read one token."""
        for b, (row, token) in enumerate(zip(self._rows, ids_B, strict=True)):
            self._head.h_BH[b] = self._read(row, token)

    def _read(self, row: _Windows, token: int) -> Array:
        """Let one row's windows read a token; return the h that predicts the next token."""
        k2 = self._k2
        begins = row.read % k2
        begun = min(row.read + 1, k2)
        layers = self._scratch[begun - 1]
        below: Tensor | None = None
        for work, state, first, whole_t in zip(layers, row.state, self._weights.first, row.h_t, strict=True):
            h_t = whole_t if begun == k2 else whole_t[:, :begun]
            for s, value in zip(state, first, strict=True):
                s[begins] = value
            begun_state = tuple(s[:begun] for s in state)
            if below is None:
                work.pre[:] = work.layer.inputs[:, token : token + 1]
            else:
                work.from_below(below)
            work.layer.step(work, begun_state, h_t)
            below = h_t
        row.read += 1
        h: Array = row.state[-1][0][max(0, row.read - k2) % k2]
        return h

    def logits(self) -> Array:
        """Each row's logits."""
        return self._head.logits()

    def take(self, rows: Sequence[int]) -> None:
        """Let row b go on from where row rows[b] stood."""
        self._rows = take_rows(self._rows, rows, lambda: _Windows(self._weights, self._k2))
        self._head.h_BH[: len(rows)] = self._head.h_BH[list(rows)]
        self._head.resize(len(rows))


class NaiveWindows(LastTokens):
    """Windowed as the paper runs it: for each prediction a row reads its last k2 tokens again, from the first state."""

    def __init__(self, weights: Weights, k2: int, capacity: int) -> None:
        super().__init__(k2)
        self._progressive = Progressive(weights, k2, 1)

    def logits(self) -> Array:
        """Each row's logits, after its window has been read whole."""
        logits = []
        for window in self.windows:
            self._progressive.begin(1)
            for token in window:
                self._progressive.read(np.array([token]))
            logits.append(self._progressive.logits().copy())
        return np.concatenate(logits)
