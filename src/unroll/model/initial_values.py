"""The initial values of a run: they depend on its seed, and not on the scheme, the fleet or the device.

Each matrix draws from a random stream that is named after it, so that adding a layer leaves the others unchanged.
Values are drawn in float64 at the run's own vocabulary size; padding comes later and is 0.

Shapes: V vocabulary, H hidden, G gate columns, D dense.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from unroll.base import randomness
from unroll.experiment.experiment import Experiment
from unroll.model import cells
from unroll.model.cells import RecurrentCell

Array = NDArray[np.float64]
PEEPHOLE_DEVIATION = 0.1
KEPT, KEPT_SIZE = 96, 1 << 17  # matrices that are kept, and the values of the largest: 100 MB at most


def parameter_shapes(experiment: Experiment, cell: RecurrentCell, V: int) -> dict[str, tuple[int, ...]]:
    """The names and shapes of one run's parameters, in the order of the data."""
    H, G = experiment.hidden, cell.GATES * experiment.hidden
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in range(experiment.layers):
        layer_shapes = {"W_x": (H if layer else V, G), "W_h": (H, G), **cell.extra_shapes(H), "b": (G,)}
        layer_shapes |= {f"{name}0": (H,) for name in cell.STATES}
        shapes |= {f"layers.{layer}.{name}": shape for name, shape in layer_shapes.items()}
    D = experiment.dense
    if D:
        shapes |= {"dense.W": (H, D), "dense.b": (D,)}
    return shapes | {"out.W": (D or H, V), "out.b": (V,)}


def parameter_count(experiment: Experiment, V: int) -> int:
    """The number of one run's parameters."""
    cell = cells.load(experiment.cell, experiment.peepholes)
    return sum(math.prod(shape) for shape in parameter_shapes(experiment, cell, V).values())


def initial_parameters(experiment: Experiment, cell: RecurrentCell, V: int) -> dict[str, Array]:
    """Orthogonal gates, a Glorot head, small random peepholes; biases and first states at 0."""
    values = {}
    for name, shape in parameter_shapes(experiment, cell, V).items():
        kind = name.rpartition(".")[2]
        if kind in ("W_x", "W_h"):
            inputs, hidden = shape[0], experiment.hidden
            gates = [_orthogonal(experiment.seed, f"{name}.{g}", inputs, hidden) for g in range(cell.GATES)]
            values[name] = np.concatenate(gates, axis=1)
        elif kind == "W":
            values[name] = _glorot(experiment.seed, name, *shape)
        elif name.startswith("layers.") and kind in cell.extra_shapes(experiment.hidden):
            count = math.prod(shape)
            values[name] = PEEPHOLE_DEVIATION * randomness.normal(experiment.seed, name, 0, count).reshape(shape)
        else:
            values[name] = np.zeros(shape)
        if kind == "b" and experiment.cell == "lstm" and name.startswith("layers."):
            values[name][experiment.hidden : 2 * experiment.hidden] = experiment.forget_bias
    return values


def _orthogonal(seed: int, name: str, rows: int, columns: int) -> Array:
    """Orthonormal rows or columns, whichever are fewer, uniformly distributed.

    On a busy machine a small one may take a tenth of a second. Plans, trials and resumed runs ask for the same again.
    """
    return (_kept if rows * columns <= KEPT_SIZE else _drawn)(seed, name, rows, columns)


def _drawn(seed: int, name: str, rows: int, columns: int) -> Array:
    tall = randomness.normal(seed, name, 0, rows * columns).reshape(max(rows, columns), min(rows, columns))
    q, r = np.linalg.qr(tall)
    q = q * np.sign(np.diag(r))  # else the sign convention of QR would make the distribution uneven
    drawn: Array = np.ascontiguousarray(q if rows >= columns else q.T)
    drawn.flags.writeable = False
    return drawn


_kept = lru_cache(KEPT)(_drawn)


def _glorot(seed: int, name: str, rows: int, columns: int) -> Array:
    """Uniform in ±sqrt(6 / (rows + columns))."""
    limit = math.sqrt(6.0 / (rows + columns))
    return (2.0 * randomness.uniform(seed, name, 0, rows * columns) - 1.0).reshape(rows, columns) * limit
