"""Tensors that get their values back. A step runs while it is recorded, and what it changed is undone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def restored(tensors: Sequence[Tensor]) -> Iterator[None]:
    """Give these tensors their values back at the end of the block."""
    before = [tensor.clone() for tensor in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, old in zip(tensors, before, strict=True):
                tensor.copy_(old)
