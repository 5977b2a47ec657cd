"""Products of bfloat16 words (see `bf16.py`) by AMX, the matrix unit of Intel's processors.

AMX has eight tiles of 16 rows of 64 bytes: 16 float32 sums, or 16 words. One instruction multiplies 16 rows of 16 words
by 16 columns, 16 times the work of a vector instruction. Here four tiles hold the sums of 32 rows and 32 columns, the
width of a panel. Results of missing rows are thrown away, so a row's bits never depend on the number of rows. AMX adds
up the products of a tile's even and odd words separately, and then adds both to the sum.

The left side of a product lies in memory tile by tile, 16 rows after 16 rows: rows that are a power of two apart would
drive each other out of the cache.

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

EDGE = 16  # rows of a tile, and its columns of words or of sums
ROWS = 2 * EDGE  # rows of a block
TILE = EDGE * EDGE  # elements of a tile
BYTES = 64  # bytes of a tile's row
SUMS = ((0, 1), (2, 3))  # the tiles of sums, by rows and columns
LEFT, RIGHT = (4, 5), (6, 7)  # the tiles of a product's two sides
ASK, TILES = 0x1023, 18  # Linux: a process asks for the memory of its tiles before it uses them


@cache
def available() -> bool:
    """Whether the processor has AMX and this process may use it; the system is asked once."""
    from llvmlite import binding

    has = binding.get_host_cpu_features()
    if not (has.get("amx-tile") and has.get("amx-bf16") and has.get("avx512bf16") and sys.platform == "linux"):
        return False
    system = ctypes.CDLL(None, use_errno=True)
    return bool(system.syscall(158, ASK, TILES) == 0)  # arch_prctl


@contextmanager
def configured(code: Code) -> Iterator[None]:
    """Within this block the tiles are configured, each at its full size."""
    from llvmlite import ir

    assert (code.bits, code.lanes, code.panel) == (32, EDGE, ROWS)
    byte = ir.IntType(8)
    small = ir.IntType(64)
    palette = [1] + [0] * 15 + [BYTES, 0] * 8 + [0] * 16 + [EDGE] * 8 + [0] * 8
    words = [int.from_bytes(bytes(palette[n : n + 8]), "little") for n in range(0, len(palette), 8)]
    with code.builder.goto_entry_block():
        config = code.builder.alloca(small, len(words))
    for n, word in enumerate(words):
        word_at = code.builder.gep(config, [ir.Constant(small, 8 * n)], source_etype=byte)
        code.builder.store(ir.Constant(small, word), word_at)
    code.intrinsic("llvm.x86.ldtilecfg", ir.VoidType(), Value(code, config))
    yield
    code.intrinsic("llvm.x86.tilerelease", ir.VoidType())


def _instruction(code: Code, name: str, *tiles: int, at: Value | None = None, apart: Value | int = 0) -> None:
    """Write an instruction on tiles, perhaps with memory whose rows are `apart` elements apart."""
    from llvmlite import ir

    values = [Value(code, ir.Constant(ir.IntType(8), tile)) for tile in tiles]
    if at is not None:
        apart = code.number(apart) if isinstance(apart, int) else apart
        values += [at, apart * (code.bits // 8)]
    code.intrinsic(f"llvm.x86.{name}", ir.VoidType(), *values)


def _quarters(code: Code, matrix: Value, apart: Value | int) -> Iterator[tuple[int, Value]]:
    """The tiles of sums, and each one's address in a matrix whose rows are `apart` elements apart."""
    for i, row in enumerate(SUMS):
        for j, tile in enumerate(row):
            below = apart * (i * EDGE)
            yield tile, code.at(code.at(matrix, below), j * EDGE)


def _load(code: Code, matrix: Value, apart: Value | int) -> None:
    for tile, quarter in _quarters(code, matrix, apart):
        _instruction(code, "tileloadd64", tile, at=quarter, apart=apart)


def _store(code: Code, matrix: Value, apart: Value | int) -> None:
    for tile, quarter in _quarters(code, matrix, apart):
        _instruction(code, "tilestored64", tile, at=quarter, apart=apart)


def _add_products(code: Code, x: Value, W: Value, K: Value) -> None:
    """Add x[32, K]·W[K, 32] to the sums; W's rows follow each other, and K is whole tiles."""
    with code.loop(K // EDGE) as k:
        for n, tile in enumerate(LEFT):
            _instruction(code, "tileloadd64", tile, at=code.at(x, K * (n * EDGE) + k * TILE), apart=EDGE)
        for n, tile in enumerate(RIGHT):
            _instruction(code, "tileloadd64", tile, at=code.at(W, k * (EDGE * code.panel) + n * EDGE), apart=code.panel)
        for left, row in zip(LEFT, SUMS, strict=True):
            for right, tile in zip(RIGHT, row, strict=True):
                _instruction(code, "tdpbf16ps", tile, left, right)


def block(
    code: Code,
    out: Value,
    apart: Value,  # how far the rows of out are apart
    x: Value,
    W: Value,  # a panel
    K: Value,
    rows: Value,  # at most 32
    begin: tuple[Value, Value] | None,  # the address of the initial sums, and how far their rows are apart
) -> None:
    """Compute out = begin + x·W."""
    scratch = code.scratch(ROWS * code.panel)
    wide = code.panel
    whole = rows // ROWS  # 1 or 0
    partly = code.number(1) - whole

    def copy(source: Value, source_apart: Value | int, target: Value, target_apart: Value | int) -> None:
        with code.loop(rows) as r:
            for v in range(0, wide, code.lanes):
                code.store(code.load(code.at(source, r * source_apart + v)), code.at(target, r * target_apart + v))

    if begin is None:
        for tile in (tile for row in SUMS for tile in row):
            _instruction(code, "tilezero", tile)
    else:
        with code.loop(whole):
            _load(code, *begin)
        with code.loop(partly):
            copy(*begin, scratch, wide)
            _load(code, scratch, wide)
    _add_products(code, x, W, K)
    with code.loop(whole):
        _store(code, out, apart)
    with code.loop(partly):
        _store(code, scratch, wide)
        copy(scratch, wide, out, apart)


def add_block(code: Code, out: Value, apart: Value, x: Value, y: Value, K: Value) -> None:
    """Compute out[32, 32] += x[32, K]·y[K, 32]."""
    _load(code, out, apart)
    _add_products(code, x, y, K)
    _store(code, out, apart)


def left_index(row: Value, k: Value, K: Value) -> Value:
    """The index of an element of a left side in memory."""
    return row // EDGE * EDGE * K + k // EDGE * TILE + row % EDGE * EDGE + k % EDGE


def transpose(code: Code, x: Value, out: Value) -> None:
    """Write a tile's columns as rows."""

    lanes, builder = code.lanes, code.builder
    rows: list[Any] = [code.load(code.at(x, n * lanes)).it for n in range(lanes)]
    half = lanes // 2
    while half:
        # Two rows that are `half` apart exchange their blocks of `half` columns off the diagonal.
        upper = [n if not n & half else lanes + n - half for n in range(lanes)]
        lower = [n + half if not n & half else lanes + n for n in range(lanes)]
        for n in (n for n in range(lanes) if not n & half):
            a, b = rows[n], rows[n + half]
            rows[n], rows[n + half] = (shuffled(builder, a, b, lanes_in_order) for lanes_in_order in (upper, lower))
        half //= 2
    for n, row in enumerate(rows):
        code.store(Value(code, row), code.at(out, n * lanes))
