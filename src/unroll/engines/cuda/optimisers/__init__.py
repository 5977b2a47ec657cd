"""Optimisers in CUDA C++: the files of `model/optimisers` once more, for the fused update (`update.cu`). One file each:

    BEFORE    computed once a block of threads, from `count`, the number of the update: fills factor[0], factor[1]
    UPDATE    for each gradient g: changes moment[0], moment[1], and sets `amount` from `rate`

An optimiser without a file here runs in the plain update.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Protocol, cast

from unroll.model.optimisers import Optimiser, file_name


class CudaOptimiser(Protocol):
    """The interface of every file here."""

    BEFORE: str
    UPDATE: str


def of(optimiser: Optimiser) -> CudaOptimiser | None:
    """An optimiser's CUDA code; None if it has no file here."""
    name = file_name(optimiser)
    if name is None or importlib.util.find_spec(f"{__name__}.{name}") is None:
        return None
    return cast(CudaOptimiser, importlib.import_module(f"{__name__}.{name}"))
