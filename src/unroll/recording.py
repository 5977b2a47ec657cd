"""A training step recorded once as a CUDA graph and replayed: the host launches it and computes nothing.

The step finds its batch by itself: where the windows of the next batches start lies on the device, and a counter there
says which batch is next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from unroll.batches import Batch, Batches

STRETCH = 128  # batches whose places are sent to the device at a time


@contextmanager
def unchanged(tensors: Sequence[Tensor]) -> Iterator[None]:
    """What is done to these tensors inside is put right again."""
    before = [tensor.clone() for tensor in tensors]
    yield
    with torch.no_grad():
        for tensor, old in zip(tensors, before, strict=True):
            tensor.copy_(old)


class Recorded:
    """`step(batch)`, which changes only the tensors `changing`; `number` is the counter, `first` the next batch."""

    def __init__(
        self,
        step: Callable[[Batch], None],
        changing: Sequence[Tensor],
        batches: Batches,
        number: Tensor,
        first: int,
    ) -> None:
        self.step, self.batches, self.number, self.first = step, batches, number, first
        self.starts_nMB, self.resets_nMB = batches.stretch(first, STRETCH)
        self.place = torch.zeros(1, dtype=torch.long, device=number.device)
        with unchanged(changing):
            # Libraries and compilers want to have run before a recording.
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(2):
                    self._step()
            torch.cuda.current_stream().wait_stream(stream)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self._step()
        self._move(first)

    def _step(self) -> None:
        starts_MB, resets_MB = (s.index_select(0, self.place)[0] for s in (self.starts_nMB, self.resets_nMB))
        self.step(self.batches.gather(self.number, starts_MB, resets_MB))
        self.number += 1
        self.place += 1

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
