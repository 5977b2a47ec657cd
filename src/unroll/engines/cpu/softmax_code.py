"""What the passes of every head share, as machine code: from logits to likelihoods and back. See `builder.py`.

Shapes: N rows, R rows of a chunk, V vocabulary, padded to whole panels.
"""

from __future__ import annotations

from collections.abc import Callable

from unroll.engines.cpu.arithmetic import exp
from unroll.engines.cpu.builder import Code, Value, Variable
from unroll.engines.cpu.transposed_products import BLOCK

# Rows of a chunk, forward and backward. The dense activations of 64 rows (0.25 MB at D = 1024) stay in a core's cache
# with the weights. Backward, more rows pay: each chunk reads and writes the weights' gradients as well.
FORWARD, BACK = 64, BLOCK


def chunks(code: Code, first: Value, rows: Value, most: int, work: Callable[[Value, Value], None]) -> None:
    """Write work(first row, number of rows) for each chunk."""
    with code.loop((rows + (most - 1)) // most) as n:
        work(first + n * most, (rows - n * most).at_most_number(most))


def likelihoods(
    code: Code,
    p_R: Value,  # [R, V]: logits, which become probabilities
    row: Value,  # the chunk's first row
    R: Value,
    targets: Value,  # [N]
    shift: Value,  # [N]: the largest logit
    total: Value,  # [N]: the sum of e^(logit − the largest logit)
    chosen: Value,  # [N]: the logit of the target
    V: Value,
) -> None:
    """Take a chunk's logits to all that a likelihood is made of."""
    with code.loop(R) as r:
        n = row + r
        row_at = code.at(p_R, r * V)
        code.store_element(code.load_element(code.at(row_at, code.load_index(targets, n))), code.at(chosen, n))
        _softmax(code, row_at, code.at(shift, n), code.at(total, n), V)


def logit_gradients(
    code: Code,
    p_R: Value,  # [R, V]: probabilities, which become the gradients of logits
    row: Value,  # the chunk's first row
    R: Value,
    targets: Value,  # [N]
    d_nll: Value,  # [N]
    d_o: Value,  # [V]: the gradient of the bias, to which these are added
    V: Value,
) -> None:
    """Take a chunk's probabilities back to (softmax − one-hot) · d_nll."""
    with code.loop(R) as r:
        n = row + r
        row_at = code.at(p_R, r * V)
        weight = code.at(d_nll, n)
        _scale(code, row_at, code.load_spread(weight), V)
        address = code.at(row_at, code.load_index(targets, n))
        code.store_element(code.load_element(address) - code.load_element(weight), address)
        with code.loop(V // code.lanes) as v:
            total = code.at(d_o, v * code.lanes)
            code.store(code.load(total) + code.load(code.at(row_at, v * code.lanes)), total)


def _softmax(code: Code, row_at: Value, shift: Value, total: Value, V: Value) -> None:
    """Turn one row of logits into probabilities."""
    maximum = Variable(code, code.load(row_at))
    with code.loop(V // code.lanes) as v:
        value = code.load(code.at(row_at, v * code.lanes))
        maximum.set(maximum.get().at_least(value))
    largest = code.largest(maximum.get())
    code.store_element(largest, shift)
    sums = Variable(code, code.constant(0.0))
    with code.loop(V // code.lanes) as v:
        address = code.at(row_at, v * code.lanes)
        value = exp(code, code.load(address) - code.spread(largest))
        sums.set(sums.get() + value)
        code.store(value, address)
    summed = code.total(sums.get())
    code.store_element(summed, total)
    reciprocal = code.constant(1.0) / code.spread(summed)
    with code.loop(V // code.lanes) as v:
        address = code.at(row_at, v * code.lanes)
        code.store(code.load(address) * reciprocal, address)


def _scale(code: Code, row_at: Value, factor: Value, V: Value) -> None:
    with code.loop(V // code.lanes) as v:
        address = code.at(row_at, v * code.lanes)
        code.store(code.load(address) * factor, address)
