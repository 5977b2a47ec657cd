"""Products of numbers in half the bits: bfloat16, which is the upper half of a float32, rounded to the nearest.

A word is two of them, and stands where a float32 would. Some processors have vectors of such words, which they
multiply at twice the pace of float32; on others they are taken apart and multiplied in float32, to the same bits; or
there is a matrix unit, which adds up in another order: see `amx.py`. Sums are float32 always.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from unroll.engines.cpu import amx
from unroll.engines.cpu.builder import Code, Value, shuffled, vector_bytes

UPPER, EXPONENT = 0xFFFF0000, 0x7F800000  # bits of a word, of a float32
SIGN, QUIET = 0x8000, 0x40  # of a bfloat16; the second makes sure that what is not a number is no infinity


@cache
def rounds() -> bool:
    """Whether this processor has instructions for bfloat16."""
    from llvmlite import binding

    return vector_bytes() == 64 and bool(binding.get_host_cpu_features().get("avx512bf16"))


@cache
def multiplies() -> bool:
    """Whether they are the faster way to multiply. AMD's are: one begins every cycle, as in float32, with twice the
    products. Of Intel's one begins every second cycle, and four in float32."""
    from llvmlite import binding

    return rounds() and binding.get_host_cpu_name().startswith("znver")


def fast() -> bool:
    """Whether products of words are faster here than those of float32."""
    return multiplies() or amx.available()


def in_order(code: Code, first: Value, second: Value) -> Value:
    """Two neighbouring vectors of numbers as a vector of words, each of two neighbours."""
    return _joined(code, first, second, range(2 * code.lanes))


def paired(code: Code, low: Value, high: Value) -> Value:
    """Two vectors of numbers as a vector of words, each of two that stand in the same place."""
    return _joined(code, low, high, (n for lane in range(code.lanes) for n in (lane, code.lanes + lane)))


def dot(code: Code, a: Value, b: Value, sums: Value) -> Value:
    """Add to each sum the products of a word's two numbers: of the upper, then of the lower, each rounded once."""
    a, b = code.bits_of(a), code.bits_of(b)
    if multiplies():
        return code.intrinsic("llvm.x86.avx512bf16.dpbf16ps.512", code.vector, sums, a, b)
    (a_low, a_high), (b_low, b_high) = _apart(code, a), _apart(code, b)
    return code.fma(a_low, b_low, code.fma(a_high, b_high, sums))


def _apart(code: Code, words: Value) -> tuple[Value, Value]:
    """The lower and the upper numbers of words."""
    upper = Value(code, code.builder.and_(words.it, code.like(words, UPPER).it))
    return code.from_bits(code.shifted(words, 16)), code.from_bits(upper)


def _joined(code: Code, low: Value, high: Value, places: Iterable[int]) -> Value:
    """The halves of both, in this order."""
    from llvmlite import ir

    builder, halves = code.builder, ir.VectorType(ir.IntType(16), 2 * code.lanes)
    if rounds():
        both = code.intrinsic("llvm.x86.avx512bf16.cvtne2ps2bf16.512", halves, high, low).it
    else:
        # The upper halves of the words of both vectors, as they lie in memory.
        few = ir.VectorType(ir.IntType(16), code.lanes)
        upper = [builder.trunc(_rounded(code, x), few) for x in (low, high)]
        both = shuffled(code.builder, upper[0], upper[1], range(2 * code.lanes))
    return Value(code, builder.bitcast(shuffled(code.builder, both, both, places), code.vector))


def _rounded(code: Code, x: Value) -> Any:
    """Each number's upper half, rounded, as a whole number; halfway, to the even one.

    What is not a number stays so, and what is too small for a whole fraction is 0.
    """
    builder, bits = code.builder, code.bits_of(x)

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
