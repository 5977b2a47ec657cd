"""What a recording must not change: a step runs while it is recorded, and all that it did is undone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def unchanged(tensors: Sequence[Tensor]) -> Iterator[None]:
    """Put back, at the end, what these tensors held before."""
    before = [tensor.clone() for tensor in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, old in zip(tensors, before, strict=True):
                tensor.copy_(old)
