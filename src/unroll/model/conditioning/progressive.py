"""Progressive (Algorithm 5): the state runs on from the first token to the last and is never reset."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from unroll.model.model import Model
from unroll.model.network import States

CHUNK = 512  # time steps of one call of the kernel


def begin(model: Model, k2: int, rows: int, first: States | None = None) -> States:
    """The first state."""
    return first if first is not None else model.first_state(rows)


def read(model: Model, memory: States, ids_B: Tensor) -> tuple[Tensor, States]:
    """One step."""
    memory = model.advance(ids_B.unsqueeze(0), memory)
    return memory[-1][0][0], memory


def hidden(model: Model, ids_MN: Tensor, k2: int, first: States | None = None) -> Iterator[Tensor]:
    """One pass over the texts, for every row of `first` at once."""
    state = begin(model, k2, 1, first)
    rows = state[0][0].shape[1]
    inputs_MN = ids_MN[:, :-1]
    for start, ids_MT in zip(range(0, inputs_MN.shape[1], CHUNK), inputs_MN.split(CHUNK, dim=1), strict=True):
        h_MTRH, state = model.read(ids_MT.unsqueeze(-1).expand(-1, -1, rows), state)
        # The token at place n predicts the one at n + 1; the first to be predicted stands at k2.
        predicting = h_MTRH[:, max(0, k2 - 1 - start) :]
        if predicting.shape[1]:
            yield predicting
