"""How long a plan will take: each fleet's training and its evaluations, tried with a few batches and a piece of text.

What is tried is measured while that is quick; the rest follows from each fleet's work.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from unroll.base.errors import UnrollError
from unroll.corpus.corpus import Corpus
from unroll.corpus.open_corpora import Library
from unroll.engines import devices
from unroll.engines.choice import engine_of
from unroll.experiment.experiment import Experiment
from unroll.model import conditioning
from unroll.runs.perplexities import token_nll
from unroll.sweep import measuring
from unroll.sweep.plan import Fleet, Plan
from unroll.training import memory
from unroll.training.bookkeeping import evaluation_points
from unroll.training.learner import Learner

PATIENCE = 20.0  # seconds of trying
PIECE = 512  # tokens of each test set that are predicted


@dataclass(frozen=True)
class Forecast:
    """Seconds that a fleet will take, and in how many evaluations of each of its runs."""

    training: float
    evaluation: float
    evaluations: int


def forecast(plan: Plan, experiments: Mapping[str, Experiment], library: Library) -> dict[str, Forecast]:
    """The forecast of each fleet that can be tried here, by its name; the smallest fleets are tried first."""
    forecasts: dict[str, Forecast] = {}
    spent = train_rate = score_rate = 0.0
    for fleet in sorted(plan.fleets, key=lambda fleet: fleet.work):
        runs = [
            replace(
                experiments[name], device=devices.places(fleet.device)[0], kernel=fleet.kernel, threads=fleet.threads
            )
            for name in fleet.runs
        ]
        batches = sum(run.batches for run in runs)
        try:
            corpora = [library.open(run) for run in runs]
            if spent < PATIENCE:
                began = time.perf_counter()
                each = fleet.milliseconds or measuring.pace(runs, corpora, lambda: None).milliseconds
                train_rate = each / 1000 * batches / fleet.work
                score_rate = _token_seconds(runs, corpora) / _work(fleet, batches)
                spent += time.perf_counter() - began
        except Exception as error:
            if not (isinstance(error, UnrollError) or memory.ran_out(error)):
                raise
            continue  # its text, its device or its memory is not to be had here: training says so
        finally:
            devices.give_back()
        points = max(len(evaluation_points(run.batches, run.evaluations)) for run in runs)
        seconds = score_rate * _work(fleet, batches) * _positions(runs, corpora)
        forecasts[fleet.name] = Forecast(train_rate * fleet.work, seconds, points)
    return forecasts


def _work(fleet: Fleet, batches: int) -> float:
    """The multiplications of one run's batch, to which those of a scored token are in proportion."""
    return fleet.work / batches


def _positions(runs: Sequence[Experiment], corpora: Sequence[Corpus]) -> int:
    """How many tokens of a run's test set are scored in the whole of it, by the longest of these runs."""
    return max(_scored(run, _tokens(run, corpus)) for run, corpus in zip(runs, corpora, strict=True))


def _scored(run: Experiment, tokens: int) -> int:
    points = len(evaluation_points(run.batches, run.evaluations))
    both = run.evaluate == "both"
    return tokens * ((2 if both else 1) * points + (0 if both else 1))  # the last point is scored both ways


def _tokens(run: Experiment, corpus: Corpus) -> int:
    test = corpus.split(run.split_seed).test
    return min(test, run.test_tokens or test) - run.scheme.k2


def _token_seconds(runs: Sequence[Experiment], corpora: Sequence[Corpus]) -> float:
    """The seconds that all of these runs side by side take to score one token each, under the first one's procedure."""
    device, k2 = devices.find(runs[0].device), runs[0].scheme.k2
    torch.set_num_threads(runs[0].threads or 1)
    model = Learner(runs, corpora, engine_of(device, runs[0].kernel)).model
    texts = [
        torch.from_numpy(corpus.test_ids(run.split_seed)[: k2 + PIECE].astype("int64")).to(device)
        for run, corpus in zip(runs, corpora, strict=True)
    ]
    procedure = runs[0].scheme.sample
    few = max(len(text) for text in texts) - (k2 if conditioning.forgets(procedure) else 0)
    for _ in range(2):  # the first also does what is done only once
        began = time.perf_counter()
        token_nll(model, texts, k2, procedure)
        devices.wait(device)
        taken = time.perf_counter() - began
    return taken / few
