"""A training step recorded once as a CUDA graph and replayed: the host launches it and computes nothing.

The step finds its batch by itself: where the windows of the next batches start lies on the device, and a counter there
says which batch is next.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from unroll.corpus.batches import Batch, Batches

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


@contextmanager
def unchanged(tensors: Sequence[Tensor]) -> Iterator[None]:
    """What is done to these tensors inside is put right again."""
    before = [tensor.clone() for tensor in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, old in zip(tensors, before, strict=True):
                tensor.copy_(old)


class Recorded:
    """`step(batch)`, which changes only the tensors `changing`; `first` is the next batch.

    `counters` are the number of the next batch and its place among those whose starts are on the device.
    """

    def __init__(
        self,
        step: Callable[[Batch], None],
        changing: Sequence[Tensor],
        batches: Batches,
        counters: Tensor,
        first: int,
    ) -> None:
        self.batches, self.first = batches, first
        self.number, self.place = counters[0], counters[1:]
        self.starts_nMB, self.resets_nMB = batches.stretch(first, STRETCH)
        self.place.zero_()

        def whole() -> None:
            step(batches.gather_at(self.number, self.starts_nMB, self.resets_nMB, self.place))
            counters.add_(1)

        with unchanged(changing):
            self.graph = recorded(whole)  # alone: to hold `step` is to hold its learner, which holds this
        self._move(first)

    def _move(self, count: int) -> None:
        self.number.fill_(count)
        self.place.fill_(count - self.first)

    def replay(self, count: int) -> None:
        """Batch `count`, which comes after the one before."""
        if not self.first <= count < self.first + STRETCH:
            self.first = count
            for buffer, values in zip(
                (self.starts_nMB, self.resets_nMB), self.batches.stretch(count, STRETCH), strict=True
            ):
                buffer.copy_(values)
            self._move(count)
        self.graph.replay()
