"""Dropout on a CPU, compiled: the factors that `base/randomness.py` defines for each element, many at a time.

One word of Philox-4x32-10 makes an element's factor 0 or 1 / (1 − rate). A block of the counter gives the words of four
elements.

Shapes: M runs, N rows, H columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from torch import Tensor

from unroll.base import randomness
from unroll.base.randomness import KEY_STEPS, MULTIPLIERS, ROUNDS, WORD
from unroll.engines.cpu import parallel_calls, workers
from unroll.engines.cpu.buffer_pool import take
from unroll.engines.cpu.builder import Code, Value, shuffled, vector_bytes
from unroll.engines.cpu.compiler import make
from unroll.engines.cpu.packing import start
from unroll.model.dropout import Dropout


def factors(dropout: Dropout, purpose: str, N: int, H: int) -> Tensor:
    """The dropout factor of each element of [M, N, H]."""
    M = len(dropout.words_M)
    dtype = dropout.rates_M.dtype
    together = 4 * _lanes()
    groups = -(-N * H // together)
    out = take((M, groups * together), dtype)
    write = _factors_for(8 * dtype.itemsize)
    bounds = [math.ceil(rate * 2.0**32) for rate in dropout.rates_M.double().tolist()]
    scales_M = 1 / (1 - dropout.rates_M)
    stretches = workers.divided(groups, workers.count())
    word = randomness.purpose_word(purpose)

    batch = dropout.batch.data_ptr()
    runs = []
    for m, seed in enumerate(dropout.words_M):
        runs.append((start(out, m), (batch, word, *seed, bounds[m], start(scales_M, m))))
    parallel_calls.do(
        write,
        [(goal, stretch.start, stretch.stop - stretch.start, *rest) for goal, rest in runs for stretch in stretches],
    )
    return out[:, : N * H].view(M, N, H)


def _lanes() -> int:
    return vector_bytes() // 8


def _write(
    code: Code,
    out: Value,  # one run's factors
    first: Value,  # the first group to do; a group is a vector of blocks
    groups: Value,  # how many groups to do
    batch: Value,  # the address of the batch's number
    purpose: Value,
    seed_low: Value,
    seed_high: Value,
    bound: Value,  # words below it drop their element
    scale: Value,  # the address of the factor of kept elements
) -> None:
    """Write factors. The counter is (block, batch, purpose, 0) and the key the seed, as in `randomness.philox`."""
    from llvmlite import ir

    builder = code.builder
    lanes = _lanes()
    whole = ir.VectorType(ir.IntType(64), lanes)
    wide = ir.VectorType(code.element, lanes)

    def every(number: Any, kind: Any = whole) -> Any:
        """One number in every lane."""
        if isinstance(number, int):
            return ir.Constant(kind, [number] * lanes)
        undefined = ir.Constant(kind, ir.Undefined)
        zero = ir.Constant(ir.IntType(32), 0)
        return shuffled(builder, builder.insert_element(undefined, number, zero), undefined, [0] * lanes)

    def word(value: Any) -> Any:
        return builder.and_(value, every(WORD))

    keys = [(word(every(seed_low.it)), word(every(seed_high.it)))]
    for _ in range(ROUNDS - 1):
        keys.append(tuple(word(builder.add(k, every(s))) for k, s in zip(keys[-1], KEY_STEPS, strict=True)))
    others = [word(every(value.it)) for value in (code.load_index(batch, code.number(0)), purpose)]
    kept = every(code.load_element(scale).it, wide)
    dropped = ir.Constant(wide, [0.0] * lanes)
    least = every(bound.it)
    order = ir.Constant(whole, list(range(lanes)))
    with code.loop(groups) as n:
        blocks = builder.add(every(((first + n) * lanes).it), order)
        c0 = word(blocks)
        c1, c2 = others
        c3 = every(0)
        for k0, k1 in keys:
            p0, p1 = (builder.mul(c, every(m)) for c, m in zip((c0, c2), MULTIPLIERS, strict=True))
            high0, high1 = (builder.lshr(p, every(32)) for p in (p0, p1))
            c0, c2 = (builder.xor(builder.xor(h, c), k) for h, c, k in ((high1, c1, k0), (high0, c3, k1)))
            c1 = word(p1)
            c3 = word(p0)
        factors = [builder.select(builder.icmp_unsigned("<", c, least), dropped, kept) for c in (c0, c1, c2, c3)]
        # The four words of a block become neighbours; here the first vector holds all first words, and so on.
        halves = [shuffled(builder, factors[n], factors[n + 1], range(2 * lanes)) for n in (0, 2)]
        order = [lane + lanes * word_of_block for lane in range(lanes) for word_of_block in range(4)]
        neighbours = shuffled(builder, halves[0], halves[1], order)
        goal = code.at(out, (first + n) * (4 * lanes))
        builder.store(neighbours, goal.it, align=code.bits // 8)


@cache
def _factors_for(bits: int) -> Callable[..., None]:
    """The code, compiled when it is first used."""
    return make(_write, bits, "annannnna")
