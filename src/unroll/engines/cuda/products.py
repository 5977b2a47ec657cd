"""Products of torch on an NVIDIA GPU whose factors have fewer bits than their sums."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from unroll.model.precisions import PRECISIONS


@contextmanager
def multiplying(precision: str) -> Iterator[None]:
    """Let float32 products be TF32 within this block, or not; torch keeps that as one switch for all."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32" if PRECISIONS[precision].tf32 else "ieee"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def product(a: Tensor, b: Tensor) -> Tensor:
    """A batched product whose sums are not rounded: float32 out of bfloat16, and everything else as it is."""
    if a.dtype == torch.bfloat16:
        return torch.bmm(a, b, out_dtype=torch.float32)
    return torch.bmm(a, b)


def multiply_into(out: Tensor, a: Tensor, b: Tensor) -> None:
    """The same of bfloat16, into a tensor that is there."""
    torch.ops.aten.bmm.dtype_out(a, b, torch.float32, out=out)
