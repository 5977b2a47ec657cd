"""Precisions: in what numbers parameters are kept, and in what numbers they are multiplied.

float32 is the truth. TF32 and bfloat16 keep parameters, optimiser, sums and the cells' memory in float32 and only
multiply in fewer bits: TF32 rounds each factor to 10 bits of fraction, bfloat16 to 7. On a CPU there is bfloat16 as
well: see `engines/cpu/bf16.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from unroll.engines.cpu import bf16, builder


class Precision(NamedTuple):
    """Two kinds of number."""

    kept: torch.dtype
    products: torch.dtype
    tf32: bool = False


PRECISIONS = {
    "float32": Precision(torch.float32, torch.float32),
    "float64": Precision(torch.float64, torch.float64),
    "tf32": Precision(torch.float32, torch.float32, tf32=True),
    "bfloat16": Precision(torch.float32, torch.bfloat16),
}


def why_not(name: str, device: torch.device) -> str | None:
    """Why a device cannot compute in a precision, in words; None where it can."""
    if name in ("float32", "float64") or (name, device.type) == ("bfloat16", "cpu"):
        return None
    if device.type != "cuda":
        return f"precision {name} needs an NVIDIA GPU; on {device.type} there are float32, float64 and bfloat16"
    capability = torch.cuda.get_device_capability(device)
    if capability[0] < 8:
        own = ".".join(map(str, capability))
        return f"precision {name} needs a GPU of compute capability 8 or newer; this one has {own}"
    return None


def told(name: str, device: str) -> str:
    """A precision in words, for who waits for it."""
    if (name, device) == ("bfloat16", "cpu") and builder.available() and not bf16.fast():
        return f"{name} (which this processor multiplies no faster than float32)"
    return name


@contextmanager
def multiplying(name: str) -> Iterator[None]:
    """Let float32 products on CUDA be TF32 within this block, or not; torch keeps that as one switch for all."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32" if PRECISIONS[name].tf32 else "ieee"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def product(a: Tensor, b: Tensor) -> Tensor:
    """A batched product whose sums are not rounded: float32 out of bfloat16, and everything else as it is."""
    if a.dtype == torch.bfloat16 and a.device.type == "cpu":
        return torch.bmm(a.float(), b.float())  # torch has none on the CPU; products of two are exact in float32
    if a.dtype == torch.bfloat16:
        return torch.bmm(a, b, out_dtype=torch.float32)
    return torch.bmm(a, b)


def multiply_into(out: Tensor, a: Tensor, b: Tensor) -> None:
    """The same of bfloat16, into a tensor that is there."""
    torch.ops.aten.bmm.dtype_out(a, b, torch.float32, out=out)
