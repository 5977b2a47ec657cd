"""Partial sums: each thread has its own, and their total is the plain sum, in the order of the threads."""

from __future__ import annotations

import pytest
import torch
from helpers import torch_threads

from unroll.engines.cpu import partial_sums
from unroll.engines.cpu.builder import vector_bytes
from unroll.engines.cpu.partial_sums import PartialSums


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_total_is_the_same_for_any_number_of_threads_that_add_it_up(
    count: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial_sums, "ONE_THREAD", 5)
    lanes = vector_bytes() // dtype.itemsize
    shapes = [(2, 3, lanes), (4, 0), (0, lanes), (5 * lanes,)]
    for threads in (1, 2, 4):
        sums = PartialSums(threads, shapes, dtype)
        for p, of_thread in enumerate(sums.by_thread):
            for n, x in enumerate(of_thread):
                x.copy_(torch.arange(x.numel(), dtype=dtype).add(100 * p + 10 * n).sqrt().view_as(x))
        expected = [sum(others, first.clone()) for first, *others in zip(*sums.by_thread, strict=True)]
        with torch_threads(count):
            totals = sums.totals()
        assert [x.shape for x in totals] == shapes
        assert all(x.is_contiguous() for x in totals)
        assert all(torch.equal(*pair) for pair in zip(totals, expected, strict=True))
