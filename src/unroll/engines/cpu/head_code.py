"""The head's two passes as machine code: see `builder.py`.

Shapes: N rows, R rows of a chunk, H hidden, D dense, V vocabulary, all padded to whole panels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from unroll.engines.cpu.builder import Code, Value
from unroll.engines.cpu.compiler import make
from unroll.engines.cpu.products import Begin, left_side, product
from unroll.engines.cpu.softmax_code import BACK, FORWARD, chunks, likelihoods, logit_gradients
from unroll.engines.cpu.transposed_products import Terms, add_transposed_product, clear, spaced


def forward(
    code: Code,
    h: Value,  # [N, H]
    W: Value,  # [H, D], packed
    b: Value,
    O: Value,  # [D, V], packed
    o: Value,  # −inf for symbols that cannot be predicted
    x: Value,  # [N, D]: the dense activations
    p: Value,  # [N, V]: the probabilities
    shift: Value,  # [N]: the largest logit
    total: Value,  # [N]: the sum of e^(logit − the largest logit)
    chosen: Value,  # [N]: the logit of the target
    targets: Value,  # [N]
    factors: Value,  # [N, D]: dropout's, where it `drops`
    room: Value,  # [FORWARD, H or D]: see `left_side`
    first: Value,  # the first row to do
    rows: Value,  # how many rows to do
    H: Value,
    D: Value,
    V: Value,
    *,
    leak: float,
    drops: bool,
) -> None:
    """Take rows through all layers, a chunk at a time."""

    def chunk(row: Value, R: Value) -> None:
        p_R = code.at(p, row * V)
        logits(code, h, W, b, O, o, x, p, room, row, R, H, D, V, leak=leak, factors=factors if drops else None)
        likelihoods(code, p_R, row, R, targets, shift, total, chosen, V)

    chunks(code, first, rows, FORWARD, chunk)


def logits(
    code: Code,
    h: Value,  # [N, H]
    W: Value,  # [H, D], packed
    b: Value,
    O: Value,  # [D, V], packed
    o: Value,
    x: Value,  # [N, D]: the dense activations
    out: Value,  # [N, V]
    room: Value,
    first: Value,  # the first row to do
    rows: Value,  # how many rows to do
    H: Value,
    D: Value,
    V: Value,
    *,
    leak: float,
    factors: Value | None = None,  # [N, D]: dropout's
) -> None:
    """Take rows through both layers."""
    x_R = code.at(x, first * D)
    out_R = code.at(out, first * V)
    h_R = left_side(code, code.at(h, first * H), rows, H, room)
    product(code, x_R, h_R, W, rows, H, D, Begin(b, code.number(0)))
    with code.loop(rows * D // code.lanes) as v:
        address = code.at(x_R, v * code.lanes)
        value = code.load(address)
        value = value.where_below(value, code.constant(0.0), value * leak)
        if factors is not None:
            value = value * code.load(code.at(factors, first * D + v * code.lanes))
        code.store(value, address)
    product(code, out_R, left_side(code, x_R, rows, D, room), O, rows, D, V, Begin(o, code.number(0)))


def backward(
    code: Code,
    h: Value,  # [N, H]
    W: Value,  # [D, H]: transposed, packed
    O: Value,  # [V, D]: transposed, packed
    x: Value,  # [N, D]
    p: Value,  # [N, V]: the gradients of the logits overwrite them
    d_nll: Value,  # [N]
    targets: Value,  # [N]
    factors: Value,  # [N, D]: dropout's, where it `drops`
    d_x: Value,  # [BACK, D]: scratch
    d_h: Value,  # [N, H]
    d_W: Value,  # [H, D], rows spaced
    d_b: Value,
    d_O: Value,  # [D, V], rows spaced
    d_o: Value,
    room: Value,  # [BACK, V or D]
    first: Value,  # the first row to do
    rows: Value,  # how many rows to do
    H: Value,
    D: Value,
    V: Value,
    *,
    leak: float,
    drops: bool,
) -> None:
    """Take rows back through all layers, a chunk at a time."""
    none = code.number(0)
    D_apart, V_apart = (spaced(n, code.lanes) for n in (D, V))
    for sums, elements in ((d_W, H * D_apart), (d_b, D), (d_O, D * V_apart), (d_o, V)):
        clear(code, sums, elements)

    def chunk(row: Value, R: Value) -> None:
        h_R, x_R, p_R, d_h_R = (code.at(a, row * n) for a, n in ((h, H), (x, D), (p, V), (d_h, H)))
        logit_gradients(code, p_R, row, R, targets, d_nll, d_o, V)
        terms = Terms(R, code.number(1), R)
        add_transposed_product(code, d_O, x_R, p_R, terms, D, V, none, V)
        product(code, d_x, left_side(code, p_R, R, V, room), O, R, V, D)
        with code.loop(R) as r, code.loop(D // code.lanes) as v:
            j = v * code.lanes
            address = code.at(d_x, r * D + v * code.lanes)
            value = code.load(address)
            total = code.at(d_b, j)
            if drops:
                value = value * code.load(code.at(factors, (row + r) * D + j))
            value = value.where_below(code.load(code.at(x_R, r * D + j)), code.constant(0.0), value * leak)
            code.store(value, address)
            code.store(code.load(total) + value, total)
        add_transposed_product(code, d_W, h_R, d_x, terms, H, D, none, D)
        product(code, d_h_R, left_side(code, d_x, R, D, room), W, R, D, H)

    chunks(code, first, rows, BACK, chunk)


@cache
def forward_for(bits: int, leak: float, drops: bool, in_bf16: bool) -> Callable[..., None]:
    """The code, compiled when it is first used."""
    return make(forward, bits, "aaaaaaaaaaaaannnnn", in_bf16, leak=leak, drops=drops)


@cache
def backward_for(bits: int, leak: float, drops: bool, in_bf16: bool) -> Callable[..., None]:
    """The code, compiled when it is first used."""
    return make(backward, bits, "aaaaaaaaaaaaaaannnnn", in_bf16, leak=leak, drops=drops)


@cache
def logits_for(bits: int, leak: float) -> Callable[..., None]:
    """The code, compiled when it is first used."""
    return make(logits, bits, "aaaaaaaannnnn", leak=leak)
