"""The precisions, and how torch keeps to one."""

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
    """Multiply float32 matrices, cuDNN's too, in TF32 or in full float32; restore the settings afterwards.

    torch's own default is a mixture: cuDNN may use TF32, matrix products may not.
    """
    mode = "tf32" if precision == "tf32" else "ieee"
    before = [_get("cuda", product) for product in PRODUCTS]
    for product in PRODUCTS:
        _set("cuda", product, mode)
    try:
        yield
    finally:
        for product, value in zip(PRODUCTS, before, strict=True):
            _set("cuda", product, value)
