"""A batch of rows that each read tokens and predict the next: what sampling and beam search are written on.

    begin(rows)      so many rows, none of which has read anything
    restart(rows)    these rows have read nothing
    read(ids_B)      each row reads one token
    logits()         what each row predicts: [B, V], to be used before the next call
    take(rows)       row b goes on from where row rows[b] stood: to drop rows, to move them, to copy them

What a row predicts depends on what it has read and on nothing else, to the last bit: not on the other rows, not on how
many there are, not on its place among them. `host` keeps that promise with tiles (see `tiles.py`), `plain` by doing one
row at a time.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from unroll.model import Model

ROOM = 2**30  # bytes of states
MOST = 4096  # rows

Ids = NDArray[Any]
Array = NDArray[Any]


class Stepper(Protocol):
    """Rows that read and predict."""

    def begin(self, rows: int) -> None: ...

    def restart(self, rows: Sequence[int]) -> None: ...

    def read(self, ids_B: Ids) -> None: ...

    def logits(self) -> Array: ...

    def take(self, rows: Sequence[int]) -> None: ...


def most_rows(model: Model, k2: int, procedure: str) -> int:
    """How many rows are held at once: as many as fit into a fixed room, whatever is free."""
    shape = model.experiments[0]
    in_flight = k2 if procedure == "windowed" else 1
    row = in_flight * shape.layers * shape.hidden * len(model.cell.STATES) * model.dtype.itemsize
    return max(1, min(MOST, ROOM // row))


def prepare(model: Model, k2: int, procedure: str, capacity: int) -> Stepper:
    """The fastest stepper there is for a model of one run, for up to so many rows."""
    from unroll.stepping import host, plain

    if host.supports(model, procedure):
        return host.prepare(model, k2, procedure, capacity)
    return plain.Rows(model, k2, procedure)
