"""Progressive on the CPU: the state of all rows runs on, a tile at a time.

Shapes: B rows, R rows of a tile, H hidden.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from unroll.engines.cpu.steppers import tiles
from unroll.engines.cpu.steppers.host_cells import Work, zeros
from unroll.engines.cpu.steppers.host_weights import Head, Weights, reach
from unroll.model.steppers import Array, Ids


class _Tile:
    """A tile of rows of the state, their scratch, and one step of all layers."""

    def __init__(self, state: list[list[Array]], start: int, size: int, work: list[Work]) -> None:
        self._rows = slice(start, start + size)
        self._work = work
        self._state = [tuple(s[self._rows] for s in layer) for layer in state]
        gates = len(work[0].pre)
        self._h_t = [tiles.shared(torch.from_numpy(layer[0]), gates) for layer in self._state]

    def read(self, ids_B: Ids) -> None:
        bottom = self._work[0]
        # Ids are in range; `clip` only spares NumPy a copy.
        np.take(bottom.layer.inputs, ids_B[self._rows], axis=1, out=bottom.pre, mode="clip")
        below = None
        for work, state, h_t in zip(self._work, self._state, self._h_t, strict=True):
            if below is not None:
                work.from_below(below)
            work.layer.step(work, state, h_t)
            below = h_t


class Progressive:
    """Progressive: the state runs on."""

    def __init__(self, weights: Weights, k2: int, capacity: int) -> None:
        self._weights = weights
        rows = reach(capacity, weights.sizes)
        self._head = Head(weights, capacity)
        self._state = [[zeros(rows, weights.hidden, dtype=weights.dtype) for _ in layer] for layer in weights.first]
        self._state[-1][0] = self._head.h_BH  # the top layer's h is what the head reads
        self._ids = np.zeros(rows, np.int64)
        self._scratch: dict[int, list[Work]] = {}

    def begin(self, rows: int) -> None:
        """Hold this many rows, none of which has read anything."""
        self._resize(rows)
        self.restart(range(rows))

    def restart(self, rows: Sequence[int]) -> None:
        """Make these rows forget what they have read."""
        for layer, first in zip(self._state, self._weights.first, strict=True):
            for s, value in zip(layer, first, strict=True):
                s[list(rows)] = value

    def read(self, ids_B: Ids) -> None:
        """Let each row read one token."""
        self._ids[: len(ids_B)] = ids_B
        for tile in self._tiles:
            tile.read(self._ids)

    def logits(self) -> Array:
        """Each row's logits."""
        return self._head.logits()

    def take(self, rows: Sequence[int]) -> None:
        """Let row b go on from where row rows[b] stood."""
        for layer in self._state:
            for s in layer:
                s[: len(rows)] = s[list(rows)]
        self._resize(len(rows))

    def _resize(self, rows: int) -> None:
        self._tiles = []
        for start, size in tiles.plan(rows, self._weights.sizes):
            if size not in self._scratch:
                self._scratch[size] = self._weights.work(size)
            self._tiles.append(_Tile(self._state, start, size, self._scratch[size]))
        self._head.resize(rows)
