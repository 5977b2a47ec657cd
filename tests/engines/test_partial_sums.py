"""Shares of sums: each part has its own, and their total is the plain sum, in their order."""

from __future__ import annotations

import pytest
import torch
from helpers import torch_threads

from unroll.engines.cpu import partial_sums
from unroll.engines.cpu.builder import vector_bytes
from unroll.engines.cpu.partial_sums import Shares


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_total_of_all_shares_is_the_same_whoever_adds_it_up(
    count: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial_sums, "ALONE", 5)
    lanes = vector_bytes() // dtype.itemsize
    shapes = [(2, 3, lanes), (4, 0), (0, lanes), (5 * lanes,)]
    for parts in (1, 2, 4):
        own = Shares(parts, shapes, dtype)
        for p, of_part in enumerate(own.of):
            for n, x in enumerate(of_part):
                x.copy_(torch.arange(x.numel(), dtype=dtype).add(100 * p + 10 * n).sqrt().view_as(x))
        expected = [sum(others, first.clone()) for first, *others in zip(*own.of, strict=True)]
        with torch_threads(count):
            found = own.totals()
        assert [x.shape for x in found] == shapes
        assert all(x.is_contiguous() for x in found)
        assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
