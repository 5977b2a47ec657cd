"""What training and scoring cost here, tried before anything is trained: batches and texts of a fleet of each kind."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from unroll.base.errors import UnrollError
from unroll.corpus.open_corpora import Library
from unroll.engines import devices
from unroll.engines.choice import engine_of
from unroll.experiment.experiment import Experiment
from unroll.experiment.run_names import shape_of
from unroll.runs.perplexities import token_nll
from unroll.sweep import measuring
from unroll.sweep.plan import Fleet, Plan
from unroll.training import memory
from unroll.training.learner import Learner

FEW, MANY = 200, 800  # tokens that are scored in a trial


@dataclass(frozen=True)
class Tried:
    """Seconds of all fleets of a plan, one after another."""

    batch: float  # a batch of every run
    score: float  # to score a set of every run: a call
    token: float  # and each token of it


def tried(plan: Plan, experiments: Mapping[str, Experiment], library: Library) -> Tried:
    """The cost of all fleets; of those with one shape, one pace and the same sampling procedures one is tried."""
    alike: dict[Any, list[Fleet]] = {}
    for fleet in plan.fleets:
        members = [experiments[name] for name in fleet.runs]
        procedures = tuple(sorted(e.scheme.sample for e in members))
        key = (
            fleet.milliseconds,
            fleet.threads,
            procedures,
            shape_of(members[0]),
            members[0].scheme.k2,
            members[0].rows,
        )
        alike.setdefault(key, []).append(fleet)
    batch = score = token = 0.0
    for fleets in alike.values():
        first, share = fleets[0], sum(fleet.work for fleet in fleets) / fleets[0].work
        try:
            each = _fleet(first, [experiments[name] for name in first.runs], library)
        except Exception as error:
            if not (isinstance(error, UnrollError) or memory.ran_out(error)):
                raise
            continue  # what is wrong is said where it is trained
        finally:
            devices.give_back()
        batch, score, token = batch + share * each.batch, score + share * each.score, token + share * each.token
    return Tried(batch, score, token)


def _fleet(fleet: Fleet, experiments: Sequence[Experiment], library: Library) -> Tried:
    runs = [
        replace(e, device=devices.places(fleet.device)[0], kernel=fleet.kernel, threads=fleet.threads)
        for e in experiments
    ]
    corpora = [library.open(run) for run in runs]
    milliseconds = fleet.milliseconds or measuring.pace(runs, corpora, lambda: None).milliseconds
    device, k2 = devices.find(runs[0].device), runs[0].scheme.k2
    torch.set_num_threads(runs[0].threads or 1)
    model = Learner(runs, corpora, engine_of(device, runs[0].kernel)).model

    procedures = [run.scheme.sample for run in runs]

    def seconds(tokens: int) -> float:
        texts = [
            torch.from_numpy(corpus.test_ids(run.split_seed)[: k2 + tokens].astype("int64")).to(device)
            for run, corpus in zip(runs, corpora, strict=True)
        ]
        taken = 0.0
        for procedure in dict.fromkeys(procedures):  # a run is scored under its own, beside others of the same
            began = time.perf_counter()
            token_nll(model, texts, k2, procedure)
            devices.wait(device)
            taken += (time.perf_counter() - began) * procedures.count(procedure) / len(procedures)
        return taken

    seconds(FEW)  # does what is done only once
    few, many = seconds(FEW), seconds(MANY)
    token = max(many - few, 0.0) / (MANY - FEW)
    return Tried(milliseconds * len(runs) / 1000, max(few - FEW * token, 0.0), token)
