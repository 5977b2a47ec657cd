"""Torch's products on an NVIDIA GPU, with factors of fewer bits than their sums."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from unroll.model.precisions import PRECISIONS


@contextmanager
def multiplying(precision: str) -> Iterator[None]:
    """Let float32 products be TF32 within this block, or not; torch has one switch for the whole process."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32" if PRECISIONS[precision].tf32 else "ieee"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def product(a: Tensor, b: Tensor) -> Tensor:
    """A batched product whose sums are not rounded: bfloat16 gives float32, other types give themselves."""
    if a.dtype == torch.bfloat16:
        return torch.bmm(a, b, out_dtype=torch.float32)
    return torch.bmm(a, b)


def multiply_into(out: Tensor, a: Tensor, b: Tensor) -> None:
    """Write the product of bfloat16 factors to an existing tensor."""
    torch.ops.aten.bmm.dtype_out(a, b, torch.float32, out=out)
