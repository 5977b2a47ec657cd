"""A batch of rows that each read tokens and predict the next: what sampling and beam search are written on.

    begin(rows)      so many rows, none of which has read anything
    restart(rows)    these rows have read nothing
    read(ids_B)      each row reads one token
    logits()         what each row predicts: [B, V], to be used before the next call
    take(rows)       row b goes on from where row rows[b] stood: to drop rows, to move them, to copy them

What a row predicts depends on what it has read and on nothing else, to the last bit: not on the other rows, not on how
many there are, not on its place among them. `compiled` and `cuda` keep that promise by adding up every row in one
order, `host` with tiles (see `tiles.py`), `plain` by doing one row at a time.

A GPU's rows also draw by themselves, many tokens between two looks of the host (a `Drawer`):

    begin(rows)      so many rows
    seat(seats)      who each row's stream is, from now on
    draw(steps)      every row takes so many steps: reads its prompt, then what it draws
    take(rows)       as above

It knows the controls in DEVICE_CONTROLS; texts that use another one are drawn by the host.

Shapes: B rows, T steps, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from unroll.experiment.decoding import Decoding
from unroll.model.model import Model

ROOM = 2**30  # bytes of states
MOST = 4096  # rows
DEVICE_CONTROLS = frozenset(("temperature", "top-k", "top-p", "min-p"))  # by which a Drawer draws

Ids = NDArray[Any]
Array = NDArray[Any]


class Stepper(Protocol):
    """Rows that read and predict."""

    def begin(self, rows: int) -> None: ...

    def restart(self, rows: Sequence[int]) -> None: ...

    def read(self, ids_B: Ids) -> None: ...

    def logits(self) -> Array: ...

    def take(self, rows: Sequence[int]) -> None: ...


class Seat(NamedTuple):
    """A stream in a row of a Drawer, whose steps are counted from its first."""

    begun: int  # the step at which it reads the first token of its prompt
    prompt: Ids
    decoding: Decoding
    seed: int

    @property
    def draws(self) -> int:
        """The step at which it first draws: the one that reads its prompt's last token."""
        return self.begun + len(self.prompt) - 1


class Flight(Protocol):
    """What rows drew, on its way to the host."""

    def result(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Ids and log-probabilities [T, B]; where a stream has not begun to draw, they mean nothing."""


class Drawer(Protocol):
    """Rows that read what they draw, each stream as if it were alone."""

    @property
    def now(self) -> int:
        """Steps so far."""

    @property
    def most_steps(self) -> int:
        """Of one call of `draw`."""

    def begin(self, rows: int) -> None: ...

    def seat(self, seats: Sequence[Seat]) -> None: ...

    def draw(self, steps: int) -> Flight: ...

    def take(self, rows: Sequence[int]) -> None: ...


def most_rows(model: Model, k2: int, procedure: str) -> int:
    """How many rows are held at once: as many as fit into a fixed room, whatever is free."""
    shape = model.experiments[0]
    in_flight = k2 if procedure == "windowed" else 1
    row = in_flight * shape.layers * shape.hidden * len(model.cell.STATES) * model.dtype.itemsize
    return max(1, min(MOST, ROOM // row))
