"""What a run learns does not depend on how many threads compute it: every kernel, cell and optimiser."""

from __future__ import annotations

import pytest
import torch
from helpers import CPU, every_kernel, every_plugin, relative_error, tiny, tiny_corpus, torch_threads

from unroll import Experiment
from unroll.engines.choice import engine_of
from unroll.runs.perplexities import token_nll
from unroll.training.learner import Learner

STEPS, TOLERANCE = 6, 1e-10


def learned(run: Experiment, kernel: str, threads: int) -> dict[str, torch.Tensor]:
    """Two runs side by side after a few batches: all that a step changes, and what they predict."""
    corpora = [tiny_corpus(), tiny_corpus()]
    with torch_threads(threads):
        learner = Learner([run, run], corpora, engine_of(CPU, kernel))
        for _ in range(STEPS):
            learner.step()
        texts = [torch.from_numpy(corpus.ids[:60].astype("int64")) for corpus in corpora]
        predicted = token_nll(learner.model, texts, run.scheme.k2, "windowed")
    found = {f"changed {n}": value.clone() for n, value in enumerate(learner.changing())}
    return found | {f"predicted {m}": value for m, value in enumerate(predicted)}


def same(run: Experiment, kernel: str) -> bool:
    """Whether two and three threads learn what one does, but for the order of sums in float64."""
    alone, several = learned(run, kernel, 1), [learned(run, kernel, threads) for threads in (2, 3)]
    return all(relative_error(found[name], value) <= TOLERANCE for found in several for name, value in alone.items())


@every_kernel
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_every_kernel_learns_the_same_with_any_number_of_threads(
    kernel: str, cell: str, peepholes: str, dropout: float
) -> None:
    run = tiny(cell=cell, peepholes=peepholes, precision="float64", dropout=dropout, layers=2)
    assert same(run, kernel)


@every_plugin("optimisers")
@pytest.mark.parametrize("kernel", ["compiled", "stacked"])
def test_every_optimiser_changes_the_same_with_any_number_of_threads(name: str, kernel: str) -> None:
    assert same(tiny(optimiser=name, precision="float64"), kernel)
