"""The head of a single row, for which there is little to compute and much to read: threads divide its columns.

Sums are those of any number of rows, to the last bit: see `engines/cpu/products.py`.

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


def through(
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
    """A layer of the head."""
    product(code, out, Left(x, K), W, code.number(1), K, N, Begin(b, code.number(0)))
    if leaks:
        with code.loop(N // code.lanes) as v:
            place = code.at(out, v * code.lanes)
            value = code.load(place)
            code.store(value.where_below(value, code.constant(0.0), value * LEAK), place)


@cache
def through_for(bits: int, leaks: bool) -> Callable[..., None]:
    """The code, made at its first use."""
    return make(through, bits, "aaaann", leaks=leaks)


class OneRow:
    """Of given h [1, H], weights and biases of both layers (see `compiled_weights.py`), activations, and logits."""

    def __init__(self, h: Tensor, head: Sequence[Tensor], dense: Tensor, out: Tensor) -> None:
        W, b, O, o = head
        bits, wide, (_, H, _), (_, D, _) = 8 * h.element_size(), panel(h.dtype), W.shape, O.shape
        self._dense, self._out = through_for(bits, True), through_for(bits, False)
        # A panel of W gives a panel of the activations.
        self._panels, (self._H, self._wide) = (dense[0].view(-1, wide), W, b.view(-1, wide)), (H, wide)
        self._h, self._last = h.data_ptr(), (*(x.data_ptr() for x in (out, dense, O, o)), D, len(o))
        self._ready: dict[int, Callable[[], None]] = {}  # by the number of threads

    def logits(self, threads: int) -> None:
        """By so many threads."""
        if threads not in self._ready:
            calls = [self._call(own) for own in workers.divided(len(self._panels[0]), threads)]
            self._ready[threads] = parallel_calls.ready(self._dense, np.array(calls, np.int64), threads)
        self._ready[threads]()
        self._out(*self._last)

    def _call(self, own: slice) -> tuple[int, ...]:
        x, W, b = (start(panels, own.start) for panels in self._panels)
        return x, self._h, W, b, self._H, (own.stop - own.start) * self._wide
