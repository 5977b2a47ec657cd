"""A model of one run for steps on the CPU: parameters arranged once, and the head that all steps share.

Shapes: B rows, R rows of a tile, H hidden, D dense, V vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unroll.engines.cpu.steppers import tiles
from unroll.engines.cpu.steppers.host_cells import HostLayer, Work, zeros
from unroll.model import head as model_head
from unroll.model.model import Model
from unroll.model.steppers import Array


class Weights:
    """The parameters of one run, arranged for steps, and the tile sizes that may be mixed for them."""

    def __init__(self, model: Model) -> None:
        parameters = {name: value.detach()[0].clone() for name, value in model.parameters.items()}
        self.dtype, self.symbols = model.dtype, model.vocabularies[0]
        self.layers = [HostLayer.of(model.cell, layer, n == 0) for n, layer in enumerate(model.network.layers)]
        self.first = [[s[0, 0].numpy().copy() for s in state] for state in model.first_state(1)]
        out, dense = model_head.Head.of(parameters)
        self.out_W, self.out_b = out.W, out.b.numpy()
        self.dense = None if dense is None else (dense.W, dense.b.numpy())
        self.hidden = model.experiments[0].hidden
        matrices = [W for layer in self.layers for W in (layer.W_x, layer.W_h) if W is not None]
        self.sizes = tiles.alike([*matrices, *([] if dense is None else [dense.W]), self.out_W])

    def work(self, rows: int, alone: bool = False) -> list[Work]:
        """Scratch for the layers' steps; with `alone`, for rows of one stream."""
        return [Work.of(layer, rows, alone) for layer in self.layers]


class _HeadTile(NamedTuple):
    """Views of a tile of rows of the head's buffers."""

    dense: Array
    scratch: Array
    out: Array
    h_t: Tensor
    dense_t: Tensor
    out_t: Tensor


class Head:
    """From h to logits, a tile at a time."""

    def __init__(self, weights: Weights, capacity: int) -> None:
        self._weights = weights
        self._rows = reach(capacity, weights.sizes)
        D = 0 if weights.dense is None else len(weights.out_W)
        V = weights.out_W.shape[1]
        self.h_BH = zeros(self._rows, weights.hidden, dtype=weights.dtype)
        self._dense, self._scratch = (zeros(self._rows, D, dtype=weights.dtype) for _ in range(2))
        self._out = zeros(self._rows, V, dtype=weights.dtype)
        self.resize(0)

    def resize(self, rows: int) -> None:
        """Change the number of rows that `logits` computes."""
        self._tiles: list[_HeadTile] = []
        for start, size in tiles.plan(rows, self._weights.sizes):
            h, dense, scratch, out = (
                a[start : start + size] for a in (self.h_BH, self._dense, self._scratch, self._out)
            )
            h_t, dense_t, out_t = (torch.from_numpy(a) for a in (h, dense, out))
            self._tiles.append(_HeadTile(dense, scratch, out, h_t, dense_t, out_t))
        self._logits_BV = self._out[:rows, : self._weights.symbols]

    def logits(self) -> Array:
        """The logits of the rows of h_BH: [B, V]."""
        w = self._weights
        for dense, scratch, out, h_t, dense_t, out_t in self._tiles:
            x_t = h_t
            if w.dense is not None:
                W, b = w.dense
                dense[:] = b
                tiles.add_product(dense_t, h_t, W)
                np.multiply(dense, model_head.LEAK, out=scratch)
                np.maximum(dense, scratch, out=dense)
                x_t = dense_t
            out[:] = w.out_b
            tiles.add_product(out_t, x_t, w.out_W)
        return self._logits_BV


def reach(capacity: int, sizes: tuple[int, ...]) -> int:
    """The number of rows that the tiles of `capacity` rows cover, with those past the end."""
    start, size = tiles.plan(max(1, capacity), sizes)[-1]
    return start + size
