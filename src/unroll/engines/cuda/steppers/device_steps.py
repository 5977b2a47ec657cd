"""An NVIDIA GPU: rows read, predict and draw there, many tokens a launch (`products.cu`); the host only looks on.

Shapes: B streams, T steps, H hidden, D dense, V vocabulary. States have a row for each window of each stream.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unroll.base import randomness
from unroll.engines.cuda import cells, compiler
from unroll.engines.cuda.steppers.one_stream import SCRATCH, apart
from unroll.engines.cuda.steppers.weights import (
    CHUNK,
    FROM_X,
    TILE,
    Place,
    Weights,
    can_be_halves,
    matrices_of_tiles,
    rows_of_tiles,
    tiles_of_matrices,
    tiles_of_rows,
)
from unroll.engines.last_tokens import LastTokens
from unroll.experiment.decoding import Decoding
from unroll.model.cells import RecurrentCell
from unroll.model.head import LEAK
from unroll.model.model import Model
from unroll.model.steppers import Array, Drawer, Ids, Seat, Stepper

_NAMES = ("products", "steps", "halves", "choice", "many", "messages", "one")
PIECES = [Path(__file__).with_name(f"{name}.cu") for name in _NAMES]
SOURCES = (Path(compiler.__file__).with_name("pointwise.cu"), *PIECES)
ON_HOPPER = (*SOURCES, Path(compiler.__file__).with_name("hopper_gates.cu"), Path(__file__).with_name("windows.cu"))
# As in products.cu, messages.cu and windows.cu.
WARPS, ALONE_WARPS, WINDOWS_WARPS, MOST_LAYERS, RNN = 16, 8, 11, 16, 4
OWN_SHARED = 4 * 1024  # bytes of a block's shared memory that are neither weights nor its warps' own
MOST_ALONE, MOST_HELD = 1024, 128  # hidden and dense units, and symbols, that `one` has room for
FEW_WINDOWS, COPIES, TOLD, SPREAD = 16, 8, 64, 32  # `windows` does more, eight at a time
WORK = 2**37  # products of a launch, some hundredths of a second: a screen on the same GPU must not freeze
FAR = 2**62  # a step that never comes
PROCEDURES = ("progressive", "windowed", "windowed-naive")
# One stream, as `Row` in products.cu.
ROW = np.dtype(
    [
        ("begun", "i8"),
        ("draws", "i8"),
        ("prompt", "i8"),
        ("seed", "u8"),
        ("temperature", "f8"),
        ("top_p", "f8"),
        ("log_min_p", "f8"),
        ("top_k", "i8"),
    ]
)
# Its arguments, as `Arguments` there.
_POINTERS = (
    "weights",
    "places",
    "rows",
    "prompts",
    "last",
    "h",
    "c",
    "top",
    "dense",
    "logits",
    "ids",
    "logprobs",
    "arrived",
    "reached",
    "line",
)
_NUMBERS = (
    "layers",
    "streams",
    "windows",
    "rolling",
    "H",
    "D",
    "V",
    "padded_V",
    "steps",
    "quiet",
    "chooses",
    "halves",
    "scratch",
)


class _Arguments(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in _POINTERS),
        ("now", ctypes.c_longlong),
        *((name, ctypes.c_int) for name in _NUMBERS),
        ("leak", ctypes.c_float),
        ("purpose", ctypes.c_uint),
    )


@dataclass(frozen=True)
class _Task:
    """A kernel, its blocks and their warps, where it finds its products; bytes of weights a block keeps, and in all."""

    kernel: str
    blocks: int
    warps: int
    places: Tensor
    kept: int
    shared: int
    arrived: Tensor  # of each block, at how many meetings


def knows(cell: RecurrentCell) -> bool:
    """Whether there is code for a cell."""
    return type(cell) in FROM_X


def supports(model: Model, procedure: str) -> bool:
    """Whether the model computes on an NVIDIA GPU, in float32, in one of the cells known here."""
    return (
        model.device.type == "cuda"
        and model.dtype == torch.float32
        and knows(model.cell)
        and model.experiments[0].layers <= MOST_LAYERS
        and procedure in PROCEDURES
        and compiler.why_not() is None
        and torch.cuda.get_device_capability(model.device) >= (8, 0)
    )


def prepare(model: Model, k2: int, procedure: str) -> Stepper:
    """Rows that are told what to read."""
    if procedure == "windowed-naive":
        return Again(Machine(model, 1, rolling=False), k2)
    return Steps(_machine(model, k2, procedure))


def drawer(model: Model, k2: int, procedure: str) -> Drawer | None:
    """Rows that read what they draw; None for the procedure that reads everything again for each."""
    return None if procedure == "windowed-naive" else Draws(_machine(model, k2, procedure))


def _machine(model: Model, k2: int, procedure: str) -> Machine:
    rolling = procedure == "windowed"
    return Machine(model, k2 if rolling else 1, rolling)


class Machine:
    """The states of some streams on the GPU, and launches that advance all of them; `now` counts the steps.

    Of windows, which are many rows, the layers multiply in halves, where their weights can be those.
    """

    def __init__(self, model: Model, windows: int, rolling: bool, in_halves: bool | None = None) -> None:
        self.device = model.device
        with torch.no_grad(), torch.cuda.device(self.device):
            self.weights = Weights(model, (rolling if in_halves is None else in_halves) and can_be_halves(model))
            properties: Any = torch.cuda.get_device_properties(self.device)
            self._blocks = properties.multi_processor_count
            self._room = properties.shared_memory_per_block_optin - OWN_SHARED
            known = cells.number(model.cell)
            defines: dict[str, int | str | None] = {"CELL": RNN if known is None else known, "APPROXIMATE": 0}
            self._hopper = torch.cuda.get_device_capability(self.device)[0] == 9
            self._code = compiler.Module.load(ON_HOPPER if self._hopper else SOURCES, defines)
            w, layers = self.weights, model.experiments[0].layers
            length = COPIES * (2 * layers * w.H + w.D + 2 * w.padded_V + TOLD)
            self._line = torch.zeros(length, dtype=torch.int64, device=self.device)
            self._reached = torch.zeros(layers, -(-windows // TILE), SPREAD, dtype=torch.int32, device=self.device)
        self.windows, self._rolling = windows, rolling
        places, kept = w.resident(self._blocks, self._room - WARPS * SCRATCH)
        self._many = self._task("generate", self._blocks, WARPS, places, kept, kept + WARPS * SCRATCH)
        self._one = self._alone() or self._many
        self._layers, self._states = layers, len(model.cell.STATES)
        self.now = self.streams = 0

    def _task(self, kernel: str, blocks: int, warps: int, places: Sequence[Place], kept: int, shared: int) -> _Task:
        offsets = [list(vars(place).values()) for place in places]
        placed = torch.tensor(offsets, dtype=torch.int64, device=self.device)
        arrived = torch.zeros(blocks, dtype=torch.int32, device=self.device)
        return _Task(kernel, blocks, warps, placed, kept, shared, arrived)

    def _alone(self) -> _Task | None:
        """What does one stream faster than what does any number, if it is made for such a model and fits this GPU."""
        w = self.weights
        if max(w.H, w.D) > MOST_ALONE or w.V > MOST_HELD or self._rolling != w.in_halves:
            return None
        if self._rolling and (self.windows <= FEW_WINDOWS or not self._hopper):
            return None
        blocks = self._blocks // 2 * 2 if self._rolling else self._blocks  # those of windows come in pairs
        placed = apart(w.places, blocks, self._room, self.windows if self._rolling else None, w.V)
        if placed is None:
            return None
        kept = max(place.kept for place in placed if place.each)
        shared = max(kept + ALONE_WARPS * SCRATCH, *(place.shared for place in placed))
        kernel, warps = ("windows", WINDOWS_WARPS) if self._rolling else ("one", ALONE_WARPS)
        return self._task(kernel, blocks, warps, placed, kept, shared)

    def begin(self, streams: int) -> None:
        """So many streams, of which nothing is known."""
        w, rows = self.weights, streams * self.windows
        self.streams = streams
        shape = (-(-rows // TILE), w.H // CHUNK, TILE, CHUNK) if w.in_halves else (rows, w.H)
        h = torch.zeros(self._layers, 2, *shape, device=self.device)
        self._h = matrices_of_tiles(h) if self._in_matrices else h
        self._c = torch.zeros(self._layers if self._states > 1 else 0, rows, w.H, device=self.device)
        self._last = torch.zeros(streams, dtype=torch.int32, device=self.device)
        self._top = torch.zeros(streams, w.H, device=self.device)
        self._dense = torch.zeros(streams, w.D, device=self.device)
        self.logits = torch.zeros(streams, w.padded_V, device=self.device)

    def take(self, rows: Sequence[int]) -> None:
        """Stream b goes on from where stream rows[b] stood."""
        chosen = torch.tensor(list(rows), device=self.device)
        windows = (chosen.unsqueeze(1) * self.windows + torch.arange(self.windows, device=self.device)).flatten()
        h = tiles_of_matrices(self._h) if self._in_matrices else self._h
        self.streams = len(rows)
        if self.weights.in_halves:
            h = tiles_of_rows(rows_of_tiles(h).index_select(2, windows))
        else:
            h = h.index_select(2, windows)
        self._h, self._c = matrices_of_tiles(h) if self._in_matrices else h, self._c.index_select(1, windows)
        by_stream = self._last, self._top, self._dense, self.logits
        self._last, self._top, self._dense, self.logits = (held.index_select(0, chosen) for held in by_stream)

    @property
    def _in_matrices(self) -> bool:
        """Whether h lies as the kernel for the windows of one stream has it."""
        return self.streams == 1 and self._one.kernel == "windows"

    @property
    def most_steps(self) -> int:
        """Of one launch."""
        products = sum(place.groups * place.floats for place in self.weights.places)
        return max(1, WORK // (products * self.streams * self.windows))

    def run(self, rows: Tensor, prompts: Tensor, steps: int, quiet: int, drawn: Tensor | None = None) -> None:
        """Advance all streams; all but the first `quiet` steps predict, and with `drawn` [2, T, B] draw, too."""
        w, task = self.weights, self._one if self.streams == 1 else self._many
        tensors = {
            "weights": w.flat, "places": task.places, "rows": rows, "prompts": prompts, "last": self._last,
            "h": self._h, "c": self._c, "top": self._top, "dense": self._dense, "logits": self.logits,
            "arrived": task.arrived, "reached": self._reached, "line": self._line,
        }  # fmt: skip
        if drawn is not None:
            tensors |= {"ids": drawn[0], "logprobs": drawn[1]}
        arguments = _Arguments(
            **{name: tensor.data_ptr() for name, tensor in tensors.items()},
            now=self.now, layers=self._layers, streams=self.streams, windows=self.windows, rolling=self._rolling,
            H=w.H, D=w.D, V=w.V, padded_V=w.padded_V, steps=steps, quiet=quiet, chooses=drawn is not None,
            halves=w.in_halves, scratch=task.kept // 4, leak=LEAK, purpose=randomness.purpose_word("sample"),
        )  # fmt: skip
        with torch.cuda.device(self.device):
            code = self._code[task.kernel].allow(task.shared)
            code.launch((task.blocks,), 32 * task.warps, arguments, together=True)
        self.now += steps

    def send(self, array: NDArray[np.generic]) -> Tensor:
        """A copy on the GPU, of at least one byte."""
        whole = np.ascontiguousarray(array).view(np.uint8).reshape(-1) if array.size else np.zeros(1, np.uint8)
        return torch.from_numpy(whole).to(self.device)


class Steps:
    """Streams that are told what to read: a launch a token."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._begun = np.zeros(0, np.int64)

    def begin(self, rows: int) -> None:
        """So many rows, none of which has read anything."""
        self._machine.begin(rows)
        self._begun = np.full(rows, self._machine.now)

    def restart(self, rows: Sequence[int]) -> None:
        """These rows have read nothing."""
        self._begun[list(rows)] = self._machine.now

    def read(self, ids_B: Ids) -> None:
        """Each row reads one token."""
        machine = self._machine
        table = np.zeros(len(ids_B), ROW)
        # A stream looks for its n-th token n places behind its prompt's first.
        table["begun"], table["draws"] = self._begun, FAR
        table["prompt"] = np.arange(len(ids_B)) - (machine.now - self._begun)
        machine.run(machine.send(table), machine.send(np.asarray(ids_B, np.int32)), 1, 0)

    def logits(self) -> Array:
        """What each row predicts."""
        logits: Array = self._machine.logits[:, : self._machine.weights.V].cpu().numpy()
        return logits

    def take(self, rows: Sequence[int]) -> None:
        """Row b goes on from where row rows[b] stood."""
        self._machine.take(rows)
        self._begun = self._begun[list(rows)]


