"""The states of streams on an NVIDIA GPU, and the launches that advance all of them by many tokens (`products.cu`).

Shapes: B streams, T steps, H hidden, D dense, V vocabulary. States have a row for each window of each stream.
"""

from __future__ import annotations

import ctypes
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
from unroll.engines.cuda.steppers.one_stream import SCRATCH, divide_blocks
from unroll.engines.cuda.steppers.weights import (
    CHUNK,
    TILE,
    Place,
    Weights,
    can_be_halves,
    matrices_of_tiles,
    rows_of_tiles,
    tiles_of_matrices,
    tiles_of_rows,
)
from unroll.model.head import LEAK
from unroll.model.model import Model

_NAMES = ("products", "steps", "halves", "choice", "many", "messages", "one")
PIECES = [Path(__file__).with_name(f"{name}.cu") for name in _NAMES]
SOURCES = (Path(compiler.__file__).with_name("pointwise.cu"), *PIECES)
ON_HOPPER = (*SOURCES, Path(compiler.__file__).with_name("hopper_gates.cu"), Path(__file__).with_name("windows.cu"))
# As in products.cu, messages.cu and windows.cu.
WARPS, ALONE_WARPS, WINDOWS_WARPS, MOST_LAYERS, RNN = 16, 8, 11, 16, 4
OWN_SHARED = 4 * 1024  # bytes of a block's shared memory other than its weights and its warps' scratch
MOST_ALONE, MOST_HELD = 1024, 128  # the most hidden or dense units, and symbols, that `one` has room for
FEW_WINDOWS, COPIES, TOLD, SPREAD = 16, 8, 64, 32  # `windows` takes more than these few windows, eight at a time
WORK = 2**37  # products of a launch, a few hundredths of a second: a screen on the same GPU must not freeze
# The row of a stream, as `Row` in products.cu.
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
# The arguments of a launch, as `Arguments` in products.cu.
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
    """A kernel, its grid, its products' places, and a block's bytes of shared memory: for weights, and in all."""

    kernel: str
    blocks: int
    warps: int
    places: Tensor
    kept: int
    shared: int
    arrived: Tensor  # how many meetings each block has reached


class Machine:
    """The states of streams on the GPU, and launches that advance all of them; `now` counts the steps.

    For windows, which are many rows, the layers multiply in half precision if their weights fit into it.
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
        self._layers = layers
        self._states = len(model.cell.STATES)
        self.now = self.streams = 0

    def _task(self, kernel: str, blocks: int, warps: int, places: Sequence[Place], kept: int, shared: int) -> _Task:
        offsets = [list(vars(place).values()) for place in places]
        placed = torch.tensor(offsets, dtype=torch.int64, device=self.device)
        arrived = torch.zeros(blocks, dtype=torch.int32, device=self.device)
        return _Task(kernel, blocks, warps, placed, kept, shared, arrived)

    def _alone(self) -> _Task | None:
        """The kernel that takes a single stream faster than `generate`; None if it cannot take this model or GPU."""
        w = self.weights
        if max(w.H, w.D) > MOST_ALONE or w.V > MOST_HELD or self._rolling != w.in_halves:
            return None
        if self._rolling and (self.windows <= FEW_WINDOWS or not self._hopper):
            return None
        blocks = self._blocks // 2 * 2 if self._rolling else self._blocks  # blocks of windows come in pairs
        placed = divide_blocks(w.places, blocks, self._room, self.windows if self._rolling else None, w.V)
        if placed is None:
            return None
        kept = max(place.kept for place in placed if place.each)
        shared = max(kept + ALONE_WARPS * SCRATCH, *(place.shared for place in placed))
        kernel, warps = ("windows", WINDOWS_WARPS) if self._rolling else ("one", ALONE_WARPS)
        return self._task(kernel, blocks, warps, placed, kept, shared)

    def begin(self, streams: int) -> None:
        """Hold this many streams, whose states are undefined."""
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
        """Let stream b go on from where stream rows[b] stood."""
        chosen = torch.tensor(list(rows), device=self.device)
        windows = (chosen.unsqueeze(1) * self.windows + torch.arange(self.windows, device=self.device)).flatten()
        h = tiles_of_matrices(self._h) if self._in_matrices else self._h
        self.streams = len(rows)
        if self.weights.in_halves:
            h = tiles_of_rows(rows_of_tiles(h).index_select(2, windows))
        else:
            h = h.index_select(2, windows)
        self._h = matrices_of_tiles(h) if self._in_matrices else h
        self._c = self._c.index_select(1, windows)
        by_stream = self._last, self._top, self._dense, self.logits
        self._last, self._top, self._dense, self.logits = (tensor.index_select(0, chosen) for tensor in by_stream)

    @property
    def _in_matrices(self) -> bool:
        """Whether h has the layout of the kernel for one stream's windows."""
        return self.streams == 1 and self._one.kernel == "windows"

    @property
    def most_steps(self) -> int:
        """The most steps of one launch."""
        products = sum(place.groups * place.floats for place in self.weights.places)
        return max(1, WORK // (products * self.streams * self.windows))

    def run(self, rows: Tensor, prompts: Tensor, steps: int, quiet: int, drawn: Tensor | None = None) -> None:
        """Advance all streams. All but the first `quiet` steps predict; with `drawn` [2, T, B] they also draw."""
        w = self.weights
        task = self._one if self.streams == 1 else self._many
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
