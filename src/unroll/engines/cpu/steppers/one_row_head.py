"""The head for a single row: threads divide its columns, since it reads much and computes little.

Its sums equal those of any number of rows, to the last bit: see `engines/cpu/products.py`.

Shapes: H hidden, D dense, V vocabulary, K terms, N columns, all padded to whole panels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from torch import Tensor

from unroll.engines.cpu import parallel_calls, workers
from unroll.engines.cpu.builder import Code, Value
from unroll.engines.cpu.compiler import make
from unroll.engines.cpu.packing import panel, start
from unroll.engines.cpu.products import Begin, Left, product
from unroll.model.head import LEAK


def dense_layer(
    code: Code,
    out: Value,  # [N]
    x: Value,  # [K]
    W: Value,  # [K, N], packed
    b: Value,  # [N]
    K: Value,
    N: Value,
    *,
    leaks: bool,
) -> None:
    """Compute a layer of the head."""
    product(code, out, Left(x, K), W, code.number(1), K, N, Begin(b, code.number(0)))
    if leaks:
        with code.loop(N // code.lanes) as v:
            address = code.at(out, v * code.lanes)
            value = code.load(address)
            code.store(value.where_below(value, code.constant(0.0), value * LEAK), address)


@cache
def dense_layer_for(bits: int, leaks: bool) -> Callable[..., None]:
    """The code, compiled when it is first used."""
    return make(dense_layer, bits, "aaaann", leaks=leaks)


class OneRowHead:
    """The head of one row; h [1, H], `dense` and `out` are its buffers, `head` has the parameters of both layers."""

    def __init__(self, h: Tensor, head: Sequence[Tensor], dense: Tensor, out: Tensor) -> None:
        W, b, O, o = head
        bits = 8 * h.element_size()
        width = panel(h.dtype)
        (_, H, _), (_, D, _) = W.shape, O.shape
        self._dense = dense_layer_for(bits, True)
        self._out = dense_layer_for(bits, False)
        # A panel of W gives a panel of the activations.
        self._panels = (dense[0].view(-1, width), W, b.view(-1, width))
        self._H, self._width = H, width
        self._h = h.data_ptr()
        self._out_call = (*(x.data_ptr() for x in (out, dense, O, o)), D, len(o))
        self._ready: dict[int, Callable[[], None]] = {}  # by the number of threads

    def logits(self, threads: int) -> None:
        """Compute the logits on this many threads."""
        if threads not in self._ready:
            calls = [self._dense_call(panels) for panels in workers.divided(len(self._panels[0]), threads)]
            self._ready[threads] = parallel_calls.ready(self._dense, np.array(calls, np.int64), threads)
        self._ready[threads]()
        self._out(*self._out_call)

    def _dense_call(self, panels: slice) -> tuple[int, ...]:
        x, W, b = (start(tensor, panels.start) for tensor in self._panels)
        return x, self._h, W, b, self._H, (panels.stop - panels.start) * self._width
