"""Tiles: numbers of rows whose products round alike.

A matrix product may add up its terms in another order if it has more or fewer rows, or for another row of it: a stream
would then draw another text in another batch. So rows are multiplied in tiles of a few fixed sizes. A size is used
only if a test on this machine, with these weights, shows that it gives each of its rows the bits of the largest tile.
One row is never a tile: libraries multiply a single row in a special way.

Shapes: R rows of a tile, K terms, N columns.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

LARGEST = 64
SIZES = (2, 4, 8, 16, 32)


def add_product(out: Tensor, x: Tensor, W: Tensor) -> None:
    """Compute out += x·W, one product or several at once. Steps multiply only here, so the test of sizes covers all."""
    if W.dim() == 3:
        out.baddbmm_(x, W)
    else:
        out.addmm_(x, W)


def shared(x_RK: Tensor, products: int) -> Tensor:
    """Repeat the same rows for each of several products at once, without a copy."""
    return x_RK.expand(products, -1, -1)


def alike(weights: Iterable[Tensor]) -> tuple[int, ...]:
    """The sizes that may be mixed for these matrices, in ascending order; at least the largest."""
    matrices = list(weights)
    sizes = tuple(size for size in SIZES if all(_as_the_largest(size, W) for W in matrices))
    return (*sizes, LARGEST) if all(_as_the_largest(LARGEST, W) for W in matrices) else ()


def plan(rows: int, sizes: tuple[int, ...]) -> list[tuple[int, int]]:
    """(start, size) of the tiles that cover the rows; the last tile may reach past them."""
    if not sizes:
        return [(row, 1) for row in range(rows)]
    whole = rows // sizes[-1] * sizes[-1]
    tiles = [(start, sizes[-1]) for start in range(0, whole, sizes[-1])]
    return tiles + [(whole, next(size for size in sizes if size >= rows - whole))] * (rows > whole)


def _as_the_largest(size: int, W: Tensor) -> bool:
    """Whether a row gets the same bits anywhere in a tile of this size as at the start of the largest tile."""
    *products, K, N = W.shape
    generator = torch.Generator().manual_seed(K * N)
    # The initial sums must not be 0: whether they are the first or the last term of a sum changes its rounding.
    row, base = (torch.empty(1, n, dtype=W.dtype).uniform_(-1, 1, generator=generator) for n in (K, N))
    expected, results = (base.repeat(*products, rows, 1) for rows in (LARGEST, size))
    for out in (expected, results):
        rows = row.repeat(out.shape[-2], 1)
        add_product(out, shared(rows, len(W)) if products else rows, W)
    return bool((results == expected[..., :1, :]).all())
