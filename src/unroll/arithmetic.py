"""What compiled code computes with: products of matrices, tanh and the sigmoid, in vectors.

A product adds up its terms in one order, from the first to the last, each rounded once: a row's result depends on that
row alone, not on how many there are or which thread does it. The right-hand matrix is packed: cut into panels of a
few vectors' width, each of which lies in memory as it is read.

Shapes: R rows, K terms, N columns, Q panels, W columns of a panel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from unroll.machine_code import VECTORS, Code, Value, Variable, vector_bytes

ROWS = 8  # at once: with two vectors of each that is 16 sums in registers
BLOCK = 128  # terms of a transposed product: two threads that share a core share its cache
GROUP = 4  # panels of its left side at a time
LOG2_E = 1 / math.log(2)


def panel(dtype: torch.dtype) -> int:
    """The width of a panel."""
    return VECTORS * vector_bytes() // dtype.itemsize


def padded(n: int, dtype: torch.dtype) -> int:
    """n columns, rounded up to whole panels."""
    return -(-n // panel(dtype)) * panel(dtype)


def packed(W_KN: Tensor) -> Tensor:
    """Matrices [.., K, N] whose columns are whole panels, as products read them: [.., Q, K, W]."""
    panels: Tensor = W_KN.unflatten(-1, (-1, panel(W_KN.dtype)))
    return panels.transpose(-3, -2).contiguous()


def grown(x: Tensor, axis: int, n: int, value: float = 0.0) -> Tensor:
    """Padded along an axis, to n."""
    missing = n - x.shape[axis]
    return pad(x, (0, 0) * (x.dim() - 1 - axis) + (0, missing), value=value) if missing else x


def start(x_M: Tensor, m: int) -> int:
    """The address where a run's own begins."""
    return int(x_M.data_ptr()) + m * x_M.stride(0) * x_M.element_size() if x_M.numel() else 0


Begin = Callable[[Value], Value | None]  # where the sums of a row begin: an address; None is 0


