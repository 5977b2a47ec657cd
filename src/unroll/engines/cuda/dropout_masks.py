"""Dropout on an NVIDIA GPU: the arguments of masks for every launch of the head, and a launch that only drops."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from unroll.base import randomness
from unroll.engines.cuda import compiler

SOURCE = Path(__file__).with_suffix(".cu")
THREADS = 256
DENSE, OUT = (randomness.purpose_word(f"dropout.{name}") for name in ("dense", "out"))


class Dropout(NamedTuple):
    """Each run's rate and key, the number of the batch, and whether any run drops anything."""

    rates_M: Tensor
    keys_M2: Tensor
    batch: Tensor
    any: bool

    def dropped(self, x: Tensor) -> Tensor:
        """Drop elements of one of the head's inputs [M, …], or of its gradient, and scale the others."""
        if not self.any:
            return x
        x = x.contiguous()
        out = torch.empty_like(x)
        code = compiler.Module.load((SOURCE,), {"REAL": real(x.dtype)})
        blocks = -(-x[0].numel() // (4 * THREADS))
        code["drop"].launch((blocks, len(x)), THREADS, x, out, *self[:3], DENSE, x[0].numel())
        return out


def real(dtype: torch.dtype) -> str:
    """The name of a number type in the CUDA files."""
    return "bf16" if dtype == torch.bfloat16 else "float"
