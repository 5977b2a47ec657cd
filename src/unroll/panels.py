"""Matrices as compiled products read them (see `arithmetic.py`): padded to whole panels, and packed.

A panel is a few vectors wide. Packed, each panel lies in memory as it is read, one row after the other.

Shapes: M runs, K terms, N columns, Q panels, W columns of a panel.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import pad

from unroll import parts, spare
from unroll.machine_code import VECTORS, Code, Value, vector_bytes
from unroll.making_code import make

ALONE = 1 << 17  # elements that one thread has packed before another is awake


def panel(dtype: torch.dtype) -> int:
    """The width of a panel."""
    return VECTORS * vector_bytes() // dtype.itemsize


def padded(n: int, dtype: torch.dtype) -> int:
    """n columns, rounded up to whole panels."""
    return -(-n // panel(dtype)) * panel(dtype)


def grown(x: Tensor, axis: int, n: int, value: float = 0.0) -> Tensor:
    """Padded along an axis, to n."""
    missing = n - x.shape[axis]
    return pad(x, (0, 0) * (x.dim() - 1 - axis) + (0, missing), value=value) if missing else x


def start(x_M: Tensor, m: int) -> int:
    """The address where a run's own begins."""
    return int(x_M.data_ptr()) + m * x_M.stride(0) * x_M.element_size() if x_M.numel() else 0


def packed(W_MKN: Tensor, transposed: bool = False) -> Tensor:
    """Matrices [M, K, N] as products read them, [M, Q, K, W]; their transposes as [M, Q, N, W].

    What becomes the columns must be whole panels, transposed also what becomes the rows.
    """
    W_MKN = W_MKN.contiguous()
    M, K, N = W_MKN.shape
    rows, columns = (N, K) if transposed else (K, N)
    width = panel(W_MKN.dtype)
    out = spare.take((M, columns // width, rows, width), W_MKN.dtype)
    pack = _pack_for(8 * W_MKN.dtype.itemsize, transposed)
    own = parts.divided(columns // width, parts.count() if K * N > ALONE else 1)

    def some(m: int, part: int) -> None:
        pack(start(W_MKN, m), start(out, m), own[part].start, own[part].stop - own[part].start, K, N)

    parts.each_of(M, len(own), some)
    return out


def pack(code: Code, W: Value, out: Value, first: Value, panels: Value, K: Value, N: Value) -> None:
    """Some panels."""
    with code.loop(panels) as n, code.loop(K) as k:
        q = first + n
        source, goal = code.at(W, k * N + q * code.panel), code.at(out, (q * K + k) * code.panel)
        for v in range(VECTORS):
            code.store(code.load(code.at(source, v * code.lanes)), code.at(goal, v * code.lanes))


def pack_transposed(code: Code, W: Value, out: Value, first: Value, panels: Value, K: Value, N: Value) -> None:
    """Some panels, each a panel's width of rows: a vector of one row becomes an element of as many rows."""
    with code.loop(panels) as p, code.loop(N // code.lanes) as v, code.loop(code.panel) as k:
        q, n = first + p, v * code.lanes
        source, goal = code.at(W, (q * code.panel + k) * N + n), code.at(out, (q * N + n) * code.panel + k)
        for lane in range(code.lanes):
            code.store_element(code.load_element(code.at(source, lane)), code.at(goal, lane * code.panel))


@cache
def _pack_for(bits: int, transposed: bool) -> Callable[..., None]:
    return make(pack_transposed if transposed else pack, bits, "aannnn")
