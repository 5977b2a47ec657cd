"""The exponential, tanh and the sigmoid of vectors, for compiled code."""

from __future__ import annotations

import math
from functools import cache, reduce

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from numpy.typing import NDArray

from unroll.engines.cpu.builder import Code, Value

LOG2_E = 1 / math.log(2)


@cache
def _polynomial(terms: int) -> tuple[float, ...]:
    """(eʳ − 1) / r for |r| ≤ ln 2 / 2, by Chebyshev's points: as exact as Taylor's with two terms more."""
    bound = math.log(2) / 2

    def quotient(r: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.divide(np.expm1(r), r, out=np.ones_like(r), where=r != 0)

    interpolant = Chebyshev.interpolate(quotient, terms - 1, domain=(-bound, bound))
    return tuple(float(c) for c in interpolant.convert(kind=Polynomial).coef)


def _power(code: Code, x: Value, factor: int = 1) -> tuple[Value, Value]:
    """e^(factor·x) as s·(1 + p), s a power of two: (s, p). The factor costs nothing: it is in the constants."""
    mantissa, bias = (23, 127) if code.bits == 32 else (52, 1023)
    # Adding and subtracting 1.5·2^mantissa rounds to a whole number, which then stands in the sum's low bits. The
    # bias of an exponent is added as well, so that these bits, shifted, are s.
    large = code.constant(1.5 * 2.0**mantissa + bias)
    rounding = code.fma(x, code.constant(factor * LOG2_E), large)
    whole = rounding - large
    # ln 2 in two pieces; the first is short enough for its multiples to be exact.
    digits = 2.0 ** (12 if code.bits == 32 else 32)
    short = math.floor(math.log(2) * digits) / digits
    rest = code.fma(whole, code.constant(-short / factor), x)
    rest = code.fma(whole, code.constant(-(math.log(2) - short) / factor), rest)
    *lower, highest = (c * factor ** (n + 1) for n, c in enumerate(_polynomial(6 if code.bits == 32 else 12)))
    p = code.constant(highest)
    for c in reversed(lower):
        p = code.fma(p, rest, code.constant(c))
    return code.from_bits(code.shifted(code.bits_of(rounding), mantissa)), p * rest


def exp(code: Code, x: Value) -> Value:
    """eˣ of numbers that are not above 0; exactly 0 if x is too small."""
    least = code.constant(-87.0 if code.bits == 32 else -708.0)
    s, p = _power(code, x.at_least(least))
    return code.fma(s, p, s).where_below(x, least, code.constant(0.0))


Fraction = tuple[Value, Value]  # numerator and denominator; the denominator is at least 1


def sigmoid(code: Code, x: Value) -> Fraction:
    """1 / (1 + e⁻ˣ). x is bounded where the result is within 10⁻¹² of its limit: `quotients` never overflows."""
    most = code.constant(28.0 if code.bits == 32 else 230.0)
    one = code.constant(1.0)
    s, p = _power(code, x.at_most(most).at_least(code.constant(0.0) - most), -1)
    return one, one + code.fma(s, p, s)


def tanh(code: Code, x: Value) -> Fraction:
    """(e²ˣ − 1) / (e²ˣ + 1); the numerator as s·p + (s − 1), which is exact for small x, where s is 1."""
    most = code.constant(10.0 if code.bits == 32 else 20.0)
    s, p = _power(code, x.at_most(most).at_least(code.constant(0.0) - most), 2)
    numerator = code.fma(s, p, s - 1.0)
    return numerator, numerator + 2.0


def quotients(code: Code, *fractions: Fraction) -> list[Value]:
    """The values of up to three fractions by one division, which costs as much as ten multiplications."""
    reciprocal = code.constant(1.0) / reduce(lambda a, b: a * b, (below for _, below in fractions))
    values = []
    for n, (above, _) in enumerate(fractions):
        others = [below for m, (_, below) in enumerate(fractions) if m != n]
        values.append(reduce(lambda a, b: a * b, others, above * reciprocal))
    return values
