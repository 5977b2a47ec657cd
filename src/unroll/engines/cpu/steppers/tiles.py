"""Row counts whose products round alike.

A matrix product may add up its terms in another order when it has more or fewer rows, or for rows in other places: a
stream would then draw another text in another batch. So rows are multiplied in tiles of a few fixed sizes, and a size
is used only where it was seen, on this machine, with these weights, to give every row in every place the bits that
the largest tile gives it. One row is never a tile: libraries multiply a single row in a way of its own.

Shapes: R rows of a tile, K terms, N columns.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

LARGEST = 64
SIZES = (2, 4, 8, 16, 32)


def add_product(out: Tensor, x: Tensor, W: Tensor) -> None:
    """out += x·W, one product or several at once; all that steps multiply, so what was seen of it holds for them."""
    if W.dim() == 3:
        out.baddbmm_(x, W)
    else:
        out.addmm_(x, W)


def shared(x_RK: Tensor, several: int) -> Tensor:
    """The same rows for each of several products at once, without a copy."""
    return x_RK.expand(several, -1, -1)


def alike(weights: Iterable[Tensor]) -> tuple[int, ...]:
    """The sizes that may be mixed for these matrices, in ascending order; at least the largest."""
    matrices = list(weights)
    sizes = tuple(size for size in SIZES if all(_as_the_largest(size, W) for W in matrices))
    return (*sizes, LARGEST) if all(_as_the_largest(LARGEST, W) for W in matrices) else ()


def plan(rows: int, sizes: tuple[int, ...]) -> list[tuple[int, int]]:
    """(start, size) of the tiles that cover so many rows; the last may reach past them."""
    if not sizes:
        return [(row, 1) for row in range(rows)]
    whole = rows // sizes[-1] * sizes[-1]
    tiles = [(start, sizes[-1]) for start in range(0, whole, sizes[-1])]
    return tiles + [(whole, next(size for size in sizes if size >= rows - whole))] * (rows > whole)


def _as_the_largest(size: int, W: Tensor) -> bool:
    """Whether one row, in every place of a tile of this size, gets the bits of the largest tile's first place."""
    *several, K, N = W.shape
    generator = torch.Generator().manual_seed(K * N)
    # What is added to must not be 0: whether it is the first or the last term of a sum is part of how that rounds.
    row, base = (torch.empty(1, n, dtype=W.dtype).uniform_(-1, 1, generator=generator) for n in (K, N))
    expected, found = (base.repeat(*several, rows, 1) for rows in (LARGEST, size))
    for out in (expected, found):
        rows = row.repeat(out.shape[-2], 1)
        add_product(out, shared(rows, len(W)) if several else rows, W)
    return bool((found == expected[..., :1, :]).all())
