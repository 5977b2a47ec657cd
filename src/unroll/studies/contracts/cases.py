"""Tiny experiments, corpora, models and tensors that rules are run on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unroll.corpus.corpus import Corpus
from unroll.engines.choice import engine_of
from unroll.experiment.experiment import Experiment
from unroll.experiment.scheme import Scheme
from unroll.model import cells
from unroll.model.initial_values import parameter_shapes
from unroll.model.model import Model
from unroll.studies.contracts import require
from unroll.training.learner import Learner

CPU = torch.device("cpu")
VOCABULARY = 7


def experiment(**changes: Any) -> Experiment:
    """An experiment whose steps take a millisecond; a scheme's fields may stand among the changes."""
    of_scheme = {name: changes.pop(name) for name in list(changes) if name in Scheme.__dataclass_fields__}
    scheme = Scheme(**{"k1": 3, "k2": 5} | of_scheme)
    small: dict[str, Any] = {"hidden": 5, "dense": 6, "rows": 3, "batches": 5, "precision": "float64", "device": "cpu"}
    return Experiment(**{"scheme": scheme} | small | changes)


def corpus(seed: int = 0, tokens: int = 300) -> Corpus:
    """A random text in which every symbol occurs."""
    drawn = np.random.default_rng(seed).integers(VOCABULARY, size=tokens - VOCABULARY)
    return Corpus.from_text("".join(chr(97 + i) for i in (*range(VOCABULARY), *drawn)))


def learner(*experiments: Experiment, kernel: str = "reference") -> Learner:
    """What trains these runs side by side."""
    return Learner(experiments, [corpus()] * len(experiments), engine_of(CPU, kernel))


def tensor(*shape: int, seed: int, scale: float = 1.0) -> Tensor:
    """Normal numbers."""
    return torch.from_numpy(np.random.default_rng(seed).normal(0, scale, shape))


def ids(*shape: int, seed: int = 0) -> Tensor:
    """Random tokens."""
    return torch.from_numpy(np.random.default_rng(seed).integers(VOCABULARY, size=shape))


def model(experiments: Sequence[Experiment], kernel: str = "reference", scale: float = 0.6) -> Model:
    """A model whose values are random throughout, first states and biases too."""
    values = []
    for one in experiments:
        generator = np.random.default_rng(one.seed + 1)
        shapes = parameter_shapes(one, cells.load(one.cell, one.peepholes), VOCABULARY)
        values.append({name: generator.normal(0, scale, shape) for name, shape in shapes.items()})
    return Model.stacked(experiments, [VOCABULARY] * len(experiments), values, engine_of(CPU, kernel))


def variants(cell: str) -> list[str]:
    """The choices of peepholes that change a cell's parameters."""
    shapes = [cells.load(cell, peepholes).extra_shapes(1) for peepholes in ("paper", "off")]
    return ["paper", "lasagne", "off"] if shapes[0] != shapes[1] else ["off"]


def gradients(output: Tensor, inputs: Sequence[Tensor], arriving: Tensor | Sequence[Tensor]) -> list[Tensor]:
    """As the engines ask for them: 0 where the output does not depend on an input."""
    maybe_none = torch.autograd.grad(output, inputs, arriving, allow_unused=True)
    return [torch.zeros_like(x) if d is None else d for x, d in zip(inputs, maybe_none, strict=True)]


def require_close(got: Tensor, expected: Tensor, what: str, tolerance: float = 1e-10) -> None:
    """Raise unless two tensors are equal but for rounding."""
    require(got.shape == expected.shape, f"{what} is {list(got.shape)}; it must be {list(expected.shape)}.")
    if not got.numel():
        return
    got, expected = got.detach(), expected.detach()
    error = float((got - expected).abs().max()) / max(float(expected.abs().max()), 1e-3)
    require(error <= tolerance, f"{what} is off by {error:.1e} of its largest element.")
