"""Rows read, predict and draw on an NVIDIA GPU, many tokens a launch (see `machine.py`); the host only looks on.

Shapes: B streams, T steps, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unroll.engines.cuda import compiler
from unroll.engines.cuda.steppers.machine import MOST_LAYERS, ROW, Machine
from unroll.engines.cuda.steppers.weights import FROM_X
from unroll.engines.last_tokens import LastTokens
from unroll.experiment.decoding import Decoding
from unroll.model.cells import RecurrentCell
from unroll.model.model import Model
from unroll.model.steppers import Array, Drawer, Ids, Seat, Stepper

FAR = 2**62  # a step that never comes
PROCEDURES = ("progressive", "windowed", "windowed-naive")


def knows(cell: RecurrentCell) -> bool:
    """Whether there is code for a cell."""
    return type(cell) in FROM_X


def supports(model: Model, procedure: str) -> bool:
    """Whether the model computes on an NVIDIA GPU, in float32, with a dense layer and a cell that is known here."""
    return (
        model.device.type == "cuda"
        and model.dtype == torch.float32
        and model.experiments[0].dense > 0
        and knows(model.cell)
        and model.experiments[0].layers <= MOST_LAYERS
        and procedure in PROCEDURES
        and compiler.why_not() is None
        and torch.cuda.get_device_capability(model.device) >= (8, 0)
    )


def prepare(model: Model, k2: int, procedure: str) -> Stepper:
    """Rows that read the host's tokens."""
    if procedure == "windowed-naive":
        return NaiveWindows(Machine(model, 1, rolling=False), k2)
    return Steps(_machine(model, k2, procedure))


def drawer(model: Model, k2: int, procedure: str) -> Drawer | None:
    """Rows that read the tokens they draw; None for the procedure that reads whole windows again."""
    return None if procedure == "windowed-naive" else Draws(_machine(model, k2, procedure))


def _machine(model: Model, k2: int, procedure: str) -> Machine:
    rolling = procedure == "windowed"
    return Machine(model, k2 if rolling else 1, rolling)


class Steps:
    """Streams that read the host's tokens: one launch a token."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._begun = np.zeros(0, np.int64)

    def begin(self, rows: int) -> None:
        """Hold this many rows, none of which has read anything."""
        self._machine.begin(rows)
        self._begun = np.full(rows, self._machine.now)

    def restart(self, rows: Sequence[int]) -> None:
        """Make these rows forget what they have read."""
        self._begun[list(rows)] = self._machine.now

    def read(self, ids_B: Ids) -> None:
        """Let each row read one token."""
        machine = self._machine
        table = np.zeros(len(ids_B), ROW)
        # A stream reads its n-th token n positions after its prompt's first token.
        table["begun"], table["draws"] = self._begun, FAR
        table["prompt"] = np.arange(len(ids_B)) - (machine.now - self._begun)
        machine.run(machine.send(table), machine.send(np.asarray(ids_B, np.int32)), 1, 0)

    def logits(self) -> Array:
        """Each row's logits."""
        logits: Array = self._machine.logits[:, : self._machine.weights.V].cpu().numpy()
        return logits

    def take(self, rows: Sequence[int]) -> None:
        """Let row b go on from where row rows[b] stood."""
        self._machine.take(rows)
        self._begun = self._begun[list(rows)]


class NaiveWindows(LastTokens):
    """Windowed as the paper runs it: for every prediction a row reads its last k2 tokens again, in one launch."""

    def __init__(self, machine: Machine, k2: int) -> None:
        super().__init__(k2)
        self._machine = machine

    def logits(self) -> Array:
        """Each row's logits, after all windows have been read whole; shorter ones begin later: all end together."""
        machine = self._machine
        lengths = np.array([len(window) for window in self.windows])
        if machine.streams != len(lengths):
            machine.begin(len(lengths))
        table = np.zeros(len(lengths), ROW)
        steps = int(lengths.max())
        table["begun"], table["draws"] = machine.now + steps - lengths, FAR
        table["prompt"] = np.cumsum(lengths) - lengths
        tokens = np.array([token for window in self.windows for token in window], np.int32)
        machine.run(machine.send(table), machine.send(tokens), steps, steps - 1)
        logits: Array = machine.logits[:, : machine.weights.V].cpu().numpy()
        return logits


class _Flight:
    """Tokens on their way to the host."""

    def __init__(self, drawn: Tensor) -> None:
        self._drawn = torch.empty(drawn.shape, dtype=drawn.dtype, pin_memory=True)
        self._drawn.copy_(drawn, non_blocking=True)
        self._landed = torch.cuda.Event()
        self._landed.record()

    def result(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Ids and log-probabilities [T, B]; waits until they have arrived."""
        self._landed.synchronize()
        ids_TB, logprobs_TB = self._drawn.numpy()
        return ids_TB, logprobs_TB.view(np.float64)


class Draws:
    """Streams that read the tokens they draw: one launch for many tokens."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._seats = machine.send(np.zeros(0, ROW)), machine.send(np.zeros(0, np.int32))
        self._draws = 0

    @property
    def now(self) -> int:
        """The number of steps so far."""
        return self._machine.now

    @property
    def most_steps(self) -> int:
        """The most steps of one call of `draw`."""
        return self._machine.most_steps

    def begin(self, rows: int) -> None:
        """Hold this many rows."""
        self._machine.begin(rows)

    def take(self, rows: Sequence[int]) -> None:
        """Let row b go on from where row rows[b] stood."""
        self._machine.take(rows)

    def seat(self, seats: Sequence[Seat]) -> None:
        """Assign a stream to each row; a stream that begins now has read nothing."""
        prompts, prompt_start = [], 0
        table = np.zeros(len(seats), ROW)
        for row, seat in zip(table, seats, strict=True):
            fill(row, seat)
            if seat.draws >= self.now:  # its prompt has not been read to its end
                row["prompt"] = prompt_start
                prompts.append(seat.prompt)
                prompt_start += len(seat.prompt)
        tokens = np.concatenate(prompts) if prompts else np.zeros(0)
        self._seats = self._machine.send(table), self._machine.send(tokens.astype(np.int32))
        self._draws = min(seat.draws for seat in seats)

    def draw(self, steps: int) -> _Flight:
        """Take this many steps with all rows."""
        machine = self._machine
        drawn = torch.zeros(2, steps, machine.streams, dtype=torch.int64, device=machine.device)
        machine.run(*self._seats, steps, max(0, min(steps, self._draws - self.now)), drawn)
        with torch.cuda.device(machine.device):
            return _Flight(drawn)


def fill(row: np.void, seat: Seat) -> None:
    """Fill a stream's row of the table, all but the start of its prompt."""
    row["begun"], row["draws"], row["seed"] = seat.begun, seat.draws, seat.seed
    decoding: Decoding = seat.decoding
    row["temperature"] = decoding.temperature
    row["top_k"] = min(decoding.top_k or 0, FAR)
    row["top_p"] = 2.0 if decoding.top_p is None else decoding.top_p  # above 1: no limit
    row["log_min_p"] = math.log(decoding.min_p) if decoding.min_p else -math.inf
