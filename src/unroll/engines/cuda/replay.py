"""A training step recorded once as a CUDA graph and replayed: the host launches it and computes nothing.

The step finds its batch by itself: where the windows of the next batches start lies on the device, and a counter there
says which batch is next.
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

STRETCH = 128  # batches whose places are sent to the device at a time
WARM_UP = 2  # libraries and compilers want to have run before a recording


def recorded(work: Callable[[], None], warm_up: int = WARM_UP) -> torch.cuda.CUDAGraph:
    """What replays `work`, which is done so often before."""
    # The warm-up has a stream of its own, so that nothing it allocates is tied to the one that is recorded.
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(warm_up):
            work()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    # Ahead of what goes on beside it (see side_stream.py), wherever there is room for one of the two alone.
    with uncollected(), torch.cuda.graph(graph, stream=torch.cuda.Stream(priority=-1)):
        work()
    return graph


@contextmanager
def uncollected() -> Iterator[None]:
    """Nothing is collected inside: to destroy an old graph while a new one is recorded spoils the recording."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class GraphReplay(Replay):
    """Every step is a replay of one graph."""

    def __init__(self) -> None:
        self._recording: _Recording | None = None

    def prepare(self, step: Step, count: int) -> None:
        """Compile and record."""
        if self._recording is None:
            self._recording = _Recording(step, count)

    def run(self, step: Step, count: int) -> None:
        """Train on batch `count`: the graph counts for itself."""
        self.prepare(step, count)
        assert self._recording is not None
        self._recording.replay(step.batches, count)


class _Recording:
    """A step as a graph, and where the windows of the next batches start, from batch `first` on."""

    def __init__(self, step: Step, first: int) -> None:
        batches, counters = step.batches, step.counters
        self.first = first
        # The number of the next batch, and its place among those whose starts are on the device.
        self.number, self.place = counters[0], counters[1:]
        self.starts_nMB, self.resets_nMB = sent(batches, first, STRETCH)
        self.place.zero_()

        def advance() -> None:
            step.advance(gather_at(batches, self.number, self.starts_nMB, self.resets_nMB, self.place))
            counters.add_(1)

        with restored(step.changing()):
            self.graph = recorded(advance)  # the graph alone: who holds the step holds its owner, which holds this
        self._move(first)

    def _move(self, count: int) -> None:
        self.number.fill_(count)
        self.place.fill_(count - self.first)

    def replay(self, batches: Batches, count: int) -> None:
        """Train on batch `count`, which comes after the one before."""
        if not self.first <= count < self.first + STRETCH:
            self.first = count
            fresh = sent(batches, count, STRETCH)
            for buffer, values in zip((self.starts_nMB, self.resets_nMB), fresh, strict=True):
                buffer.copy_(values)
            self._move(count)
        self.graph.replay()
