"""Every token from the k2/2 before it: half of what training saw, at half the cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from unroll.model.model import Model
from unroll.model.network import States

FORGETS = True


class Memory(NamedTuple):
    """The last tokens of each row."""

    ids_TB: Tensor
    first: States
    length: int


def begin(model: Model, k2: int, rows: int, first: States | None = None) -> Memory:
    """Nothing read yet."""
    nothing = torch.empty(0, rows, dtype=torch.long, device=model.device)
    return Memory(nothing, first if first is not None else model.first_state(rows), max(1, k2 // 2))


def read(model: Model, memory: Memory, ids_B: Tensor) -> tuple[Tensor, Memory]:
    """The half window moves on by one token and is read whole."""
    memory = memory._replace(ids_TB=torch.cat((memory.ids_TB, ids_B.unsqueeze(0)))[-memory.length :])
    return _last(model, memory.ids_TB.unsqueeze(0), memory.first)[0], memory


def hidden(model: Model, ids_MN: Tensor, k2: int, first: States | None = None) -> Iterator[Tensor]:
    """Half window after half window."""
    first = first if first is not None else model.first_state(1)
    rows = first[0][0].shape[1]
    for n in range(k2, ids_MN.shape[1]):
        ids_MT = ids_MN[:, n - max(1, k2 // 2) : n]
        yield _last(model, ids_MT.unsqueeze(-1).expand(-1, -1, rows), first).unsqueeze(1)


def _last(model: Model, ids_MTB: Tensor, state: States) -> Tensor:
    """The top layer's h after the last of these tokens."""
    for ids_MB in ids_MTB.unbind(1):
        state = model.advance(ids_MB, state)
    return state[-1][0]
