"""Windowed as the paper runs it (Algorithm 4): for every new token the last k2 are read again from the first state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from unroll.kernels import States
from unroll.model import Model

FORGETS = True


class Memory(NamedTuple):
    """The last k2 tokens of each row."""

    ids_TB: Tensor
    k2: int
    first: States


def begin(model: Model, k2: int, rows: int, first: States | None = None) -> Memory:
    """Nothing read yet."""
    nothing = torch.empty(0, rows, dtype=torch.long, device=model.device)
    return Memory(nothing, k2, first if first is not None else model.first_state(rows))


def read(model: Model, memory: Memory, ids_B: Tensor) -> tuple[Tensor, Memory]:
    """The window moves on by one token and is read whole."""
    memory = memory._replace(ids_TB=torch.cat((memory.ids_TB, ids_B.unsqueeze(0)))[-memory.k2 :])
    state = memory.first
    for ids in memory.ids_TB:
        state = model.advance(ids.unsqueeze(0), state)
    return state[-1][0][0], memory


def hidden(model: Model, ids_N: Tensor, k2: int, first: States | None = None) -> Iterator[Tensor]:
    """Window after window."""
    memory = begin(model, k2, 1, first)
    rows = memory.first[0][0].shape[1]
    for n in range(k2, len(ids_N)):
        window = ids_N[n - k2 : n].unsqueeze(1).expand(-1, rows)
        h_RH, _ = read(model, memory._replace(ids_TB=window[:-1]), window[-1])
        yield h_RH.unsqueeze(0)
