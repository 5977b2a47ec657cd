"""The head for a single row: threads divide its columns, since it reads much and computes little.

Its sums equal those of any number of rows, to the last bit: see `engines/cpu/products.py`.

Shapes: H hidden, D dense, V vocabulary, K terms, N columns, all padded to whole panels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

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
    """The head of one row: its buffers are h [1, H], the dense layer's if there is one, and out.

    `head` has the parameters of the dense layer, if there is one, and of the output layer.
    """

    def __init__(self, buffers: Sequence[Tensor], head: Sequence[Tensor]) -> None:
        h, x, *after = buffers
        W, b, *behind = head
        bits = 8 * h.element_size()
        width = panel(h.dtype)
        # The first layer is the one whose columns are divided.
        self._first = dense_layer_for(bits, bool(behind))
        # A panel of W gives a panel of what comes out.
        self._panels = (x[0].view(-1, width), W, b.view(-1, width))
        self._H, self._width = W.shape[1], width
        self._h = h.data_ptr()
        self._then: Callable[[], None] | None = None
        if behind:
            (out,), (O, o) = after, behind
            addresses = (tensor.data_ptr() for tensor in (out, x, O, o))
            self._then = partial(dense_layer_for(bits, False), *addresses, O.shape[1], len(o))
        self._ready: dict[int, Callable[[], None]] = {}  # by the number of threads

    def logits(self, threads: int) -> None:
        """Compute the logits on this many threads."""
        if threads not in self._ready:
            calls = [self._first_call(panels) for panels in workers.divided(len(self._panels[0]), threads)]
            self._ready[threads] = parallel_calls.ready(self._first, np.array(calls, np.int64), threads)
        self._ready[threads]()
        if self._then:
            self._then()

    def _first_call(self, panels: slice) -> tuple[int, ...]:
        x, W, b = (start(tensor, panels.start) for tensor in self._panels)
        return x, self._h, W, b, self._H, (panels.stop - panels.start) * self._width
