"""Products of a transposed left side, in compiled code: the gradients of weights, added up row by row.

Terms are rows of both sides, in the order of the rows. Both sides are copied into the order of reading first.

Shapes: R rows, K rows of the result, N columns.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple, TypeVar

from unroll.engines.cpu import amx, bf16
from unroll.engines.cpu.builder import VECTORS, Code, Value
from unroll.engines.cpu.products import ROWS, Begin, Left, tile

BLOCK = 192  # terms of a transposed product: a panel of them (24 kB) and the other side fit into the first-level cache
GROUP = 32  # vectors of a transposed product's left side at a time

Count = TypeVar("Count", int, Value)


def clear(code: Code, out: Value, elements: Value) -> None:
    """Set elements, a whole number of vectors, to 0."""
    with code.loop(elements // code.lanes) as v:
        code.store(code.constant(0.0), code.at(out, v * code.lanes))


def terms_of(rows: Count, in_bf16: bool) -> Count:
    """The number of terms that the rows of a step make in a transposed product."""
    return (rows + 1) // 2 if in_bf16 else rows


def rows_of_block(in_bf16: bool) -> int:
    """The most rows of one step that a transposed product takes."""
    return 2 * BLOCK if in_bf16 else BLOCK


def spaced(columns: Count, lanes: int) -> Count:
    """How far apart the rows of a transposed product's result lie.

    Most sizes are powers of two; at that distance tiles would drive each other and their terms out of the cache.
    """
    return columns + lanes


class Terms(NamedTuple):
    """The rows that a transposed product adds up: `rows` neighbours in each of `steps` steps, `apart` rows apart."""

    rows: Value
    steps: Value
    apart: Value


def add_transposed_product(
    code: Code, out: Value, x: Value, y: Value, terms: Terms, K: Value, N: Value, first: Value, columns: Value
) -> None:
    """Compute out[K, N] += x[R, K]ᵀ·y[R, N] for these columns; K is whole panels, terms are at most BLOCK.

    The rows of out are `spaced`. Both sides are first copied into the order of reading, a few panels of x and then each
    panel of y: rows that are a power of two apart would drive each other out of the cache.
    """
    if code.in_bf16 and amx.available():
        _add_blocks(code, out, x, y, terms, K, N, first, columns)
        return
    x_copied = code.scratch((BLOCK + 1) * GROUP * code.lanes)
    y_copied = code.scratch(BLOCK * code.panel)
    R = terms.steps * terms_of(terms.rows, code.in_bf16)
    apart = (R + 1) * code.lanes  # how far the vectors of x are apart: not a power of two
    rows_apart = spaced(N, code.lanes)
    height = min(ROWS, code.lanes)  # rows of a tile
    whole = K // code.lanes
    with code.loop((whole + (GROUP - 1)) // GROUP) as n:
        k = n * (GROUP * code.lanes)
        vectors = (whole - n * GROUP).at_most_number(GROUP)
        _copy(code, x_copied, apart, code.lanes, code.at(x, k), K, terms, vectors)
        with code.loop(columns // code.panel) as q:
            column = first + q * code.panel
            _copy(code, y_copied, code.lanes, code.panel, code.at(y, column), N, terms, code.number(VECTORS))
            with code.loop(vectors) as v:
                # The next columns of y are fetched, some rows with each vector.
                rows, before = ((n * terms.rows) // vectors for n in (v + 1, v))
                with code.loop(terms.steps) as s, code.loop(rows - before) as r:
                    ahead = code.at(y, (s * terms.apart + before + r) * N + column + code.panel)
                    for vector in range(VECTORS):
                        code.fetch(code.at(ahead, vector * code.lanes))
                for row in range(0, code.lanes, height):
                    x_rows = Left(code.at(x_copied, apart * v + row), 1, code.lanes)
                    tile_at = code.at(out, (k + v * code.lanes + row) * rows_apart + column)
                    # The next tile's sums are fetched while this tile's are added up.
                    for below, vector in itertools.product(range(height, 2 * height), range(VECTORS)):
                        code.fetch(code.at(tile_at, rows_apart * below + vector * code.lanes))
                    tile(code, height, tile_at, rows_apart, Begin(tile_at, rows_apart), x_rows, y_copied, R)


def _add_blocks(
    code: Code, out: Value, x: Value, y: Value, terms: Terms, K: Value, N: Value, first: Value, columns: Value
) -> None:
    """Compute the same product by AMX, which reads each column of x as a row."""
    lanes, edge = code.lanes, amx.EDGE
    most = BLOCK + edge  # words, filled up to whole tiles
    x_paired = code.scratch(most * lanes)
    x_turned = code.scratch(most * GROUP * lanes)
    y_copied = code.scratch(most * code.panel)
    R = terms.steps * terms_of(terms.rows, True)
    filled = (R + (edge - 1)) // edge * edge
    clear(code, code.at(x_paired, R * lanes), (filled - R) * lanes)
    clear(code, code.at(y_copied, R * code.panel), (filled - R) * code.panel)

    def write(code: Code, out: Value, apart: Value, x: Value, y: Value, R: Value) -> None:
        amx.add_block(code, out, apart, x, y, R)

    whole = K // lanes
    rows_apart = spaced(N, lanes)
    with code.loop((whole + (GROUP - 1)) // GROUP) as n:
        k = n * (GROUP * lanes)
        vectors = (whole - n * GROUP).at_most_number(GROUP)
        with code.loop(vectors) as v:
            _copy(code, x_paired, 0, lanes, code.at(x, k + v * lanes), K, terms, code.number(1))
            with code.loop(filled // edge) as r:
                goal = code.at(x_turned, v * lanes * filled + r * amx.TILE)
                amx.transpose(code, code.at(x_paired, r * amx.TILE), goal)
        with code.loop(columns // code.panel) as q:
            column = first + q * code.panel
            _copy(code, y_copied, lanes, code.panel, code.at(y, column), N, terms, code.number(VECTORS))
            with code.loop(vectors // VECTORS) as v:
                tile_at = code.at(out, (k + v * code.panel) * rows_apart + column)
                x_rows = code.at(x_turned, v * code.panel * filled)
                code.call("add_block", write, tile_at, rows_apart, x_rows, y_copied, filled)


def _copy(
    code: Code,
    out: Value,
    vectors_apart: Value | int,
    rows_apart: int,
    x: Value,
    N: Value,
    terms: Terms,
    vectors: Value,
) -> None:
    """Copy vectors of each row into a new order; in bfloat16, every two rows become words."""
    if not code.in_bf16:
        with code.loop(terms.steps) as s, code.loop(terms.rows) as r:
            row = code.at(x, (s * terms.apart + r) * N)
            goal = code.at(out, (s * terms.rows + r) * rows_apart)
            with code.loop(vectors) as v:
                code.store(code.load(code.at(row, v * code.lanes)), code.at(goal, v * vectors_apart))
        return
    pairs, odd = terms.rows // 2, terms.rows % 2
    with code.loop(terms.steps) as s:
        source = code.at(x, s * terms.apart * N)
        goal = code.at(out, s * (pairs + odd) * rows_apart)
        with code.loop(pairs) as p, code.loop(vectors) as v:
            low = code.at(source, p * 2 * N + v * code.lanes)
            words = bf16.paired(code, code.load(low), code.load(code.at(low, N)))
            code.store(words, code.at(goal, p * rows_apart + v * vectors_apart))
        with code.loop(odd), code.loop(vectors) as v:
            low = code.load(code.at(source, pairs * 2 * N + v * code.lanes))
            words = bf16.paired(code, low, code.constant(0.0))
            code.store(words, code.at(goal, pairs * rows_apart + v * vectors_apart))
