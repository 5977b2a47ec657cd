"""Products of matrices, in compiled code.

A product adds up its terms in vectors, from the first term to the last, each rounded once. So a row's result depends on
that row alone, not on the number of rows or the thread. The right-hand matrix is packed: see `packing.py`. In bfloat16
a term is a word, which holds two factors: see `bf16.py`, and `amx.py` for the processors that have AMX.

Shapes: R rows, K terms, N columns.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import NamedTuple, TypeVar

from unroll.engines.cpu import amx, bf16
from unroll.engines.cpu.builder import VECTORS, Code, Value, Variable

ROWS = 8  # rows of a tile: with two vectors of each row that is 16 sums in registers
# Rows of a tile of two panels: 24 sums, if there are enough registers. Fewer numbers are loaded for each product, which
# matters if another thread, perhaps of another process, shares the core.
WIDE_ROWS = 6
BLOCK = 192  # terms of a transposed product: a panel of them (24 kB) and the other side fit into the first-level cache
UNROLLED = 2  # terms a turn of a product's loop: the loop itself costs less, and a fetch is a whole vector
GROUP = 32  # vectors of a transposed product's left side at a time


def clear(code: Code, out: Value, elements: Value) -> None:
    """Set elements, a whole number of vectors, to 0."""
    with code.loop(elements // code.lanes) as v:
        code.store(code.constant(0.0), code.at(out, v * code.lanes))


class Begin(NamedTuple):
    """The initial sums of each row: rows `apart` elements apart, or, if there are ids, the rows that the ids name."""

    address: Value
    apart: Value
    ids: Value | None = None

    def from_row(self, code: Code, row: Value) -> Begin:
        """The initial sums of the rows from this one on."""
        if self.ids is None:
            return self._replace(address=code.at(self.address, row * self.apart))
        return self._replace(ids=code.at_index(self.ids, row))

    def at(self, code: Code, row: Value) -> Value:
        """The address of one row's initial sums."""
        row = row if self.ids is None else code.load_index(self.ids, row)
        return code.at(self.address, row * self.apart)


class Left(NamedTuple):
    """The left side of a product: its address, and how far its rows and a row's terms are apart."""

    address: Value
    rows_apart: Value | int
    terms_apart: int = 1


