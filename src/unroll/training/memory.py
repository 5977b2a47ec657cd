"""How many bytes a fleet needs, and how many there are.

An estimate, from shapes alone: what is held between batches, and the most that is alive during one. It decides only
how many runs are tried side by side; what really does not fit is noticed when it happens.

Shapes: T time, B rows, K scored positions, H hidden, D dense, V vocabulary.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import torch

from unroll.base import limits
from unroll.corpus.batches import Schedule
from unroll.corpus.corpus import Corpus
from unroll.engines import devices
from unroll.experiment.experiment import Experiment
from unroll.model import cells, optimisers
from unroll.model.initial_values import parameter_shapes
from unroll.training.fleet import padded

FREE = 0.1  # of what there is, kept for everything else
EVALUATED_ROWS = 1024  # windows that an evaluation reads side by side


def run_bytes(experiment: Experiment, vocabulary: int) -> int:
    """The memory that one more run of a fleet needs while it trains."""
    e, V = experiment, padded(vocabulary)
    cell = cells.load(e.cell, e.peepholes)
    T, B, K, H, D = e.scheme.k2, e.rows, e.scheme.scored, e.hidden, e.dense
    G, states = cell.GATES * H, len(cell.STATES)
    sizes = [math.prod(shape) for shape in parameter_shapes(e, cell, V).values()]
    # Weights, gradients and moments; and while one parameter is updated, a few copies of it.
    weights = sum(sizes) * (2 + len(optimisers.load(e.optimiser).MOMENTS)) + 6 * max(sizes)
    # For each layer what its backward pass needs; for the one at work also the gates' sums and their gradients.
    layers = T * B * (e.layers * (G + 2 * H + states * H) + 4 * G + (states + 1) * H)
    head = K * B * (2 * H + 2 * D + 3 * V)
    if e.dropout:
        head += K * B * (H + D) * 8  # random words are 64 bits wide, and several are at work
    return (weights + layers + head) * _width(e)


def order_bytes(experiment: Experiment, corpus: Corpus) -> int:
    """The memory for the order of shuffled windows, which stays on the host."""
    if not experiment.shuffle or not devices.keeps_order_on_host(experiment.device):
        return 0
    return 4 * Schedule(experiment, corpus.split(experiment.split_seed, experiment.validation).train).windows


def shared_bytes(experiments: Sequence[Experiment], corpora: Sequence[Corpus]) -> int:
    """What does not grow with the number of runs: the texts once each, and one evaluation."""
    text = sum({corpus.sha256: corpus.ids.nbytes for corpus in corpora}.values())
    return text + _evaluation_bytes(experiments[0], padded(max(corpus.unique for corpus in corpora)))


def fleet_bytes(experiments: Sequence[Experiment], corpora: Sequence[Corpus]) -> int:
    """The memory that these runs need side by side: each alone, and what they share."""
    V = padded(max(corpus.unique for corpus in corpora))
    orders = {(e.seed, size): size for e, c in zip(experiments, corpora, strict=True) if (size := order_bytes(e, c))}
    alone = len(experiments) * max(run_bytes(e, V) for e in experiments)
    return alone + sum(orders.values()) + shared_bytes(experiments, corpora)


def _evaluation_bytes(experiment: Experiment, V: int) -> int:
    e = experiment
    G = cells.load(e.cell, e.peepholes).GATES * e.hidden
    return EVALUATED_ROWS * ((3 * G + 2 * e.dense) * _width(e) + 3 * V * 8)


def _width(experiment: Experiment) -> int:
    """Bytes a number; narrower precisions keep 32-bit weights, so they count as those."""
    return 8 if experiment.precision == "float64" else 4


def batch_work(experiment: Experiment, vocabulary: int) -> float:
    """Multiplications in one batch of one run: what the time of different runs is compared by."""
    e, cell = experiment, cells.load(experiment.cell, experiment.peepholes)
    G = cell.GATES * e.hidden
    layers = e.scheme.k2 * (e.layers * e.hidden * G + (e.layers - 1) * e.hidden * G)
    V = padded(vocabulary)
    head = e.dense * (e.hidden + V) if e.dense else e.hidden * V
    return 3.0 * e.rows * (layers + e.scheme.scored * head)


def available(device: torch.device) -> int:
    """Bytes that a fleet may take on a device."""
    free = devices.free_memory(device)
    if free is not None:
        return int(free * (1 - FREE))
    most = min(_free_in_system(), _free_in_container(), limits.memory_left())
    return int(most * (1 - FREE)) if math.isfinite(most) else sys.maxsize  # a system that tells nothing


def _free_in_system() -> float:
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text("utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024.0 * int(line.split()[1])
    with suppress(OSError, ValueError, AttributeError):
        return 0.5 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return _free_in_windows()


def _free_in_windows() -> float:
    status = _MemoryStatus(ctypes.sizeof(_MemoryStatus))
    with suppress(OSError, AttributeError):
        if ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):  # type: ignore[attr-defined]
            return float(status.free)
    return math.inf


class _MemoryStatus(ctypes.Structure):
    """What Windows tells of the memory; the numbers that are not looked at are together."""

    _fields_ = (
        ("bytes", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        ("total", ctypes.c_uint64),
        ("free", ctypes.c_uint64),
        ("others", ctypes.c_uint64 * 5),
    )


def _free_in_container() -> float:
    """A container's limit is not in /proc/meminfo."""
    folder = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):
        most, in_use = (int((folder / name).read_text("utf-8")) for name in ("memory.max", "memory.current"))
        return float(most - in_use)
    return math.inf


def in_words(bytes_: float) -> str:
    """1.2 GB, 34 MB."""
    return f"{bytes_ / 1e9:,.1f} GB" if bytes_ >= 1e9 else f"{math.ceil(bytes_ / 1e6):,} MB"


def ran_out(error: BaseException) -> bool:
    """Whether an error says that there was not enough memory, on whichever device."""
    lack = limits.shortage(error)
    return lack is not None and lack.of == limits.MEMORY
