"""Rolling windows, compiled: a thread takes its share of a row's windows through all layers in one go.

k2 windows of each row are in flight. A window is a row of a product like any other, so threads may divide windows as
they like: what each holds is the same to the last bit. Before k2 tokens have been read, only as many windows as there
are tokens have begun.

Shapes: B rows, H hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from unroll.engines.cpu import parallel_calls, workers
from unroll.engines.cpu.builder import vector_bytes
from unroll.engines.cpu.steppers.compiled_weights import FEW, Head, Scratch, Weights
from unroll.engines.cpu.steppers.take_rows import taken
from unroll.model.steppers import Array, Ids

# Windows that stay together. A product multiplies rows by fours and more, and single ones take as long as several. With
# the widest vectors it does so by sixes as well, of which with fours any even number can be made.
TOGETHER, TOGETHER_IF_WIDE = 4, 2


class _Windows:
    """The windows of one row that are in flight: slot s of each state."""

    def __init__(self, weights: Weights, k2: int) -> None:
        self.state = [[weights.zeros(k2, weights.H) for _ in layer] for layer in weights.first]
        self._arrays = [[s.numpy() for s in layer] for layer in self.state]
        self._ids = np.zeros(k2, np.int64)
        self._ids_at, self._at = self._ids.ctypes.data, [tuple(s.data_ptr() for s in x) for x in self.state]
        self._weights, self._k2, self._read = weights, k2, 0

    def restart(self) -> None:
        self._read = 0

    def copy_from(self, other: _Windows) -> None:
        for layer, source in zip(self._arrays, other._arrays, strict=True):
            for s, value in zip(layer, source, strict=True):
                s[:] = value
        self._read = other._read

    def begin(self, token: int) -> int:
        """A new window, in place of the oldest; how many are now to read the token."""
        slot, begun = self._read % self._k2, min(self._read + 1, self._k2)
        for layer, first in zip(self._arrays, self._weights.first, strict=True):
            for s, value in zip(layer, first, strict=True):
                s[slot] = value
        self._ids[:begun] = token
        self._read += 1
        return begun

    def calls(self, some: slice, scratch: Scratch) -> list[tuple[int, ...]]:
        """With what each layer is called for some windows to read the token."""
        own = self._ids_at, self._at, scratch, some.start, some.stop - some.start
        return [self._weights.step_call(n, *own) for n in range(len(self._at))]

    @property
    def oldest_h(self) -> Array:
        """What predicts the next token."""
        h: Array = self._arrays[-1][0][max(0, self._read - self._k2) % self._k2]
        return h


class Rolling:
    """Windowed: every window in flight reads the new token; the oldest predicts and begins anew."""

    def __init__(self, weights: Weights, k2: int, capacity: int) -> None:
        self._weights, self._k2 = weights, k2
        self._head = Head(weights, capacity)
        self._scratch: list[Scratch] = []  # one a thread
        self._rows: list[_Windows] = []
        self._planned: tuple[int, ...] = ()  # threads, and the windows of each row, that calls are there for
        self._ready: list[Callable[[], None]] = []  # what makes those of each layer

    def begin(self, rows: int) -> None:
        """So many rows, none of which has read anything."""
        self._planned = ()
        self._rows = [_Windows(self._weights, self._k2) for _ in range(rows)]

    def restart(self, rows: Sequence[int]) -> None:
        """These rows have read nothing."""
        for row in rows:
            self._rows[row].restart()

    def read(self, ids_B: Ids) -> None:
        """Each row reads one token."""
        threads = workers.count()
        begun = [row.begin(token) for row, token in zip(self._rows, ids_B, strict=True)]
        if (threads, *begun) != self._planned:
            self._plan(threads, begun)
        for layer in self._ready:
            layer()
        for h, row in zip(self._head.h.numpy(), self._rows, strict=False):
            h[:] = row.oldest_h

    def _plan(self, threads: int, begun: list[int]) -> None:
        """Calls are the same from token to token, once all windows have begun."""
        self._scratch += [Scratch(self._weights, self._k2) for _ in range(threads - len(self._scratch))]
        shares = [(row, share) for row, n in zip(self._rows, begun, strict=True) for share in _shares(n, threads)]
        calls = [row.calls(share, self._scratch[n % threads]) for n, (row, share) in enumerate(shares)]
        self._ready = [
            parallel_calls.ready(layer.step, np.array(own, np.int64), threads)
            for layer, own in zip(self._weights.layers, zip(*calls, strict=True), strict=True)
        ]
        self._planned = threads, *begun

    def logits(self) -> Array:
        """What each row predicts."""
        return self._head.logits(len(self._rows))

    def take(self, rows: Sequence[int]) -> None:
        """Row b goes on from where row rows[b] stood."""
        self._planned = ()
        self._rows = taken(self._rows, rows, lambda: _Windows(self._weights, self._k2))
        h = self._head.h.numpy()
        h[: len(rows)] = h[list(rows)]


def _shares(windows: int, threads: int) -> list[slice]:
    """So many windows for the threads, the largest share first: the caller's thread takes it, which need not wake."""
    together = TOGETHER_IF_WIDE if vector_bytes() == 64 else TOGETHER
    shares = workers.divided(-(-windows // together), max(1, min(threads, windows // FEW)))
    return [slice(own.start * together, min(own.stop * together, windows)) for own in reversed(shares)]
