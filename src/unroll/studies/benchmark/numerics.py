"""The precisions, and how torch is told to keep to one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

# The public names for cuDNN's recurrent layers differ between versions of torch; these do not.
from torch._C import _get_fp32_precision_getter as _get
from torch._C import _set_fp32_precision_setter as _set

PRODUCTS = ("matmul", "rnn")
DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "tf32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@contextmanager
def numerics(precision: str) -> Iterator[None]:
    """Products of float32 matrices, cuDNN's too, in TF32 or in float32 proper; as they were before, afterwards.

    torch's own default is a mixture: cuDNN may use TF32, matrix products may not.
    """
    wanted = "tf32" if precision == "tf32" else "ieee"
    before = [_get("cuda", what) for what in PRODUCTS]
    for what in PRODUCTS:
        _set("cuda", what, wanted)
    try:
        yield
    finally:
        for what, value in zip(PRODUCTS, before, strict=True):
            _set("cuda", what, value)
