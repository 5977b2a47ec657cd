"""Progressive (Algorithm 5): the state runs on from the first token to the last and is never reset."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from unroll.kernels import States
from unroll.model import Model

CHUNK = 512  # predictions handed over at a time


def begin(model: Model, k2: int, rows: int, first: States | None = None) -> States:
    """The first state."""
    return first if first is not None else model.first_state(rows)


def read(model: Model, memory: States, ids_B: Tensor) -> tuple[Tensor, States]:
    """One step."""
    memory = model.advance(ids_B.unsqueeze(0), memory)
    return memory[-1][0][0], memory


def hidden(model: Model, ids_N: Tensor, k2: int, first: States | None = None) -> Iterator[Tensor]:
    """One pass over the text, for every row of `first` at once."""
    memory = begin(model, k2, 1, first)
    rows = memory[0][0].shape[1]
    predicting: list[Tensor] = []
    for n, token in enumerate(ids_N[:-1]):
        h_RH, memory = read(model, memory, token.expand(rows))
        if n + 1 >= k2:
            predicting.append(h_RH)
        if len(predicting) == CHUNK:
            yield torch.stack(predicting)
            predicting = []
    if predicting:
        yield torch.stack(predicting)
