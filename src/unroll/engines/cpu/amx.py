"""Products of words of bfloat16 (see `bf16.py`) by a processor's matrix unit, which Intel's have: AMX.

It has eight tiles of 16 rows of 64 bytes: 16 sums in float32, or 16 words. An instruction multiplies 16 rows of 16
words by as many columns, 16 times the work of one for vectors. Here four tiles are sums, of 32 rows and 32 columns: a
panel. Of rows that are not there results are thrown away, so that a row's bits never depend on how many there are. The
unit adds up the products of a tile's even and odd places apart, and then both to the sum.

The left side of a product lies tile by tile, those of 16 rows one after the other: rows that are a power of two apart
would drive each other out of the cache.

Shapes: R rows, K terms (words), N columns.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from unroll.engines.cpu.builder import Code, Value, shuffled

EDGE = 16  # of a tile: rows, and columns of words or of sums
ROWS = 2 * EDGE  # at once
TILE = EDGE * EDGE  # elements
BYTES = 64  # of a tile's row
SUMS = ((0, 1), (2, 3))  # tiles, by rows and columns
LEFT, RIGHT = (4, 5), (6, 7)
ASK, TILES = 0x1023, 18  # Linux: a process asks for the memory of its tiles before it uses them


@cache
def available() -> bool:
    """Whether there is one and this process may use it, for which the system is asked once."""
    from llvmlite import binding

    has = binding.get_host_cpu_features()
    if not (has.get("amx-tile") and has.get("amx-bf16") and has.get("avx512bf16") and sys.platform == "linux"):
        return False
    system = ctypes.CDLL(None, use_errno=True)
    return bool(system.syscall(158, ASK, TILES) == 0)  # arch_prctl


@contextmanager
def configured(code: Code) -> Iterator[None]:
    """Within this block tiles are there, each of its full size."""
    from llvmlite import ir

    assert (code.bits, code.lanes, code.panel) == (32, EDGE, ROWS)
    byte, small = ir.IntType(8), ir.IntType(64)
    palette = [1] + [0] * 15 + [BYTES, 0] * 8 + [0] * 16 + [EDGE] * 8 + [0] * 8
    words = [int.from_bytes(bytes(palette[n : n + 8]), "little") for n in range(0, len(palette), 8)]
    with code.builder.goto_entry_block():
        place = code.builder.alloca(small, len(words))
    for n, word in enumerate(words):
        goal = code.builder.gep(place, [ir.Constant(small, 8 * n)], source_etype=byte)
        code.builder.store(ir.Constant(small, word), goal)
    code.intrinsic("llvm.x86.ldtilecfg", ir.VoidType(), Value(code, place))
    yield
    code.intrinsic("llvm.x86.tilerelease", ir.VoidType())


def _do(code: Code, name: str, *tiles: int, at: Value | None = None, apart: Value | int = 0) -> None:
    """An instruction on tiles, perhaps with memory whose rows are so many elements apart."""
    from llvmlite import ir

    values = [Value(code, ir.Constant(ir.IntType(8), tile)) for tile in tiles]
    if at is not None:
        apart = code.number(apart) if isinstance(apart, int) else apart
        values += [at, apart * (code.bits // 8)]
    code.intrinsic(f"llvm.x86.{name}", ir.VoidType(), *values)


def _quarters(code: Code, place: Value, apart: Value | int) -> Iterator[tuple[int, Value]]:
    """The tiles of sums, and where each begins in a matrix whose rows are so many elements apart."""
    for i, row in enumerate(SUMS):
        for j, tile in enumerate(row):
            below = apart * (i * EDGE)
            yield tile, code.at(code.at(place, below), j * EDGE)


def _load(code: Code, place: Value, apart: Value | int) -> None:
    for tile, quarter in _quarters(code, place, apart):
        _do(code, "tileloadd64", tile, at=quarter, apart=apart)


def _store(code: Code, place: Value, apart: Value | int) -> None:
    for tile, quarter in _quarters(code, place, apart):
        _do(code, "tilestored64", tile, at=quarter, apart=apart)


def _add_products(code: Code, x: Value, W: Value, K: Value) -> None:
    """To the sums, x[32, K]·W[K, 32]; W's rows follow each other, K is whole tiles."""
    with code.loop(K // EDGE) as k:
        for n, tile in enumerate(LEFT):
            _do(code, "tileloadd64", tile, at=code.at(x, K * (n * EDGE) + k * TILE), apart=EDGE)
        for n, tile in enumerate(RIGHT):
            _do(code, "tileloadd64", tile, at=code.at(W, k * (EDGE * code.panel) + n * EDGE), apart=code.panel)
        for left, row in zip(LEFT, SUMS, strict=True):
            for right, tile in zip(RIGHT, row, strict=True):
                _do(code, "tdpbf16ps", tile, left, right)


def block(
    code: Code,
    out: Value,
    apart: Value,  # its rows
    x: Value,
    W: Value,  # a panel
    K: Value,
    rows: Value,  # at most 32
    begin: tuple[Value, Value] | None,  # where the sums begin, and how far their rows are apart
) -> None:
    """out = begin + x·W."""
    room, wide = code.scratch(ROWS * code.panel), code.panel
    whole = rows // ROWS  # 1 or 0
    partly = code.number(1) - whole

    def copy(place: Value, between: Value | int, goal: Value, apart: Value | int) -> None:
        with code.loop(rows) as r:
            for v in range(0, wide, code.lanes):
                code.store(code.load(code.at(place, r * between + v)), code.at(goal, r * apart + v))

    if begin is None:
        for tile in (tile for row in SUMS for tile in row):
            _do(code, "tilezero", tile)
    else:
        with code.loop(whole):
            _load(code, *begin)
        with code.loop(partly):
            copy(*begin, room, wide)
            _load(code, room, wide)
    _add_products(code, x, W, K)
    with code.loop(whole):
        _store(code, out, apart)
    with code.loop(partly):
        _store(code, room, wide)
        copy(room, wide, out, apart)


def add_block(code: Code, out: Value, apart: Value, x: Value, y: Value, K: Value) -> None:
    """out[32, 32] += x[32, K]·y[K, 32]."""
    _load(code, out, apart)
    _add_products(code, x, y, K)
    _store(code, out, apart)


def place(row: Value, k: Value, K: Value) -> Value:
    """Where an element of a left side stands."""
    return row // EDGE * EDGE * K + k // EDGE * TILE + row % EDGE * EDGE + k % EDGE


def transpose(code: Code, x: Value, out: Value) -> None:
    """A tile, its columns as rows."""

    lanes, builder = code.lanes, code.builder
    rows: list[Any] = [code.load(code.at(x, n * lanes)).it for n in range(lanes)]
    half = lanes // 2
    while half:
        # Of two rows that are `half` apart, the blocks of `half` columns off the diagonal change places.
        upper = [n if not n & half else lanes + n - half for n in range(lanes)]
        lower = [n + half if not n & half else lanes + n for n in range(lanes)]
        for n in (n for n in range(lanes) if not n & half):
            a, b = rows[n], rows[n + half]
            rows[n], rows[n + half] = (shuffled(builder, a, b, places) for places in (upper, lower))
        half //= 2
    for n, row in enumerate(rows):
        code.store(Value(code, row), code.at(out, n * lanes))
