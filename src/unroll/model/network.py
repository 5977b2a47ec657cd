"""The recurrent layers of a model as values: their parameters, and what is looked up and picked in them.

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
    """A stack of layers, and how it is computed."""

    cell: RecurrentCell
    clip: float
    layers: tuple[Layer, ...]
    precision: str = "float32"  # of the products; float32 parameters may be multiplied in fewer bits


def embed(W_x: Tensor, ids: Tensor) -> Tensor:
    """Rows of each run's matrix [M, I, G] by id [M, …]: the product of a one-hot input, never materialised."""
    M, I, G = W_x.shape
    shift = torch.arange(0, M * I, I, device=ids.device).view(-1, *[1] * (ids.dim() - 1))
    return torch.nn.functional.embedding(ids + shift, W_x.reshape(M * I, G))


def state_at(states_MTBH: State, at_M: Tensor) -> State:
    """Each run's state after its own step, counted from 1."""
    runs = torch.arange(len(at_M), device=at_M.device)
    return tuple(s[runs, at_M - 1] for s in states_MTBH)
