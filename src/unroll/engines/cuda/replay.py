"""A training step is recorded once as a CUDA graph and replayed: the host launches it and computes nothing.

The step finds its batch on the device, which has the window starts of the next batches and a counter of batches.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from unroll.corpus.batches import Batches
from unroll.engines.cuda.batches import gather_at, sent
from unroll.engines.restored_tensors import restored
from unroll.model.engine import Replay, Step

STRETCH = 128  # batches whose window starts are sent to the device at a time
WARM_UP = 2  # runs before a recording, which libraries and compilers need


def recorded(work: Callable[[], None], warm_up: int = WARM_UP) -> torch.cuda.CUDAGraph:
    """Record `work` as a graph, after it has run `warm_up` times."""
    # The warm-up has its own stream, so that none of its memory is tied to the stream that is recorded.
    warm_up_stream = torch.cuda.Stream()
    warm_up_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm_up_stream):
        for _ in range(warm_up):
            work()
    torch.cuda.current_stream().wait_stream(warm_up_stream)
    graph = torch.cuda.CUDAGraph()
    # A higher priority than the side stream's (see side_stream.py), for when there is room for only one of the two.
    with uncollected(), torch.cuda.graph(graph, stream=torch.cuda.Stream(priority=-1)):
        work()
    return graph


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect no garbage within this block: destroying an old graph spoils the recording of a new one."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class GraphReplay(Replay):
    """Does every step as a replay of one graph."""

    def __init__(self) -> None:
        self._recording: _Recording | None = None

    def prepare(self, step: Step, count: int) -> None:
        """Compile and record the step."""
        if self._recording is None:
            self._recording = _Recording(step, count)

    def run(self, step: Step, count: int) -> None:
        """Train on batch `count`; the graph counts batches itself."""
        self.prepare(step, count)
        assert self._recording is not None
        self._recording.replay(step.batches, count)


class _Recording:
    """A step as a graph, and the window starts of the next batches, from batch `first` on."""

    def __init__(self, step: Step, first: int) -> None:
        batches, counters = step.batches, step.counters
        self.first = first
        # The number of the next batch, and its index among those whose starts are on the device.
        self.number, self.index = counters[0], counters[1:]
        self.starts_nMB, self.resets_nMB = sent(batches, first, STRETCH)
        self.index.zero_()

        def advance() -> None:
            step.advance(gather_at(batches, self.number, self.starts_nMB, self.resets_nMB, self.index))
            counters.add_(1)

        with restored(step.changing()):
            self.graph = recorded(advance)  # the graph alone: holding the step would hold its owner, which holds this
        self._move(first)

    def _move(self, count: int) -> None:
        self.number.fill_(count)
        self.index.fill_(count - self.first)

    def replay(self, batches: Batches, count: int) -> None:
        """Train on batch `count`, which comes after the one before."""
        if not self.first <= count < self.first + STRETCH:
            self.first = count
            fresh = sent(batches, count, STRETCH)
            for buffer, values in zip((self.starts_nMB, self.resets_nMB), fresh, strict=True):
                buffer.copy_(values)
            self._move(count)
        self.graph.replay()