def product(
    code: Code,
    out: Value,
    x: Left,  # a `left_side`
    W: Value,
    rows: Value,
    K: Value,
    N: Value,
    begin: Begin | None = None,
    apart: Value | None = None,
) -> None:
    """Compute out[R, N] = begin + x[R, K]·W, W packed; the rows of out lie `apart` elements apart.

    By default the rows follow each other, and sums begin at 0.
    """
    apart = apart or N
    if code.in_bf16:
        K = K // 2
        if amx.available():
            _by_blocks(code, out, x.address, W, rows, K, N, begin, apart)
            return

    def one_tile(panels: int, count: int, q: Value, first: Value, fetch: Value | None = None) -> None:
        column = q * code.panel
        tile_begin = begin and begin._replace(address=code.at(begin.address, column)).from_row(code, first)
        out_rows = code.at(out, first * apart + column)
        x_rows = x._replace(address=code.at(x.address, first * x.rows_apart))
        _tile(code, count, out_rows, apart, tile_begin, x_rows, code.at(W, column * K), K, fetch, panels)

    def all_rows(panels: int, height: int, q: Value, tiles: Value) -> None:
        """Take all rows of a few panels: tiles of the full height, and the other rows by fours and ones."""
        rest, next_panels = rows - tiles * height, code.at(W, (q + panels) * K * code.panel)
        # While the first tiles are multiplied, the next panels are fetched, a quarter with each tile.
        fetching = tiles.at_most_number(4)
        with code.loop(fetching) as n:
            one_tile(panels, height, q, n * height, code.at(next_panels, n * (K * panels // 4) * code.panel))
        with code.loop(tiles - fetching) as n:
            one_tile(panels, height, q, (fetching + n) * height)
        with code.loop(rest // 4) as n:
            one_tile(panels, 4, q, rows - rest + n * 4)
        with code.loop(rest % 4) as n:
            one_tile(panels, 1, q, rows - rest % 4 + n)

    panels = N // code.panel
    pairs = panels // 2 if code.registers() >= 32 else code.number(0)
    with code.loop(pairs) as n:
        # Where two rows are left over, one tile of six less leaves eight rows: two tiles of four.
        less = (rows % WIDE_ROWS // 2 % 2) * (rows // 8).at_most_number(1)
        all_rows(2, WIDE_ROWS, n * 2, rows // WIDE_ROWS - less)
    with code.loop(panels - pairs * 2) as n:
        all_rows(1, ROWS, pairs * 2 + n, rows // ROWS)


def _by_blocks(
    code: Code, out: Value, x: Value, W: Value, rows: Value, K: Value, N: Value, begin: Begin | None, apart: Value
) -> None:
    """Compute the same product by AMX."""

    def write(code: Code, out: Value, apart: Value, x: Value, W: Value, K: Value, rows: Value, *begun: Value) -> None:
        amx.block(code, out, apart, x, W, K, rows, (begun[0], begun[1]) if begun else None)

    if begin and begin.ids is not None:
        # Rows that ids name are brought together first, all of them: a tile loads slowly what was stored a moment ago.
        with code.loop(rows) as r:
            row = begin.at(code, r)
            with code.loop(N // code.lanes) as v:
                code.store(code.load(code.at(row, v * code.lanes)), code.at(out, r * apart + v * code.lanes))
        begin = Begin(out, apart)
    with code.loop(N // code.panel) as q, code.loop((rows + (amx.ROWS - 1)) // amx.ROWS) as n:
        column, first = q * code.panel, n * amx.ROWS
        count = (rows - first).at_most_number(amx.ROWS)
        block_begin = begin and begin._replace(address=code.at(begin.address, column)).from_row(code, first)
        begun = [block_begin.address, block_begin.apart] if block_begin else []
        operands = (code.at(out, first * apart + column), apart, code.at(x, first * K), code.at(W, column * K))
        code.call(f"block_{len(begun)}", write, *operands, K, count, *begun)


def columns_of(code: Code, W: Value, first: Value, K: Value) -> Value:
    """The address of packed columns, from the first column of a panel on."""
    return code.at(W, first * (K // 2 if code.in_bf16 else K))


def left_side(code: Code, x: Value, rows: Value, K: Value, room: Value, apart: Value | None = None) -> Left:
    """Rows as products read them: in bfloat16 rounded into `room`, else as they are.

    They lie `apart` elements apart; by default they follow each other.
    """
    apart = apart or K
    if not code.in_bf16:
        return Left(x, apart)
    with code.loop(rows) as r, code.loop(K // code.panel) as n:
        source, k = code.at(x, r * apart + n * code.panel), n * code.lanes
        words = bf16.in_order(code, code.load(source), code.load(code.at(source, code.lanes)))
        goal = amx.left_index(r, k, K // 2) if amx.available() else r * (K // 2) + k
        code.store(words, code.at(room, goal))
    return Left(room, K // 2)


def room_for(rows: int, K: int, in_bf16: bool) -> int:
    """The elements of a left side's `room`: in bfloat16, rows that fill tiles; else none."""
    return -(-rows // amx.ROWS) * amx.ROWS * K // 2 if in_bf16 else 0


Count = TypeVar("Count", int, Value)


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
    x_copied, y_copied = code.scratch((BLOCK + 1) * GROUP * code.lanes), code.scratch(BLOCK * code.panel)
    R = terms.steps * terms_of(terms.rows, code.in_bf16)
    apart = (R + 1) * code.lanes  # how far the vectors of x are apart: not a power of two
    rows_apart = spaced(N, code.lanes)
    height = min(ROWS, code.lanes)  # rows of a tile
    whole = K // code.lanes
    with code.loop((whole + (GROUP - 1)) // GROUP) as n:
        k, vectors = n * (GROUP * code.lanes), (whole - n * GROUP).at_most_number(GROUP)
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
                    _tile(code, height, tile_at, rows_apart, Begin(tile_at, rows_apart), x_rows, y_copied, R)


def _add_blocks(
    code: Code, out: Value, x: Value, y: Value, terms: Terms, K: Value, N: Value, first: Value, columns: Value
) -> None:
    """Compute the same product by AMX, which reads each column of x as a row."""
    lanes, edge = code.lanes, amx.EDGE
    most = BLOCK + edge  # words, filled up to whole tiles
    x_paired, x_turned = code.scratch(most * lanes), code.scratch(most * GROUP * lanes)
    y_copied = code.scratch(most * code.panel)
    R = terms.steps * terms_of(terms.rows, True)
    filled = (R + (edge - 1)) // edge * edge
    clear(code, code.at(x_paired, R * lanes), (filled - R) * lanes)
    clear(code, code.at(y_copied, R * code.panel), (filled - R) * code.panel)

    def write(code: Code, out: Value, apart: Value, x: Value, y: Value, R: Value) -> None:
        amx.add_block(code, out, apart, x, y, R)

    whole, rows_apart = K // lanes, spaced(N, lanes)
    with code.loop((whole + (GROUP - 1)) // GROUP) as n:
        k, vectors = n * (GROUP * lanes), (whole - n * GROUP).at_most_number(GROUP)
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
            row, goal = code.at(x, (s * terms.apart + r) * N), code.at(out, (s * terms.rows + r) * rows_apart)
            with code.loop(vectors) as v:
                code.store(code.load(code.at(row, v * code.lanes)), code.at(goal, v * vectors_apart))
        return
    pairs, odd = terms.rows // 2, terms.rows % 2
    with code.loop(terms.steps) as s:
        source, goal = code.at(x, s * terms.apart * N), code.at(out, s * (pairs + odd) * rows_apart)
        with code.loop(pairs) as p, code.loop(vectors) as v:
            low = code.at(source, p * 2 * N + v * code.lanes)
            words = bf16.paired(code, code.load(low), code.load(code.at(low, N)))
            code.store(words, code.at(goal, p * rows_apart + v * vectors_apart))
        with code.loop(odd), code.loop(vectors) as v:
            low = code.load(code.at(source, pairs * 2 * N + v * code.lanes))
            words = bf16.paired(code, low, code.constant(0.0))
            code.store(words, code.at(goal, pairs * rows_apart + v * vectors_apart))


def _tile(
    code: Code,
    count: int,
    out: Value,
    apart: Value,  # how far the rows of out are apart
    begin: Begin | None,
    x: Left,
    W: Value,
    K: Value,
    fetch: Value | None = None,
    panels: int = 1,
) -> None:
    """Compute a few rows of one panel, or of two neighbouring panels.

    This is a separate function: amid other code LLVM would keep sums or addresses in memory.
    """
    optional = [begin and begin.address, begin and begin.apart, begin and begin.ids, fetch]
    stride = x.rows_apart if isinstance(x.rows_apart, Value) else None
    given = [value is not None for value in (*optional, stride)]

    def write(code: Code, out: Value, apart: Value, x_at: Value, W: Value, K: Value, *rest: Value) -> None:
        values = iter(rest)
        start, start_apart, ids, fetch, x_apart = (next(values) if here else None for here in given)
        rows_apart = x_apart if x_apart is not None else x.rows_apart
        begun = Begin(start, start_apart, ids) if start is not None and start_apart is not None else None
        _sums(code, count, out, apart, begun, x._replace(address=x_at, rows_apart=rows_apart), W, K, fetch, panels)

    apart_by = "" if stride else f"_{x.rows_apart}"
    name = f"tile_of_{count}_{panels}_" + "".join("01"[here] for here in given) + f"_{x.terms_apart}{apart_by}"
    present = [value for value in (*optional, stride) if value is not None]
    code.call(name, write, out, apart, x.address, W, K, *present)


def _sums(
    code: Code,
    count: int,
    out: Value,
    apart: Value,
    begin: Begin | None,
    x: Left,
    W: Value,
    K: Value,
    fetch: Value | None,
    panels: int,
) -> None:
    """Add up a tile; its sums stay in registers."""
    numbers, vectors = [code.number(row) for row in range(count)], range(VECTORS * panels)
    zero, sums = code.constant(0.0), []
    for row in numbers:
        row_begin = begin and begin.at(code, row)
        begun = [code.load(code.at(row_begin, v * code.lanes)) if row_begin else zero for v in vectors]
        sums.append([Variable(code, vector) for vector in begun])
    x_rows = [code.at(x.address, row * x.rows_apart) for row in numbers]

    W_panels = [W, code.at(W, K * code.panel)][:panels]
    multiply = partial(bf16.dot, code) if code.in_bf16 else code.fma

    def term(k: Value) -> None:
        offsets = [(W_q, v * code.lanes) for W_q in W_panels for v in range(VECTORS)]
        columns = [code.load(code.at(W_q, k * code.panel + offset)) for W_q, offset in offsets]
        for x_row, row in zip(x_rows, sums, strict=True):
            factor = code.load_spread(code.at(x_row, k * x.terms_apart))
            for sum_, column in zip(row, columns, strict=True):
                sum_.set(multiply(factor, column, sum_.get()))
        code.pause()  # else all terms of a turn would be read at once, and there are not enough registers

    with code.loop(K // UNROLLED) as n:
        if fetch is not None:
            for line in range(panels):
                code.fetch(code.at(fetch, (n * panels + line) * (UNROLLED * code.panel // 4)))
        for k in range(UNROLLED):
            term(n * UNROLLED + k)
    with code.loop(K % UNROLLED) as n:
        term(K - K % UNROLLED + n)
    for row, row_sums in zip(numbers, sums, strict=True):
        for v, sum_ in enumerate(row_sums):
            code.store(sum_.get(), code.at(out, row * apart + v * code.lanes))