class Again(LastTokens):
    """As the paper runs it: for every prediction a row's last k2 tokens are read again, in one launch."""

    def __init__(self, machine: Machine, k2: int) -> None:
        super().__init__(k2)
        self._machine = machine

    def logits(self) -> Array:
        """All windows are read whole, the shorter ones from later on, so that they end together."""
        machine, lengths = self._machine, np.array([len(window) for window in self.windows])
        if machine.streams != len(lengths):
            machine.begin(len(lengths))
        table, steps = np.zeros(len(lengths), ROW), int(lengths.max())
        table["begun"], table["draws"] = machine.now + steps - lengths, FAR
        table["prompt"] = np.cumsum(lengths) - lengths
        tokens = np.array([token for window in self.windows for token in window], np.int32)
        machine.run(machine.send(table), machine.send(tokens), steps, steps - 1)
        logits: Array = machine.logits[:, : machine.weights.V].cpu().numpy()
        return logits


class _Flight:
    """Tokens on their way to the host."""

    def __init__(self, drawn: Tensor) -> None:
        self._here = torch.empty(drawn.shape, dtype=drawn.dtype, pin_memory=True)
        self._here.copy_(drawn, non_blocking=True)
        self._landed = torch.cuda.Event()
        self._landed.record()

    def result(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Ids and log-probabilities [T, B], as soon as they are here."""
        self._landed.synchronize()
        ids_TB, logprobs_TB = self._here.numpy()
        return ids_TB, logprobs_TB.view(np.float64)


class Draws:
    """Streams that read what they draw: a launch for many tokens."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._seats = machine.send(np.zeros(0, ROW)), machine.send(np.zeros(0, np.int32))
        self._draws = 0

    @property
    def now(self) -> int:
        """Steps so far."""
        return self._machine.now

    @property
    def most_steps(self) -> int:
        """Of one call of `draw`."""
        return self._machine.most_steps

    def begin(self, rows: int) -> None:
        """So many rows."""
        self._machine.begin(rows)

    def take(self, rows: Sequence[int]) -> None:
        """Row b goes on from where row rows[b] stood."""
        self._machine.take(rows)

    def seat(self, seats: Sequence[Seat]) -> None:
        """Who each row's stream is; one that begins now has read nothing."""
        prompts, place = [], 0
        table = np.zeros(len(seats), ROW)
        for row, seat in zip(table, seats, strict=True):
            fill(row, seat)
            if seat.draws >= self.now:  # its prompt has not been read to its end
                row["prompt"] = place
                prompts.append(seat.prompt)
                place += len(seat.prompt)
        tokens = np.concatenate(prompts) if prompts else np.zeros(0)
        self._seats = self._machine.send(table), self._machine.send(tokens.astype(np.int32))
        self._draws = min(seat.draws for seat in seats)

    def draw(self, steps: int) -> _Flight:
        """So many steps of all rows."""
        machine = self._machine
        drawn = torch.zeros(2, steps, machine.streams, dtype=torch.int64, device=machine.device)
        machine.run(*self._seats, steps, max(0, min(steps, self._draws - self.now)), drawn)
        with torch.cuda.device(machine.device):
            return _Flight(drawn)


def fill(row: np.void, seat: Seat) -> None:
    """A stream's entry in the table, its prompt's place aside."""
    row["begun"], row["draws"], row["seed"] = seat.begun, seat.draws, seat.seed
    decoding: Decoding = seat.decoding
    row["temperature"], row["top_k"] = decoding.temperature, min(decoding.top_k or 0, FAR)
    row["top_p"] = 2.0 if decoding.top_p is None else decoding.top_p  # above 1: none
    row["log_min_p"] = math.log(decoding.min_p) if decoding.min_p else -math.inf
