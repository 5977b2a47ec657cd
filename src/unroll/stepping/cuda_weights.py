"""A model's parameters as `cuda_products.cu` reads them: all in one tensor, and for each product where its parts lie.

A warp multiplies rows with 16 columns at a time; lane 8·g + l takes columns 4·g … 4·g + 3 of them and the terms
4·l … 4·l + 3 of every 32. What the 32 lanes read at once lies side by side: [groups of 16 columns, parts of 32 terms,
4 columns, 32 lanes, 4 terms] in the head; in a layer, where many rows are multiplied, [groups, parts, 4 terms,
32 lanes, 4 columns], for a reason that `multiply` in cuda_products.cu tells. The columns of a layer are its units' four
gates, one unit a lane's four columns; the terms are h, and behind it what the layer below brings. Cells of fewer gates
have columns of 0; the GRU's candidate has two, one for what h brings and one for what the input brings.

Shapes: K terms, N columns, U units (hidden, padded), V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from unroll.cells import RecurrentCell, gru, lstm, rnn
from unroll.kernels import Layer
from unroll.model import Model

TERMS, COLUMNS = 32, 16  # of a part, of a group
FLOAT = 4  # bytes
# Where each of a unit's four columns comes from among the cell's gates, for what the input brings and for what h does.
FROM_X: dict[type, tuple[int | None, ...]] = {
    lstm.Cell: (0, 1, 2, 3),
    gru.Cell: (0, 1, None, 2),
    rnn.Cell: (0, None, None, None),
}
FROM_H = FROM_X | {gru.Cell: (0, 1, 2, None)}


@dataclass(frozen=True)
class Place:
    """One product: offsets into the weights in floats, its size, and where a block keeps its share in shared memory."""

    weights: int
    bias: int
    peepholes: int = 0
    first_h: int = 0
    first_c: int = 0
    groups: int = 0
    parts: int = 0
    resident: int = -1
    # Of one stream alone: the blocks that do nothing else, and how its work is divided among them.
    block: int = 0
    blocks: int = 0
    each: int = 0
    together: int = 1
    tiles: int = 1
    table: int = -1

    @property
    def floats(self) -> int:
        """What one group takes."""
        return self.parts * TERMS * COLUMNS

    @property
    def items(self) -> int:
        """What its blocks share out: some neighbouring groups, for one tile of rows."""
        return self.groups // self.together * self.tiles

    @property
    def kept(self) -> int:
        """Bytes of the groups that a block's items may touch."""
        touched = (
            self.each // self.tiles if self.each % self.tiles == 0 else (self.each + self.tiles - 2) // self.tiles + 1
        )
        return touched * self.together * self.floats * FLOAT


def padded(size: int, to: int) -> int:
    """The next multiple."""
    return -(-size // to) * to


def pack(W_KN: Tensor, across: bool) -> Tensor:
    """A matrix, padded with zeros, in the order that warps read it in: [groups, parts, 4, 32, 4].

    The last of these are a lane's four columns, `across` its terms; or else its four terms, column by column.
    """
    K, N = W_KN.shape
    whole = W_KN.new_zeros(padded(K, TERMS), padded(N, COLUMNS))
    whole[:K, :N] = W_KN
    split = whole.view(-1, 8, 4, padded(N, COLUMNS) // COLUMNS, 4, 4)  # part, l, term, group, g, column
    order = (3, 0, 2, 4, 1, 5) if across else (3, 0, 5, 4, 1, 2)
    return split.permute(order).reshape(-1, len(whole) // TERMS, 4, 32, 4).contiguous()


def by_unit(value: Tensor, gates: int, columns: tuple[int | None, ...], units: int) -> Tensor:
    """[…, gates · hidden] as […, 4 · units]: each unit's four columns together."""
    split = value.unflatten(-1, (gates, -1))
    found = value.new_zeros(*value.shape[:-1], units, 4)
    for column, gate in enumerate(columns):
        if gate is not None:
            found[..., : split.shape[-1], column] = split[..., gate, :]
    return found.flatten(-2)


class Weights:
    """The parameters of one run, and the places of its products: the layers', then dense, then out."""

    def __init__(self, model: Model) -> None:
        own = {name: value.detach()[0] for name, value in model.parameters.items()}
        self._pieces: list[Tensor] = []
        self._length = 0
        self.H, self.D = (padded(n, TERMS) for n in own["dense.W"].shape)
        self.V, self.padded_V = model.vocabularies[0], padded(own["out.b"].shape[0], COLUMNS)
        first = [[s[0, 0].detach() for s in state] for state in model.first_state(1)]
        layers = zip(model.network.layers, first, strict=True)
        places = [self._layer(model.cell, layer, n, first_n) for n, (layer, first_n) in enumerate(layers)]
        self.places = (
            *places,
            self._dense(own["dense.W"], own["dense.b"], self.D),
            self._dense(own["out.W"], own["out.b"], self.padded_V),
        )
        self.flat = torch.cat(self._pieces)

    def _add(self, values: Tensor, length: int = 0) -> int:
        """Where these values lie, with zeros behind them up to a length and to 16 bytes."""
        flat = values.flatten()
        length = padded(max(length, len(flat)), 4)
        self._pieces += [flat, flat.new_zeros(length - len(flat))]
        self._length += length
        return self._length - length

    def _layer(self, cell: RecurrentCell, layer: Layer, number: int, first: list[Tensor]) -> Place:
        U, kind = self.H, type(cell)
        W_x, W_h = (
            by_unit(W.detach()[0], cell.GATES, columns[kind], U)
            for W, columns in ((layer.W_x, FROM_X), (layer.W_h, FROM_H))
        )
        b = by_unit(layer.b.detach()[0], cell.GATES, FROM_X[kind], U)
        packed = torch.cat([pack(W, across=True) for W in ((W_h,) if number == 0 else (W_h, W_x))], dim=1)
        w_c = layer.extra.get("w_c")
        peepholes = 0
        if w_c is not None:
            peepholes = self._add(torch.nn.functional.pad(w_c.detach()[0], (0, U - w_c.shape[-1])))
        return Place(
            self._add(packed),
            self._add(W_x + b if number == 0 else b),  # the first layer reads symbols: a row of these for each
            peepholes,
            self._add(first[0], U),
            self._add(first[-1], U),
            *packed.shape[:2],
        )

    def _dense(self, W: Tensor, b: Tensor, columns: int) -> Place:
        packed = pack(torch.nn.functional.pad(W, (0, columns - W.shape[1])), across=False)
        return Place(self._add(packed), self._add(b, columns), groups=packed.shape[0], parts=packed.shape[1])

    def resident(self, blocks: int, room: int) -> tuple[tuple[Place, ...], int]:
        """Places, those that fit into a block's so many bytes of shared memory kept there; and the bytes used.

        The groups of a product go round the blocks. What is read for the most rows, the layers, comes first.
        """
        places, used = [], 0
        for place in self.places:
            share = -(-place.groups // blocks) * place.floats
            fits = (used + share) * FLOAT <= room
            places.append(replace(place, resident=used if fits else -1))
            used += share if fits else 0
        return tuple(places), used * FLOAT
