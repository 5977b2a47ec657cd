"""Pads, arranges and packs matrices as compiled products read them (see `products.py`).

A panel is a few vectors wide. A packed panel lies in memory in the order of reading, one row after another. In bfloat16
every two rows become one row of words.

Shapes: M runs, K terms, N columns, Q panels, W columns of a panel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import pad

from unroll.engines.cpu import bf16, buffer_pool, parallel_calls, workers
from unroll.engines.cpu.builder import VECTORS, Code, Value, vector_bytes
from unroll.engines.cpu.compiler import make

ONE_THREAD = 1 << 14  # up to this many elements, a second thread does not pay


def panel(dtype: torch.dtype) -> int:
    """The width of a panel."""
    return VECTORS * vector_bytes() // dtype.itemsize


def padded(n: int, dtype: torch.dtype) -> int:
    """Round n columns up to whole panels."""
    return -(-n // panel(dtype)) * panel(dtype)


def grown(x: Tensor, axis: int, n: int, value: float = 0.0) -> Tensor:
    """Pad a tensor along an axis, to n."""
    missing = n - x.shape[axis]
    return pad(x, (0, 0) * (x.dim() - 1 - axis) + (0, missing), value=value) if missing else x


def arranged(w: Tensor, H: int, groups: Sequence[int]) -> Tensor:
    """Pad each gate's columns to H and put them into the order of their groups in a record."""
    gates: Tensor = w.unflatten(-1, (len(groups), -1))
    order = sorted(range(len(groups)), key=groups.__getitem__)
    if order != list(range(len(groups))):
        gates = torch.stack([gates[..., gate, :] for gate in order], -2)
    return grown(gates, w.dim(), H).flatten(-2)


def arranged_back(d: Tensor, H: int, groups: Sequence[int], all_groups: int) -> Tensor:
    """Take each gate's first H columns out of the columns of a record."""
    gates: Tensor = d.unflatten(-1, (all_groups, -1))
    if list(groups) != list(range(all_groups)):
        gates = torch.stack([gates[..., group, :] for group in groups], -2)
    return gates[..., :H].flatten(-2)


def start(x_M: Tensor, m: int) -> int:
    """The address of a run's first element."""
    return int(x_M.data_ptr()) + m * x_M.stride(0) * x_M.element_size() if x_M.numel() else 0


def packed(W_MKN: Tensor, transposed: bool = False, in_bf16: bool = False) -> Tensor:
    """Pack matrices [M, K, N] as [M, Q, K, W], or their transposes as [M, Q, N, W]; bfloat16 halves K or N.

    The resulting columns must be whole panels; if transposed or in bfloat16, the resulting rows as well.
    """
    W_MKN = W_MKN.contiguous()
    M, K, N = W_MKN.shape
    rows, columns = (N, K) if transposed else (K, N)
    width = panel(W_MKN.dtype)
    out = buffer_pool.take((M, columns // width, rows // 2 if in_bf16 else rows, width), W_MKN.dtype)
    pack = _pack_for(8 * W_MKN.dtype.itemsize, transposed, in_bf16)
    stretches = workers.divided(columns // width, workers.count() if K * N > ONE_THREAD else 1)

    runs = [(start(W_MKN, m), start(out, m)) for m in range(M)]
    parallel_calls.do(pack, [(*run, s.start, s.stop - s.start, K, N) for run in runs for s in stretches])
    return out


def pack(code: Code, W: Value, out: Value, first: Value, panels: Value, K: Value, N: Value) -> None:
    """Pack panels."""
    rows = K // 2 if code.in_bf16 else K
    with code.loop(panels) as n, code.loop(rows) as k:
        q = first + n
        source = code.at(W, (k * 2 if code.in_bf16 else k) * N + q * code.panel)
        goal = code.at(out, (q * rows + k) * code.panel)
        for v in range(VECTORS):
            value = code.load(code.at(source, v * code.lanes))
            if code.in_bf16:
                value = bf16.paired(code, value, code.load(code.at(source, N + v * code.lanes)))
            code.store(value, code.at(goal, v * code.lanes))


def pack_transposed(code: Code, W: Value, out: Value, first: Value, panels: Value, K: Value, N: Value) -> None:
    """Pack panels of a transpose: a vector of one row becomes one element each of as many rows."""
    rows, width = (N // 2, code.panel) if code.in_bf16 else (N, code.lanes)  # packed rows, and elements read at once
    with code.loop(panels) as p, code.loop(N // width) as v, code.loop(code.panel) as k:
        q = first + p
        source = code.at(W, (q * code.panel + k) * N + v * width)
        goal = code.at(out, (q * rows + v * code.lanes) * code.panel + k)
        if code.in_bf16:
            words = bf16.in_order(code, code.load(source), code.load(code.at(source, code.lanes)))
            elements = code.elements(words)
        else:
            elements = [code.load_element(code.at(source, lane)) for lane in range(code.lanes)]
        for lane, element in enumerate(elements):
            code.store_element(element, code.at(goal, lane * code.panel))


@cache
def _pack_for(bits: int, transposed: bool, in_bf16: bool) -> Callable[..., None]:
    return make(pack_transposed if transposed else pack, bits, "aannnn", in_bf16)
