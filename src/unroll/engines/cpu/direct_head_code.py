"""The two passes of a head without a dense layer, softmax directly on h, as machine code: see `builder.py`.

Shapes: N rows, R rows of a chunk, H hidden, V vocabulary, all padded to whole panels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from unroll.engines.cpu.builder import Code, Value
from unroll.engines.cpu.compiler import make
from unroll.engines.cpu.products import Begin, left_side, product
from unroll.engines.cpu.softmax_code import BACK, FORWARD, chunks, likelihoods, logit_gradients
from unroll.engines.cpu.transposed_products import Terms, add_transposed_product, clear, spaced


def direct_forward(
    code: Code,
    h: Value,  # [N, H]
    O: Value,  # [H, V], packed
    o: Value,  # −inf for symbols that cannot be predicted
    p: Value,  # [N, V]: the probabilities
    shift: Value,  # [N]: the largest logit
    total: Value,  # [N]: the sum of e^(logit − the largest logit)
    chosen: Value,  # [N]: the logit of the target
    targets: Value,  # [N]
    room: Value,  # [FORWARD, H]: see `left_side`
    first: Value,  # the first row to do
    rows: Value,  # how many rows to do
    H: Value,
    V: Value,
) -> None:
    """Take rows to their likelihoods, a chunk at a time."""

    def chunk(row: Value, R: Value) -> None:
        direct_logits(code, h, O, o, p, room, row, R, H, V)
        likelihoods(code, code.at(p, row * V), row, R, targets, shift, total, chosen, V)

    chunks(code, first, rows, FORWARD, chunk)


def direct_logits(
    code: Code,
    h: Value,  # [N, H]
    O: Value,  # [H, V], packed
    o: Value,
    out: Value,  # [N, V]
    room: Value,
    first: Value,  # the first row to do
    rows: Value,  # how many rows to do
    H: Value,
    V: Value,
) -> None:
    """Take rows through the layer."""
    h_R = left_side(code, code.at(h, first * H), rows, H, room)
    product(code, code.at(out, first * V), h_R, O, rows, H, V, Begin(o, code.number(0)))


def direct_backward(
    code: Code,
    h: Value,  # [N, H]
    O: Value,  # [V, H]: transposed, packed
    p: Value,  # [N, V]: the gradients of the logits overwrite them
    d_nll: Value,  # [N]
    targets: Value,  # [N]
    d_h: Value,  # [N, H]
    d_O: Value,  # [H, V], rows spaced
    d_o: Value,
    room: Value,  # [BACK, V]
    first: Value,  # the first row to do
    rows: Value,  # how many rows to do
    H: Value,
    V: Value,
) -> None:
    """Take rows back to h, a chunk at a time."""
    clear(code, d_O, H * spaced(V, code.lanes))
    clear(code, d_o, V)

    def chunk(row: Value, R: Value) -> None:
        h_R, p_R, d_h_R = (code.at(a, row * n) for a, n in ((h, H), (p, V), (d_h, H)))
        logit_gradients(code, p_R, row, R, targets, d_nll, d_o, V)
        add_transposed_product(code, d_O, h_R, p_R, Terms(R, code.number(1), R), H, V, code.number(0), V)
        product(code, d_h_R, left_side(code, p_R, R, V, room), O, R, V, H)

    chunks(code, first, rows, BACK, chunk)


@cache
def forward_for(bits: int, in_bf16: bool) -> Callable[..., None]:
    """The code, compiled when it is first used."""
    return make(direct_forward, bits, "aaaaaaaaannnn", in_bf16)


@cache
def backward_for(bits: int, in_bf16: bool) -> Callable[..., None]:
    """The code, compiled when it is first used."""
    return make(direct_backward, bits, "aaaaaaaaannnn", in_bf16)


@cache
def logits_for(bits: int) -> Callable[..., None]:
    """The code, compiled when it is first used."""
    return make(direct_logits, bits, "aaaaannnn")
