"""Windowed, rolling: exactly Algorithm 4, at the latency of one step instead of k2.

k2 windows are in flight, each begun one token after the other. A new token is fed to all of them in one batched step;
the oldest has then read exactly k2 tokens and predicts; its slot starts again from the first state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from unroll.model import conditioning
from unroll.model.model import Model
from unroll.model.network import States

FORGETS = True


class Memory(NamedTuple):
    """k2 windows for each row: slot s of row b is at s·rows + b."""

    slots: States
    read: int  # tokens read so far
    k2: int
    first: States  # of all rows


def begin(model: Model, k2: int, rows: int, first: States | None = None) -> Memory:
    """All slots at the first state; those that have not begun read along and are begun anew in time."""
    first = first if first is not None else model.first_state(rows)
    slots = tuple(tuple(s.repeat(1, k2, 1) for s in state) for state in first)
    return Memory(slots, 0, k2, first)


def read(model: Model, memory: Memory, ids_B: Tensor) -> tuple[Tensor, Memory]:
    """One batched step of all windows."""
    k2, rows, read = memory.k2, len(ids_B), memory.read + 1
    slots = model.advance(ids_B.repeat(k2).unsqueeze(0), memory.slots)
    oldest = max(0, read - k2) % k2
    h_BH = slots[-1][0][0, oldest * rows : (oldest + 1) * rows].clone()
    # The slot that the next token begins starts again; these tensors are new, so no older memory changes.
    begins = slice(read % k2 * rows, (read % k2 + 1) * rows)
    for state, first in zip(slots, memory.first, strict=True):
        for s, f in zip(state, first, strict=True):
            s[:, begins] = f
    return h_BH, memory._replace(slots=slots, read=read)


def hidden(model: Model, ids_MN: Tensor, k2: int, first: States | None = None) -> Iterator[Tensor]:
    """All windows of a text are rows of one long batch, read in chunks."""
    first = first if first is not None else model.first_state(1)
    M, rows, H = first[0][0].shape
    steps = model.engine.steps_at_once(k2)
    fitting = model.engine.chunk_bytes // (M * steps * H * model.dtype.itemsize)
    side_by_side = max(conditioning.TILE, fitting // conditioning.TILE * conditioning.TILE)
    for chunk_MnT in ids_MN[:, :-1].unfold(1, k2, 1).split(max(1, side_by_side // rows), dim=1):
        n = chunk_MnT.shape[1]
        state = tuple(tuple(s.repeat(1, n, 1) for s in layer) for layer in first)
        for ids_MTB in chunk_MnT.transpose(1, 2).repeat_interleave(rows, dim=2).split(steps, dim=1):
            h_MTBH, state = model.read(ids_MTB, state)
        yield h_MTBH[:, -1].reshape(M, n, rows, H)
