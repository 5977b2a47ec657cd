"""Shared by the CUDA kernels: the cells they know, their compiled code, and the products around a time loop."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from unroll.engines.cuda import compiler
from unroll.engines.cuda.products import product
from unroll.model.cells import RecurrentCell

CELLS = {("lstm", "paper"): 0, ("lstm", "lasagne"): 1, ("lstm", "off"): 2, ("gru", "off"): 3}


def number(cell: RecurrentCell) -> int | None:
    """The number of a cell in pointwise.cu; None for a cell that it does not know."""
    package, _, kind = type(cell).__module__.rpartition(".")
    if package != "unroll.model.cells":  # a file of another package may have the name of one of ours
        return None
    return CELLS.get((kind, cell.peepholes if kind == "lstm" else "off"))


def module(name: str, defines: Mapping[str, int | str | None], *between: Path) -> compiler.Module:
    """A kernel's machine code for the current device; the cells' pointwise parts and the files `between` precede it."""
    folder = Path(__file__).parent
    return compiler.Module.load((folder / "pointwise.cu", *between, folder / "kernels" / f"{name}.cu"), defines)


def _one_hot(ids_MTB: Tensor, symbols: int, dtype: torch.dtype) -> Tensor:
    """A one-hot row for each token, over all steps and rows: [M, N, I]."""
    ids_MN1 = ids_MTB.flatten(1).unsqueeze(-1).long()
    ones = torch.zeros(*ids_MN1.shape[:2], symbols, dtype=dtype, device=ids_MTB.device)
    return ones.scatter_(2, ids_MN1, 1.0)


def input_gradients(
    below: Tensor, d_sums_MNG: Tensor, W_x: Tensor | None, inputs: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The gradients of W_x, b and a layer's input, from those of its gates' sums over all N steps and rows."""
    M, N, _ = d_sums_MNG.shape
    if below.dtype == torch.int32:
        # Each row of a one-hot matrix has a single 1: the product adds up the gradients of each symbol's rows, and
        # all symbols together are all rows.
        d_W_x = product(_one_hot(below, inputs, d_sums_MNG.dtype).transpose(1, 2), d_sums_MNG)
        return d_W_x, d_W_x.sum(1), None
    assert W_x is not None
    d_W_x = product(below.flatten(1, 2).transpose(1, 2), d_sums_MNG)
    ones = torch.ones(1, 1, 1, dtype=d_sums_MNG.dtype, device=d_sums_MNG.device).expand(M, 1, N)
    d_below = torch.bmm(d_sums_MNG, W_x.transpose(1, 2)).view_as(below)
    return d_W_x, product(ones, d_sums_MNG).squeeze(1), d_below
