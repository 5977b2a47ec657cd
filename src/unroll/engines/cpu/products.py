"""Products of matrices, in compiled code.

A product adds up its terms in one order, in vectors from the first to the last, each rounded once: a row's result
depends on that row alone, not on how many there are or which thread does it. The right-hand matrix is packed: see
`packing.py`. Where code is narrow, a term is a word, the products of two: see `bf16.py`, and `amx.py` for who
may multiply it.

Shapes: R rows, K terms, N columns.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import NamedTuple, TypeVar

from unroll.engines.cpu import amx, bf16
from unroll.engines.cpu.builder import VECTORS, Code, Value, Variable

ROWS = 8  # at once: with two vectors of each that is 16 sums in registers
# Two panels at once: 24 sums. Fewer numbers are loaded for as many products, which counts where another thread, perhaps
# a stranger's, shares the core. Only where there are so many registers.
WIDE_ROWS = 6
BLOCK = 192  # terms of a transposed product: a panel of so many (24 kB) stays in the first cache beside its other side
UNROLLED = 2  # terms to a turn of a product's loop: its own work counts for less, and a fetch is a whole vector
GROUP = 32  # vectors of its left side at a time


def clear(code: Code, out: Value, elements: Value) -> None:
    """So many elements, whole vectors, become 0."""
    with code.loop(elements // code.lanes) as v:
        code.store(code.constant(0.0), code.at(out, v * code.lanes))


class Begin(NamedTuple):
    """Where the sums of each row begin: so many elements apart, or, if there are ids, at the row that each names."""

    address: Value
    apart: Value
    ids: Value | None = None

    def from_row(self, code: Code, row: Value) -> Begin:
        """That of the rows from this one on."""
        if self.ids is None:
            return self._replace(address=code.at(self.address, row * self.apart))
        return self._replace(ids=code.at_index(self.ids, row))

    def at(self, code: Code, row: Value) -> Value:
        """The address of one row's."""
        row = row if self.ids is None else code.load_index(self.ids, row)
        return code.at(self.address, row * self.apart)


