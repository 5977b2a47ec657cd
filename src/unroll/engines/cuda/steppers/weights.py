"""A model's parameters as `products.cu` reads them: all in one tensor, and the place of each product's parameters.

A warp multiplies rows with 16 columns at a time; lane 8·g + l takes columns 4·g … 4·g + 3 of them and the terms 4·l …
4·l + 3 of every 32. The numbers that the 32 lanes read at once lie side by side: [groups of 16 columns, parts of 32
terms, 4 columns, 32 lanes, 4 terms] in the head; in a layer, where many rows are multiplied, [groups, parts, 4 terms,
32 lanes, 4 columns], for a reason that `multiply` in products.cu gives; or the layout of the matrix units,
`pack_halves`. The columns of a layer are its units' four gates, one unit for a lane's four columns. The terms are h,
and then the h of the layer below. Cells of fewer gates have columns of 0; the GRU's candidate has two, one for h·W_h
and one for x·W_x.

Shapes: K terms, N columns, U units (hidden, padded), V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from unroll.model.cells import RecurrentCell, gru, lstm, rnn
from unroll.model.model import Model
from unroll.model.network import Layer

TERMS, COLUMNS = 32, 16  # the terms of a part, and the columns of a group
TILE, CHUNK = 8, 16  # the rows and the terms of the matrix units
FLOAT = 4  # bytes
LOW, MOST_OF_A_HALF = 2048.0, 2.0**15  # as in halves.cu; half precision ends at twice that
# The gate of each of a unit's four columns, for x·W_x and for h·W_h.
FROM_X: dict[type, tuple[int | None, ...]] = {
    lstm.Cell: (0, 1, 2, 3),
    gru.Cell: (0, 1, None, 2),
    rnn.Cell: (0, None, None, None),
}
FROM_H = FROM_X | {gru.Cell: (0, 1, 2, None)}


@dataclass(frozen=True)
class Place:
    """One product: offsets into the weights in floats, its size, and its offset in a block's shared memory."""

    weights: int
    bias: int
    peepholes: int = 0
    first_h: int = 0
    first_c: int = 0
    groups: int = 0
    parts: int = 0
    resident: int = -1
    # For a single stream: the first block, the number of blocks, and the groups of each; for its windows also the tiles
    # of a block, the tiles that it multiplies at once, and the slots for arriving chunks, each with `room` for chunks.
    block: int = 0
    blocks: int = 0
    each: int = 0
    tiles: int = 0
    at_once: int = 0
    slots: int = 0
    room: int = 0
    table: int = -1
    shared: int = 0  # all bytes of shared memory of a block of windows

    @property
    def floats(self) -> int:
        """The number of weights of one group."""
        return self.parts * TERMS * COLUMNS

    @property
    def kept(self) -> int:
        """The bytes of weights that a block keeps in shared memory, for a single stream."""
        return self.each * self.floats * FLOAT if self.resident == 0 else 0


