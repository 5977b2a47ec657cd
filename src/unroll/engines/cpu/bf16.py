"""Products of bfloat16 numbers. A bfloat16 is the upper half of a float32, rounded to the nearest.

A word holds two bfloat16 and takes the space of one float32. Some processors multiply vectors of words twice as fast as
float32. On others the words are split and multiplied in float32, to the same bits. AMX adds up in another order: see
`amx.py`. Sums are always float32.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from unroll.engines.cpu import amx
from unroll.engines.cpu.builder import Code, Value, shuffled, vector_bytes

UPPER, EXPONENT = 0xFFFF0000, 0x7F800000  # bits of a word, and of a float32
SIGN, QUIET = 0x8000, 0x40  # bits of a bfloat16; the second keeps a NaN from becoming an infinity


@cache
def rounds() -> bool:
    """Whether this processor has instructions for bfloat16."""
    from llvmlite import binding

    return vector_bytes() == 64 and bool(binding.get_host_cpu_features().get("avx512bf16"))


@cache
def multiplies() -> bool:
    """Whether those instructions multiply faster than float32 ones.

    AMD's do: one begins every cycle, as in float32, with twice the products. Intel starts one every second cycle, and
    four in float32.
    """
    from llvmlite import binding

    return rounds() and binding.get_host_cpu_name().startswith("znver")


def fast() -> bool:
    """Whether products of words are faster here than those of float32."""
    return multiplies() or amx.available()


def in_order(code: Code, first: Value, second: Value) -> Value:
    """Round two neighbouring vectors to a vector of words, each of two neighbours."""
    return _to_words(code, first, second, range(2 * code.lanes))


def paired(code: Code, low: Value, high: Value) -> Value:
    """Round two vectors to a vector of words, each of two numbers from the same lane."""
    return _to_words(code, low, high, (n for lane in range(code.lanes) for n in (lane, code.lanes + lane)))


def dot(code: Code, a: Value, b: Value, sums: Value) -> Value:
    """Add the products of a word's two numbers to each sum: first the upper, then the lower, each rounded once."""
    a = code.bits_of(a)
    b = code.bits_of(b)
    if multiplies():
        return code.intrinsic("llvm.x86.avx512bf16.dpbf16ps.512", code.vector, sums, a, b)
    a_low, a_high = _split(code, a)
    b_low, b_high = _split(code, b)
    return code.fma(a_low, b_low, code.fma(a_high, b_high, sums))


def _split(code: Code, words: Value) -> tuple[Value, Value]:
    """The lower and the upper numbers of words."""
    upper = Value(code, code.builder.and_(words.it, code.like(words, UPPER).it))
    return code.from_bits(code.shifted(words, 16)), code.from_bits(upper)


def _to_words(code: Code, low: Value, high: Value, order: Iterable[int]) -> Value:
    """Round both vectors and put the results in this order."""
    from llvmlite import ir

    builder = code.builder
    halves = ir.VectorType(ir.IntType(16), 2 * code.lanes)
    if rounds():
        rounded = code.intrinsic("llvm.x86.avx512bf16.cvtne2ps2bf16.512", halves, high, low).it
    else:
        # The upper halves of both vectors, in the order of memory.
        one_half = ir.VectorType(ir.IntType(16), code.lanes)
        upper = [builder.trunc(_rounded(code, x), one_half) for x in (low, high)]
        rounded = shuffled(builder, upper[0], upper[1], range(2 * code.lanes))
    return Value(code, builder.bitcast(shuffled(builder, rounded, rounded, order), code.vector))


def _rounded(code: Code, x: Value) -> Any:
    """Each number's upper half, rounded to the nearest, halfway to even, as a whole number.

    A NaN stays a NaN, and a subnormal number becomes 0.
    """
    builder = code.builder
    bits = code.bits_of(x)

    def constant(value: int) -> Any:
        return code.like(bits, value).it

    upper = builder.lshr(bits.it, constant(16))
    odd = builder.and_(upper, constant(1))
    rounded = builder.lshr(builder.add(bits.it, builder.add(odd, constant(0x7FFF))), constant(16))
    rounded = builder.select(
        builder.icmp_unsigned("==", builder.and_(bits.it, constant(EXPONENT)), constant(0)),
        builder.and_(upper, constant(SIGN)),
        rounded,
    )
    return builder.select(builder.fcmp_unordered("uno", x.it, x.it), builder.or_(upper, constant(QUIET)), rounded)
