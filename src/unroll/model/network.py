"""The recurrent layers of a model as values, with the look-up of inputs and the choice of a time step's state.

Shapes: M runs, T time, B rows, I inputs, H hidden, G gate columns.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from unroll.model.cells import Extra, RecurrentCell, State

States = tuple[State, ...]  # one State a layer


class Layer(NamedTuple):
    """One layer's parameters, for all runs."""

    W_x: Tensor  # [M, I, G]
    W_h: Tensor  # [M, H, G]
    b: Tensor  # [M, G]
    extra: Extra


class Network(NamedTuple):
    """A stack of layers, and the settings of its computation."""

    cell: RecurrentCell
    clip: float
    layers: tuple[Layer, ...]
    precision: str = "float32"  # the products' precision: float32 parameters may be multiplied in fewer bits


def embed(W_x: Tensor, ids: Tensor) -> Tensor:
    """Rows of each run's matrix [M, I, G] by id [M, …]: the product with a one-hot input, which is never made."""
    M, I, G = W_x.shape
    row_of_run = torch.arange(0, M * I, I, device=ids.device).view(-1, *[1] * (ids.dim() - 1))
    return torch.nn.functional.embedding(ids + row_of_run, W_x.reshape(M * I, G))


def state_at(states_MTBH: State, at_M: Tensor) -> State:
    """Each run's state after the step at_M, counted from 1."""
    runs = torch.arange(len(at_M), device=at_M.device)
    return tuple(s[runs, at_M - 1] for s in states_MTBH)