def add_product(
    code: Code, out: Value, x: Value, W: Value, rows: Value, K: Value, N: Value, begin: Begin | None = None
) -> None:
    """out[R, N] = begin + x[R, K]·W, W packed; rows follow each other directly in both. By default it is added to."""
    with code.loop(N // code.panel) as q:
        column, W_q = q * code.panel, code.at(W, q * K * code.panel)

        def some(
            first: Value, count: int, fetch: Value | None = None, column: Value = column, W_q: Value = W_q
        ) -> None:
            rows = [first + n for n in range(count)]
            places = [code.at(out, row * N + column) for row in rows]
            begins = [code.at(at, column) if (at := begin(row)) else None for row in rows] if begin else places
            _tile(code, places, begins, [code.at(x, row * K) for row in rows], 1, W_q, K, fetch)

        # While the first tiles are multiplied, the next panel comes nearer, a quarter with each.
        fetching = (rows // ROWS).at_most_number(4)
        with code.loop(fetching) as n:
            some(n * ROWS, ROWS, code.at(W_q, (K + n * (K // 4)) * code.panel))
        with code.loop(rows // ROWS - fetching) as n:
            some((fetching + n) * ROWS, ROWS)
        whole = rows - rows % ROWS
        with code.loop((rows % ROWS) // 4):
            some(whole, 4)
        whole = rows - rows % 4
        with code.loop(rows % 4) as n:
            some(whole + n, 1)


class Terms(NamedTuple):
    """Which rows a transposed product adds up: so many neighbours, at so many steps that are so many rows apart."""

    rows: Value
    steps: Value
    apart: Value


def add_transposed_product(
    code: Code, out: Value, x: Value, y: Value, terms: Terms, K: Value, N: Value, first: Value, columns: Value
) -> None:
    """out[K, N] += x[R, K]ᵀ·y[R, N] for some of the columns; K is whole panels, R at most BLOCK.

    Both are copied first, a few panels of x and then each of y, so that they lie as they are read: rows that are a
    power of two apart would drive each other out of the cache.
    """
    x_copied, y_copied = (code.scratch(BLOCK * n * code.panel) for n in (GROUP, 1))
    R = terms.rows * terms.steps
    height = min(ROWS, code.panel)  # of a tile
    tall = max(height, code.lanes)

    def group(k: Value, panels: int) -> None:
        vectors = range(panels * VECTORS)
        _copy(code, code.at(x, k), K, terms, [code.at(x_copied, R * (v * code.lanes)) for v in vectors], 1)
        with code.loop(columns // code.panel) as q:
            column = first + q * code.panel
            _copy(
                code, code.at(y, column), N, terms, [code.at(y_copied, v * code.lanes) for v in range(VECTORS)], VECTORS
            )
            with code.loop(panels * code.panel // tall) as n:
                begin = code.at(x_copied, R * tall * n)
                for row in range(0, tall, height):
                    own = [divmod(row + above, code.lanes) for above in range(height)]
                    x_rows = [code.at(begin, R * (vector * code.lanes) + lane) for vector, lane in own]
                    places = [code.at(out, (k + n * tall + row + above) * N + column) for above in range(height)]
                    # The next tile's sums come nearer while this one's are added up.
                    for place in places:
                        for v in range(VECTORS):
                            code.fetch(code.at(place, N * height + v * code.lanes))
                    _tile(code, places, places, x_rows, code.lanes, y_copied, R)

    with code.loop(K // (GROUP * code.panel)) as n:
        group(n * (GROUP * code.panel), GROUP)
    with code.loop(K % (GROUP * code.panel) // code.panel) as n:
        group(K - K % (GROUP * code.panel) + n * code.panel, 1)


def _copy(code: Code, x: Value, N: Value, terms: Terms, out: Sequence[Value], vectors: int) -> None:
    """A vector of each row to each place, and the next row's so many vectors on."""
    with code.loop(terms.steps) as s, code.loop(terms.rows) as r:
        row, n = code.at(x, (s * terms.apart + r) * N), (s * terms.rows + r) * (vectors * code.lanes)
        for v, place in enumerate(out):
            code.store(code.load(code.at(row, v * code.lanes)), code.at(place, n))


def _tile(
    code: Code,
    out: Sequence[Value],  # rows of one panel
    begins: Sequence[Value | None],  # where the sums of each begin
    x_rows: Sequence[Value],  # where each begins
    apart: int,  # from one term to the next
    W: Value,
    K: Value,
    fetch: Value | None = None,
) -> None:
    """A few rows of one panel, their sums in registers."""
    places = [[code.at(row, v * code.lanes) for v in range(VECTORS)] for row in out]
    sums = []
    for begin in begins:
        vectors = [code.load(code.at(begin, v * code.lanes)) if begin else code.constant(0.0) for v in range(VECTORS)]
        sums.append([Variable(code, vector) for vector in vectors])
    with code.loop(K) as k:
        if fetch is not None:
            code.fetch(code.at(fetch, k * (code.panel // 4)))
        columns = [code.load(code.at(W, k * code.panel + v * code.lanes)) for v in range(VECTORS)]
        for x_row, row in zip(x_rows, sums, strict=True):
            factor = code.load_spread(code.at(x_row, k * apart))
            for sum_, column in zip(row, columns, strict=True):
                sum_.set(code.fma(factor, column, sum_.get()))
    for places_row, row in zip(places, sums, strict=True):
        for place, sum_ in zip(places_row, row, strict=True):
            code.store(sum_.get(), place)


def _power(code: Code, x: Value) -> tuple[Value, Value]:
    """eˣ as s·(1 + p), s a power of two: (s, p)."""
    mantissa, bias = (23, 127) if code.bits == 32 else (52, 1023)
    # To add and subtract 1.5·2^mantissa rounds to a whole number, which then stands in the sum's low bits.
    large = code.constant(1.5 * 2.0**mantissa)
    rounding = code.fma(x, code.constant(LOG2_E), large)
    whole = rounding - large
    # ln 2 in two pieces, the first so short that its multiples are exact.
    digits = 2.0 ** (12 if code.bits == 32 else 32)
    short = math.floor(math.log(2) * digits) / digits
    rest = code.fma(whole, code.constant(-short), x)
    rest = code.fma(whole, code.constant(-(math.log(2) - short)), rest)
    degree = 7 if code.bits == 32 else 13
    p = code.constant(1 / math.factorial(degree))
    for n in range(degree - 1, 0, -1):
        p = code.fma(p, rest, code.constant(1 / math.factorial(n)))
    exponent = code.shifted(code.bits_of(rounding) + bias, mantissa)
    return code.from_bits(exponent), p * rest


def exp(code: Code, x: Value) -> Value:
    """eˣ of numbers that are not above 0; exactly 0 where it is too small."""
    least = code.constant(-87.0 if code.bits == 32 else -708.0)
    s, p = _power(code, x.at_least(least))
    return code.fma(s, p, s).where_below(x, least, code.constant(0.0))


Fraction = tuple[Value, Value]  # numerator and denominator; the denominator is at least 1


def sigmoid(code: Code, x: Value) -> Fraction:
    """1 / (1 + e⁻ˣ). Beyond bounds where it is 0 but for 10⁻¹², e⁻ˣ grows no further: see `quotients`."""
    most = code.constant(28.0 if code.bits == 32 else 230.0)
    one, minus = code.constant(1.0), code.constant(0.0) - x
    s, p = _power(code, minus.at_most(most).at_least(code.constant(0.0) - most))
    return one, one + code.fma(s, p, s)


def tanh(code: Code, x: Value) -> Fraction:
    """(e²ˣ − 1) / (e²ˣ + 1); the numerator as s·p + (s − 1), which is exact for small x, where s is 1."""
    most = code.constant(20.0 if code.bits == 32 else 40.0)
    s, p = _power(code, (x + x).at_most(most).at_least(code.constant(0.0) - most))
    numerator = code.fma(s, p, s - 1.0)
    return numerator, numerator + 2.0


def quotients(code: Code, *fractions: Fraction) -> list[Value]:
    """The values of up to three fractions by one division, which costs as much as ten multiplications."""
    share = code.constant(1.0) / reduce(lambda a, b: a * b, (below for _, below in fractions))
    found = []
    for n, (above, _) in enumerate(fractions):
        others = [below for m, (_, below) in enumerate(fractions) if m != n]
        found.append(reduce(lambda a, b: a * b, others, above * share))
    return found
