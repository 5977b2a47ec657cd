"""How many numbers the tensor files of a run hold, by its experiment alone: for limits and estimates of disk space."""

from __future__ import annotations

from unroll.experiment.experiment import Experiment
from unroll.model import cells, optimisers
from unroll.model.initial_values import parameter_count


def weights_numbers(experiment: Experiment, unique: int) -> int:
    """Numbers in weights.safetensors, and in best.safetensors: the parameters and, where carried, the last states."""
    states = _state_numbers(experiment) if experiment.scheme.carries else 0
    return parameter_count(experiment, unique) + states


def checkpoint_numbers(experiment: Experiment, unique: int) -> int:
    """Numbers in a checkpoint: parameters, what the optimiser keeps of each, every row's states, the best weights."""
    tensors = 1 + len(optimisers.load(experiment.optimiser).MOMENTS)
    last = tensors * parameter_count(experiment, unique) + _state_numbers(experiment)
    return last + weights_numbers(experiment, unique)


def _state_numbers(experiment: Experiment) -> int:
    e = experiment
    return e.layers * len(cells.load(e.cell, e.peepholes).STATES) * e.rows * e.hidden
