"""Rolling windows, compiled: threads divide a row's windows.

k2 windows of each row are in flight. A window is one row of a product, so threads may divide windows in any way: each
state is the same to the last bit. After n < k2 tokens, only n windows have begun.

Shapes: B rows, H hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from unroll.engines.cpu import parallel_calls, workers
from unroll.engines.cpu.builder import vector_bytes
from unroll.engines.cpu.steppers.compiled_weights import ROWS_A_THREAD, HeadRows, Scratch, Weights
from unroll.engines.cpu.steppers.take_rows import take_rows
from unroll.model.steppers import Array, Ids

# Windows that stay together on a thread. A product multiplies rows in tiles of four or more, and a single row takes as
# long as a tile. With the widest vectors there are tiles of six as well, and fours and sixes make any even number.
TOGETHER, TOGETHER_IF_WIDE = 4, 2


class _Windows:
    """The windows of one row that are in flight: slot s of each state."""

    def __init__(self, weights: Weights, k2: int) -> None:
        self.state = [[weights.zeros(k2, weights.H) for _ in layer] for layer in weights.first]
        self._arrays = [[s.numpy() for s in layer] for layer in self.state]
        self._ids = np.zeros(k2, np.int64)
        self._ids_at = self._ids.ctypes.data
        self._at = [tuple(s.data_ptr() for s in x) for x in self.state]
        self._weights, self._k2, self._read = weights, k2, 0

    def restart(self) -> None:
        self._read = 0

    def copy_from(self, other: _Windows) -> None:
        for layer, source in zip(self._arrays, other._arrays, strict=True):
            for s, value in zip(layer, source, strict=True):
                s[:] = value
        self._read = other._read

    def begin(self, token: int) -> int:
        """Begin a window in the oldest one's slot; return how many windows read the token."""
        slot = self._read % self._k2
        begun = min(self._read + 1, self._k2)
        for layer, first in zip(self._arrays, self._weights.first, strict=True):
            for s, value in zip(layer, first, strict=True):
                s[slot] = value
        self._ids[:begun] = token
        self._read += 1
        return begun

    def calls(self, windows: slice, scratch: Scratch) -> list[tuple[int, ...]]:
        """Each layer's arguments for these windows to read the token."""
        arguments = self._ids_at, self._at, scratch, windows.start, windows.stop - windows.start
        return [self._weights.step_call(n, *arguments) for n in range(len(self._at))]

    @property
    def oldest_h(self) -> Array:
        """The h that predicts the next token."""
        h: Array = self._arrays[-1][0][max(0, self._read - self._k2) % self._k2]
        return h


class Rolling:
    """Windowed: every window in flight reads the new token; the oldest predicts and begins anew."""

    def __init__(self, weights: Weights, k2: int, capacity: int) -> None:
        self._weights, self._k2 = weights, k2
        self._head = HeadRows(weights, capacity)
        self._scratch: list[Scratch] = []  # one a thread
        self._rows: list[_Windows] = []
        self._planned: tuple[int, ...] = ()  # the threads, and the windows of each row, of the calls that are ready
        self._ready: list[Callable[[], None]] = []  # makes the calls of each layer

    def begin(self, rows: int) -> None:
        """Hold this many rows, none of which has read anything."""
        self._planned = ()
        self._rows = [_Windows(self._weights, self._k2) for _ in range(rows)]

    def restart(self, rows: Sequence[int]) -> None:
        """Make these rows forget what they have read."""
        for row in rows:
            self._rows[row].restart()

    def read(self, ids_B: Ids) -> None:
        """Let each row read one token."""
        threads = workers.count()
        begun = [row.begin(token) for row, token in zip(self._rows, ids_B, strict=True)]
        if (threads, *begun) != self._planned:
            self._plan(threads, begun)
        for layer in self._ready:
            layer()
        for h, row in zip(self._head.h.numpy(), self._rows, strict=False):
            h[:] = row.oldest_h

    def _plan(self, threads: int, begun: list[int]) -> None:
        """Prepare calls. Once all windows have begun, they are the same for every token."""
        self._scratch += [Scratch(self._weights, self._k2) for _ in range(threads - len(self._scratch))]
        stretches = [
            (row, stretch) for row, n in zip(self._rows, begun, strict=True) for stretch in _stretches(n, threads)
        ]
        calls = [row.calls(stretch, self._scratch[n % threads]) for n, (row, stretch) in enumerate(stretches)]
        self._ready = [
            parallel_calls.ready(layer.step, np.array(layer_calls, np.int64), threads)
            for layer, layer_calls in zip(self._weights.layers, zip(*calls, strict=True), strict=True)
        ]
        self._planned = threads, *begun

    def logits(self) -> Array:
        """Each row's logits."""
        return self._head.logits(len(self._rows))

    def take(self, rows: Sequence[int]) -> None:
        """Let row b go on from where row rows[b] stood."""
        self._planned = ()
        self._rows = take_rows(self._rows, rows, lambda: _Windows(self._weights, self._k2))
        h = self._head.h.numpy()
        h[: len(rows)] = h[list(rows)]


def _stretches(windows: int, threads: int) -> list[slice]:
    """Divide windows among threads. The largest stretch is first, for the caller's thread, which need not wake up."""
    together = TOGETHER_IF_WIDE if vector_bytes() == 64 else TOGETHER
    stretches = workers.divided(-(-windows // together), max(1, min(threads, windows // ROWS_A_THREAD)))
    return [slice(s.start * together, min(s.stop * together, windows)) for s in reversed(stretches)]