def padded(size: int, to: int) -> int:
    """Round a size up to a multiple of `to`."""
    return -(-size // to) * to


def pack(W_KN: Tensor, across: bool) -> Tensor:
    """Pad a matrix with zeros and put it into the order in which warps read it: [groups, parts, 4, 32, 4].

    With `across`, the last axis is a lane's four columns, term by term; else its four terms, column by column.
    """
    K, N = W_KN.shape
    whole = W_KN.new_zeros(padded(K, TERMS), padded(N, COLUMNS))
    whole[:K, :N] = W_KN
    split = whole.view(-1, 8, 4, padded(N, COLUMNS) // COLUMNS, 4, 4)  # part, l, term, group, g, column
    order = (3, 0, 2, 4, 1, 5) if across else (3, 0, 5, 4, 1, 2)
    return split.permute(order).reshape(-1, len(whole) // TERMS, 4, 32, 4).contiguous()


def halves(values: Tensor) -> tuple[Tensor, Tensor]:
    """Split each value into its first 11 bits and the next 11 bits times 2048, both in half precision."""
    high = values.half()
    return high, ((values - high.to(values.dtype)) * LOW).half()


def pack_halves(W_KN: Tensor) -> Tensor:
    """Pack a layer's matrix, whose columns are units' four gates, for the matrix units: as many floats as from `pack`.

    [groups, chunks of 16 terms, high and low, unit, gate mod 2, t, 2 pairs of terms, gate div 2, 2 terms], halves.
    """
    K, N = W_KN.shape
    whole = W_KN.new_zeros(padded(K, TERMS), padded(N, COLUMNS))
    whole[:K, :N] = W_KN
    split = whole.view(-1, 4, 2, 2, padded(N, COLUMNS) // COLUMNS, 4, 2, 2)  # chunk, t, pair, term, group, unit, gate
    ordered = split.permute(4, 0, 5, 7, 1, 2, 6, 3).flatten(2)
    return torch.stack(halves(ordered), 2).flatten(2).view(torch.float32).reshape(-1, len(whole) // TERMS, 4, 32, 4)


def tiles_of_halves(rows_BU: Tensor) -> Tensor:
    """Pack states for the matrix units, in as many floats, with rows of 0 up to a multiple of 8.

    [tiles of 8 rows, chunks of 16 units, 8 rows, 4, high and low, 4 units], halves.
    """
    whole = torch.nn.functional.pad(rows_BU, (0, 0, 0, -len(rows_BU) % TILE))
    chunks = whole.view(-1, TILE, whole.shape[1] // CHUNK, 4, 4).transpose(1, 2)
    return torch.stack(halves(chunks), 4).flatten(4).view(torch.float32).flatten(3)


def matrices_of_tiles(tiles: Tensor) -> Tensor:
    """[…, tiles, chunks, 8 rows, 16] in Hopper's layout: […, chunks, tiles, high and low by 2, 8 rows, 4]."""
    matrices: Tensor = tiles.unflatten(-1, (4, 4)).movedim(-1, -3)
    return matrices.transpose(-5, -4).contiguous()


def tiles_of_matrices(matrices: Tensor) -> Tensor:
    """Undo `matrices_of_tiles`."""
    tiles: Tensor = matrices.transpose(-5, -4).movedim(-3, -1)
    return tiles.flatten(-2)


def rows_of_tiles(tiles: Tensor) -> Tensor:
    """[…, tiles, chunks, 8 rows, 16] as […, rows, chunks, 16]."""
    return tiles.transpose(-3, -2).flatten(-4, -3)


def tiles_of_rows(rows: Tensor) -> Tensor:
    """Undo `rows_of_tiles`, with rows of 0 at the end."""
    whole: Tensor = torch.nn.functional.pad(rows, (0, 0, 0, 0, 0, -rows.shape[-3] % TILE))
    tiles: Tensor = whole.unflatten(-3, (-1, TILE))
    return tiles.transpose(-3, -2).contiguous()


def can_be_halves(model: Model) -> bool:
    """Whether all weights and first states of the layers fit into half precision; a NaN does not."""
    layers = model.network.layers  # the first layer looks its inputs up, and multiplies only h
    values = (
        [layer.W_h for layer in layers] + [layer.W_x for layer in layers[1:]] + [s[0] for s in model.first_state(1)]
    )
    return all(bool((value.detach().abs() < MOST_OF_A_HALF).all()) for value in values)


def by_unit(value: Tensor, gates: int, columns: tuple[int | None, ...], units: int) -> Tensor:
    """[…, gates · hidden] as […, 4 · units]: each unit's four columns side by side."""
    split = value.unflatten(-1, (gates, -1))
    by_column = value.new_zeros(*value.shape[:-1], units, 4)
    for column, gate in enumerate(columns):
        if gate is not None:
            by_column[..., : split.shape[-1], column] = split[..., gate, :]
    return by_column.flatten(-2)


class Weights:
    """The parameters of one run, and the places of its products: the layers, then dense, then out.

    With `in_halves`, the layers' weights and first h are packed for the matrix units.
    """

    def __init__(self, model: Model, in_halves: bool = False) -> None:
        self.in_halves = in_halves
        parameters = {name: value.detach()[0] for name, value in model.parameters.items()}
        self._pieces: list[Tensor] = []
        self._length = 0
        self.H, self.D = (padded(n, TERMS) for n in parameters["dense.W"].shape)
        self.V = model.vocabularies[0]
        self.padded_V = padded(parameters["out.b"].shape[0], COLUMNS)
        first = [[s[0, 0].detach() for s in state] for state in model.first_state(1)]
        layers = zip(model.network.layers, first, strict=True)
        places = [self._layer(model.cell, layer, n, first_n) for n, (layer, first_n) in enumerate(layers)]
        self.places = (
            *places,
            self._dense(parameters["dense.W"], parameters["dense.b"], self.D),
            self._dense(parameters["out.W"], parameters["out.b"], self.padded_V),
        )
        self.flat = torch.cat(self._pieces)

    def _add(self, values: Tensor, length: int = 0) -> int:
        """Append values, with zeros up to a length and to 16 bytes; return their offset."""
        flat = values.flatten()
        length = padded(max(length, len(flat)), 4)
        self._pieces += [flat, flat.new_zeros(length - len(flat))]
        self._length += length
        return self._length - length

    def _layer(self, cell: RecurrentCell, layer: Layer, number: int, first: list[Tensor]) -> Place:
        U = self.H
        kind = type(cell)
        W_x, W_h = (
            by_unit(W.detach()[0], cell.GATES, columns[kind], U)
            for W, columns in ((layer.W_x, FROM_X), (layer.W_h, FROM_H))
        )
        b = by_unit(layer.b.detach()[0], cell.GATES, FROM_X[kind], U)
        packs = [pack_halves(W) if self.in_halves else pack(W, across=True) for W in (W_h, W_x)]
        packed = packs[0] if number == 0 else torch.cat(packs, dim=1)
        first_h = torch.nn.functional.pad(first[0], (0, U - len(first[0])))
        w_c = layer.extra.get("w_c")
        peepholes = 0
        if w_c is not None:
            peepholes = self._add(torch.nn.functional.pad(w_c.detach()[0], (0, U - w_c.shape[-1])))
        return Place(
            self._add(packed),
            self._add(W_x + b if number == 0 else b),  # the first layer reads symbols: one row of these for each
            peepholes,
            self._add(tiles_of_halves(first_h.expand(TILE, -1)) if self.in_halves else first_h),  # for any row
            self._add(first[-1], U),
            *packed.shape[:2],
        )

    def _dense(self, W: Tensor, b: Tensor, columns: int) -> Place:
        packed = pack(torch.nn.functional.pad(W, (0, columns - W.shape[1])), across=False)
        return Place(self._add(packed), self._add(b, columns), groups=packed.shape[0], parts=packed.shape[1])

    def resident(self, blocks: int, room: int) -> tuple[tuple[Place, ...], int]:
        """The places, with those that fit into a block's `room` of shared memory kept there, and the bytes used.

        A product's groups are dealt to the blocks in turn. The layers come first: they are read for the most rows.
        """
        places, used = [], 0
        for place in self.places:
            floats = -(-place.groups // blocks) * place.floats
            fits = (used + floats) * FLOAT <= room
            places.append(replace(place, resident=used if fits else -1))
            used += floats if fits else 0
        return tuple(places), used * FLOAT
