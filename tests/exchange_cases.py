"""Runs whose values are random throughout, as if trained: what goes to and from torch and ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from helpers import tiny, tiny_corpus

from unroll import SCHEMES, Experiment, Run, load
from unroll.corpus.corpus import Corpus
from unroll.model import cells
from unroll.model.initial_values import parameter_shapes
from unroll.model.precisions import PRECISIONS
from unroll.runs.folder import RunFolder

SYMBOLS = 7


def of_scheme(number: int, **changes: Any) -> Experiment:
    """A tiny experiment in float32 under one of the paper's schemes."""
    scheme = SCHEMES[number]
    named = {name: getattr(scheme, name) for name in ("loss", "state", "sample")}
    return tiny(**{"precision": "float32", **named, **changes})


def random_values(experiment: Experiment, scale: float = 0.6, seed: int = 1) -> dict[str, torch.Tensor]:
    """A run's weights, first states too; where states are learned none is carried."""
    cell = cells.load(experiment.cell, experiment.peepholes)
    shapes = parameter_shapes(experiment, cell, SYMBOLS)
    if experiment.scheme.carries:
        row = (experiment.rows, experiment.hidden)
        shapes |= {f"carried.{n}.{name}": row for n in range(experiment.layers) for name in cell.STATES}
    generator, dtype = np.random.default_rng(seed), PRECISIONS[experiment.precision].kept
    values = {name: torch.from_numpy(generator.normal(0, scale, shape)).to(dtype) for name, shape in shapes.items()}
    if experiment.scheme.carries:
        # A text starts from 0 there: the learned state is never trained.
        values |= {name: torch.zeros_like(value) for name, value in values.items() if name.endswith(("h0", "c0"))}
    return values


def random_run(folder: Path, experiment: Experiment, corpus: Corpus | None = None, scale: float = 0.6) -> Run:
    """A finished run that holds such values."""
    corpus = corpus or tiny_corpus(symbols=SYMBOLS)
    described = corpus.described_in(experiment)
    run = RunFolder.create(folder, described, corpus.vocabulary)
    clocks = {"seconds": 0.0, "evaluating": 0.0}
    facts = {"vocabulary": corpus.vocabulary.digest, **{name: repr(value) for name, value in clocks.items()}}
    run.finish(random_values(described, scale), facts, {"state": "finished", "batch": 0, **clocks})
    return load(folder, "cpu")