class Left(NamedTuple):
    """The left side of a product: where it begins, and how far the rows and a row's terms are apart."""

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
    """out[R, N] = begin + x[R, K]·W, W packed; the rows of out lie so far apart. By default they follow each other, and
    sums begin at 0.
    """
    apart = apart or N
    if code.narrow:
        K = K // 2
        if amx.available():
            _by_blocks(code, out, x.address, W, rows, K, N, begin, apart)
            return

    def some(panels: int, count: int, q: Value, first: Value, fetch: Value | None = None) -> None:
        column = q * code.panel
        own = begin and begin._replace(address=code.at(begin.address, column)).from_row(code, first)
        out_rows = code.at(out, first * apart + column)
        x_rows = x._replace(address=code.at(x.address, first * x.rows_apart))
        _tile(code, count, out_rows, apart, own, x_rows, code.at(W, column * K), K, fetch, panels)

    def several(panels: int, tall: int, q: Value, talls: Value) -> None:
        """A few panels: so many tall tiles, and the rest of the rows by fours and ones."""
        rest, beyond = rows - talls * tall, code.at(W, (q + panels) * K * code.panel)
        # While the first tiles are multiplied, the next panels come nearer, a quarter with each.
        fetching = talls.at_most_number(4)
        with code.loop(fetching) as n:
            some(panels, tall, q, n * tall, code.at(beyond, n * (K * panels // 4) * code.panel))
        with code.loop(talls - fetching) as n:
            some(panels, tall, q, (fetching + n) * tall)
        with code.loop(rest // 4) as n:
            some(panels, 4, q, rows - rest + n * 4)
        with code.loop(rest % 4) as n:
            some(panels, 1, q, rows - rest % 4 + n)

    panels = N // code.panel
    pairs = panels // 2 if code.registers() >= 32 else code.number(0)
    with code.loop(pairs) as n:
        # Two rows too many for tiles of six are eight with one tile less: two of four.
        less = (rows % WIDE_ROWS // 2 % 2) * (rows // 8).at_most_number(1)
        several(2, WIDE_ROWS, n * 2, rows // WIDE_ROWS - less)
    with code.loop(panels - pairs * 2) as n:
        several(1, ROWS, pairs * 2 + n, rows // ROWS)


def _by_blocks(
    code: Code, out: Value, x: Value, W: Value, rows: Value, K: Value, N: Value, begin: Begin | None, apart: Value
) -> None:
    """The same by the matrix unit."""

    def write(code: Code, out: Value, apart: Value, x: Value, W: Value, K: Value, rows: Value, *begun: Value) -> None:
        amx.block(code, out, apart, x, W, K, rows, (begun[0], begun[1]) if begun else None)

    if begin and begin.ids is not None:
        # Rows from here and there, brought together first: what was stored a moment ago is slow to come into a tile.
        with code.loop(rows) as r:
            row = begin.at(code, r)
            with code.loop(N // code.lanes) as v:
                code.store(code.load(code.at(row, v * code.lanes)), code.at(out, r * apart + v * code.lanes))
        begin = Begin(out, apart)
    with code.loop(N // code.panel) as q, code.loop((rows + (amx.ROWS - 1)) // amx.ROWS) as n:
        column, first = q * code.panel, n * amx.ROWS
        count = (rows - first).at_most_number(amx.ROWS)
        own = begin and begin._replace(address=code.at(begin.address, column)).from_row(code, first)
        begun = [own.address, own.apart] if own else []
        places = (code.at(out, first * apart + column), apart, code.at(x, first * K), code.at(W, column * K))
        code.call(f"block_{len(begun)}", write, *places, K, count, *begun)


def columns_of(code: Code, W: Value, first: Value, K: Value) -> Value:
    """Where packed columns begin, from the first of a panel on."""
    return code.at(W, first * (K // 2 if code.narrow else K))


def left_side(code: Code, x: Value, rows: Value, K: Value, room: Value, apart: Value | None = None) -> Left:
    """Rows as products read them: as they are, or of narrow code in half the bits, for which there must be room. They
    follow each other, or lie so far apart."""
    apart = apart or K
    if not code.narrow:
        return Left(x, apart)
    with code.loop(rows) as r, code.loop(K // code.panel) as n:
        source, k = code.at(x, r * apart + n * code.panel), n * code.lanes
        words = bf16.in_order(code, code.load(source), code.load(code.at(source, code.lanes)))
        goal = amx.place(r, k, K // 2) if amx.available() else r * (K // 2) + k
        code.store(words, code.at(room, goal))
    return Left(room, K // 2)


def room_for(rows: int, K: int, narrow: bool) -> int:
    """Elements that a product's left side needs room for: of narrow code, rows that fill tiles."""
    return -(-rows // amx.ROWS) * amx.ROWS * K // 2 if narrow else 0


Count = TypeVar("Count", int, Value)


def terms_of(rows: Count, narrow: bool) -> Count:
    """How many terms of a transposed product so many rows of a step are."""
    return (rows + 1) // 2 if narrow else rows


def rows_of_block(narrow: bool) -> int:
    """So many rows of one step are a transposed product's most terms."""
    return 2 * BLOCK if narrow else BLOCK


def spaced(columns: Count, lanes: int) -> Count:
    """How far apart the rows of a transposed product's result lie: at a power of two, as most sizes are, tiles would
    drive each other, and their own terms, out of the cache."""
    return columns + lanes


class Terms(NamedTuple):
    """Which rows a transposed product adds up: so many neighbours, at so many steps that are so many rows apart."""

    rows: Value
    steps: Value
    apart: Value


def add_transposed_product(
    code: Code, out: Value, x: Value, y: Value, terms: Terms, K: Value, N: Value, first: Value, columns: Value
) -> None:
    """out[K, N] += x[R, K]ᵀ·y[R, N] for some of the columns; K is whole panels, terms are at most BLOCK.

    The rows of out are `spaced`. Both sides are copied first, a few panels of x and then each of y, so that they lie as
    they are read: rows that are a power of two apart would drive each other out of the cache.
    """
    if code.narrow and amx.available():
        _add_blocks(code, out, x, y, terms, K, N, first, columns)
        return
    x_copied, y_copied = code.scratch((BLOCK + 1) * GROUP * code.lanes), code.scratch(BLOCK * code.panel)
    R = terms.steps * terms_of(terms.rows, code.narrow)
    apart = (R + 1) * code.lanes  # the vectors of x: not a power of two
    rows_apart = spaced(N, code.lanes)
    height = min(ROWS, code.lanes)  # of a tile
    whole = K // code.lanes
    with code.loop((whole + (GROUP - 1)) // GROUP) as n:
        k, vectors = n * (GROUP * code.lanes), (whole - n * GROUP).at_most_number(GROUP)
        _copy(code, x_copied, apart, code.lanes, code.at(x, k), K, terms, vectors)
        with code.loop(columns // code.panel) as q:
            column = first + q * code.panel
            _copy(code, y_copied, code.lanes, code.panel, code.at(y, column), N, terms, code.number(VECTORS))
            with code.loop(vectors) as v:
                # So do the next columns of y, some rows with each vector.
                rows, before = ((n * terms.rows) // vectors for n in (v + 1, v))
                with code.loop(terms.steps) as s, code.loop(rows - before) as r:
                    ahead = code.at(y, (s * terms.apart + before + r) * N + column + code.panel)
                    for part in range(VECTORS):
                        code.fetch(code.at(ahead, part * code.lanes))
                for row in range(0, code.lanes, height):
                    x_rows = Left(code.at(x_copied, apart * v + row), 1, code.lanes)
                    place = code.at(out, (k + v * code.lanes + row) * rows_apart + column)
                    # The next tile's sums come nearer while this one's are added up.
                    for below, part in itertools.product(range(height, 2 * height), range(VECTORS)):
                        code.fetch(code.at(place, rows_apart * below + part * code.lanes))
                    _tile(code, height, place, rows_apart, Begin(place, rows_apart), x_rows, y_copied, R)


def _add_blocks(
    code: Code, out: Value, x: Value, y: Value, terms: Terms, K: Value, N: Value, first: Value, columns: Value
) -> None:
    """The same by the matrix unit, which reads each column of x as a row."""
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
                place = code.at(out, (k + v * code.panel) * rows_apart + column)
                x_rows = code.at(x_turned, v * code.panel * filled)
                code.call("add_block", write, place, rows_apart, x_rows, y_copied, filled)


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
    """So many vectors of each row, arranged anew; where code is narrow, of each two rows, which share words."""
    if not code.narrow:
        with code.loop(terms.steps) as s, code.loop(terms.rows) as r:
            row, goal = code.at(x, (s * terms.apart + r) * N), code.at(out, (s * terms.rows + r) * rows_apart)
            with code.loop(vectors) as v:
                code.store(code.load(code.at(row, v * code.lanes)), code.at(goal, v * vectors_apart))
        return
    pairs, alone = terms.rows // 2, terms.rows % 2
    with code.loop(terms.steps) as s:
        own, place = code.at(x, s * terms.apart * N), code.at(out, s * (pairs + alone) * rows_apart)
        with code.loop(pairs) as p, code.loop(vectors) as v:
            low = code.at(own, p * 2 * N + v * code.lanes)
            words = bf16.paired(code, code.load(low), code.load(code.at(low, N)))
            code.store(words, code.at(place, p * rows_apart + v * vectors_apart))
        with code.loop(alone), code.loop(vectors) as v:
            low = code.load(code.at(own, pairs * 2 * N + v * code.lanes))
            words = bf16.paired(code, low, code.constant(0.0))
            code.store(words, code.at(place, pairs * rows_apart + v * vectors_apart))


def _tile(
    code: Code,
    count: int,
    out: Value,
    apart: Value,  # its rows
    begin: Begin | None,
    x: Left,
    W: Value,
    K: Value,
    fetch: Value | None = None,
    panels: int = 1,
) -> None:
    """A few rows of one panel, or of two neighbours.

    A function of its own: amid other code LLVM would keep sums or addresses in memory.
    """
    optional = [begin and begin.address, begin and begin.apart, begin and begin.ids, fetch]
    stride = x.rows_apart if isinstance(x.rows_apart, Value) else None
    given = [value is not None for value in (*optional, stride)]

    def write(code: Code, out: Value, apart: Value, x_at: Value, W: Value, K: Value, *rest: Value) -> None:
        values = iter(rest)
        start, between, ids, fetch, own = (next(values) if here else None for here in given)
        rows_apart = own if own is not None else x.rows_apart
        begun = Begin(start, between, ids) if start is not None and between is not None else None
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
    """What a tile is: its sums stay in registers."""
    numbers, vectors = [code.number(row) for row in range(count)], range(VECTORS * panels)
    zero, sums = code.constant(0.0), []
    for row in numbers:
        own = begin and begin.at(code, row)
        begun = [code.load(code.at(own, v * code.lanes)) if own else zero for v in vectors]
        sums.append([Variable(code, vector) for vector in begun])
    x_rows = [code.at(x.address, row * x.rows_apart) for row in numbers]

    W_panels = [W, code.at(W, K * code.panel)][:panels]
    multiply = partial(bf16.dot, code) if code.narrow else code.fma

    def term(k: Value) -> None:
        places = [(W_q, v * code.lanes) for W_q in W_panels for v in range(VECTORS)]
        columns = [code.load(code.at(W_q, k * code.panel + place)) for W_q, place in places]
        for x_row, row in zip(x_rows, sums, strict=True):
            factor = code.load_spread(code.at(x_row, k * x.terms_apart))
            for sum_, column in zip(row, columns, strict=True):
                sum_.set(multiply(factor, column, sum_.get()))
        code.pause()  # or all terms of a turn would be read at once, and there are not so many registers

    with code.loop(K // UNROLLED) as n:
        if fetch is not None:
            for line in range(panels):
                code.fetch(code.at(fetch, (n * panels + line) * (UNROLLED * code.panel // 4)))
        for k in range(UNROLLED):
            term(n * UNROLLED + k)
    with code.loop(K % UNROLLED) as n:
        term(K - K % UNROLLED + n)
    for row, own_sums in zip(numbers, sums, strict=True):
        for v, sum_ in enumerate(own_sums):
            code.store(sum_.get(), code.at(out, row * apart + v * code.lanes))
