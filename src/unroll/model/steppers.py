"""Steppers: rows that each read tokens and predict the next one. Sampling and beam search are written on them.

    begin(rows)      hold this many rows, none of which has read anything
    restart(rows)    make these rows forget what they have read
    read(ids_B)      let each row read one token
    logits()         each row's logits, [B, V], for use before the next call
    take(rows)       let row b go on from where row rows[b] stood: this drops, moves or copies rows

A row's logits depend on the tokens that it has read and on nothing else, to the last bit: not on the other rows, their
number or its position among them. The compiled and the CUDA steppers keep that promise by adding up every row in one
order, the `host` stepper with tiles (see `engines/cpu/steppers/tiles.py`), the plain one by doing one row at a time.

A GPU's rows can also draw tokens themselves, many before the host looks again (a `Drawer`):

    begin(rows)      hold this many rows
    seat(seats)      assign a stream to each row, from now on
    draw(steps)      take this many steps: every row reads its prompt, then the tokens that it draws
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

STATE_BYTES = 2**30  # the most bytes of states
MOST_ROWS = 4096
DEVICE_CONTROLS = frozenset(("temperature", "top-k", "top-p", "min-p"))  # the controls that a Drawer knows

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
        """The step of its first draw: the one that reads its prompt's last token."""
        return self.begun + len(self.prompt) - 1


class Flight(Protocol):
    """Drawn tokens on their way to the host."""

    def result(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Ids and log-probabilities [T, B]; they mean nothing before a stream's first draw."""


class Drawer(Protocol):
    """Rows that read the tokens they draw, each stream as if it were alone."""

    @property
    def now(self) -> int:
        """The number of steps so far."""

    @property
    def most_steps(self) -> int:
        """The most steps of one call of `draw`."""

    def begin(self, rows: int) -> None: ...

    def seat(self, seats: Sequence[Seat]) -> None: ...

    def draw(self, steps: int) -> Flight: ...

    def take(self, rows: Sequence[int]) -> None: ...


def most_rows(model: Model, k2: int, procedure: str) -> int:
    """The most rows that are held at once: as many as fit into a fixed number of bytes, whatever is free."""
    shape = model.experiments[0]
    in_flight = k2 if procedure == "windowed" else 1
    row = in_flight * shape.layers * shape.hidden * len(model.cell.STATES) * model.dtype.itemsize
    return max(1, min(MOST_ROWS, STATE_BYTES // row))
