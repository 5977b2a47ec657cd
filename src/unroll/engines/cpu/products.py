"""Products of matrices, in compiled code.

A product adds up its terms in vectors, from the first term to the last, each rounded once. So a row's result depends on
that row alone, not on the number of rows or the thread. The right-hand matrix is packed: see `packing.py`. In bfloat16
a term is a word, which holds two factors: see `bf16.py`, and `amx.py` for the processors that have AMX.

Shapes: R rows, K terms, N columns.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from unroll.engines.cpu import amx, bf16
from unroll.engines.cpu.builder import VECTORS, Code, Value, Variable

ROWS = 8  # rows of a tile: with two vectors of each row that is 16 sums in registers
# Rows of a tile of two panels: 24 sums, if there are enough registers. Fewer numbers are loaded for each product, which
# matters if another thread, perhaps of another process, shares the core.
WIDE_ROWS = 6
UNROLLED = 2  # terms a turn of a product's loop: the loop itself costs less, and a fetch is a whole vector


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

    def onetile(panels: int, count: int, q: Value, first: Value, fetch: Value | None = None) -> None:
        column = q * code.panel
        tile_begin = begin and begin._replace(address=code.at(begin.address, column)).from_row(code, first)
        out_rows = code.at(out, first * apart + column)
        x_rows = x._replace(address=code.at(x.address, first * x.rows_apart))
        tile(code, count, out_rows, apart, tile_begin, x_rows, code.at(W, column * K), K, fetch, panels)

    def all_rows(panels: int, height: int, q: Value, tiles: Value) -> None:
        """Take all rows of a few panels: tiles of the full height, and the other rows by fours and ones."""
        rest = rows - tiles * height
        next_panels = code.at(W, (q + panels) * K * code.panel)
        # While the first tiles are multiplied, the next panels are fetched, a quarter with each tile.
        fetching = tiles.at_most_number(4)
        with code.loop(fetching) as n:
            onetile(panels, height, q, n * height, code.at(next_panels, n * (K * panels // 4) * code.panel))
        with code.loop(tiles - fetching) as n:
            onetile(panels, height, q, (fetching + n) * height)
        with code.loop(rest // 4) as n:
            onetile(panels, 4, q, rows - rest + n * 4)
        with code.loop(rest % 4) as n:
            onetile(panels, 1, q, rows - rest % 4 + n)

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
        source = code.at(x, r * apart + n * code.panel)
        k = n * code.lanes
        words = bf16.in_order(code, code.load(source), code.load(code.at(source, code.lanes)))
        goal = amx.left_index(r, k, K // 2) if amx.available() else r * (K // 2) + k
        code.store(words, code.at(room, goal))
    return Left(room, K // 2)


def room_for(rows: int, K: int, in_bf16: bool) -> int:
    """The elements of a left side's `room`: in bfloat16, rows that fill tiles; else none."""
    return -(-rows // amx.ROWS) * amx.ROWS * K // 2 if in_bf16 else 0


def tile(
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
    numbers = [code.number(row) for row in range(count)]
    vectors = range(VECTORS * panels)
    zero = code.constant(0.0)
    sums = []
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
