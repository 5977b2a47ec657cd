"""What is measured of the setting that is taken: perplexity on the whole test set, time, what a sample costs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from unroll.base.errors import UnrollError
from unroll.corpus.corpus import Corpus
from unroll.engines import devices
from unroll.experiment.experiment import Experiment
from unroll.model.conditioning import PROCEDURES
from unroll.runs.folder import RunFolder
from unroll.runs.loaded import load
from unroll.runs.perplexities import token_nll
from unroll.runs.selection import BEST
from unroll.sweep import measuring
from unroll.sweep.comparison.measures import microseconds, with_corpus
from unroll.training import memory
from unroll.training.bookkeeping import evaluation_points


@dataclass(frozen=True)
class Measures:
    """The setting's runs at their best evaluations, and what one full run of it takes here."""

    nats: tuple[float | None, ...]  # of the whole test set, by run; None where a run has no finite one
    other: float | None  # by how much those of its first whole run are more under the other sampling procedure
    microseconds: dict[str, float]  # a sampled token of one text, by procedure
    batch_ms: float | None  # a batch of one run alone
    training: float | None  # seconds of a full run
    evaluating: float | None  # and of its evaluations
    bytes: int  # that training needs, by estimate


def measured(
    experiment: Experiment,
    runs: Sequence[RunFolder],
    corpus: Corpus,
    between: Callable[[], None] = lambda: None,
) -> Measures:
    """Measure the runs of one setting, whose length is that of the full run."""
    ids = torch.from_numpy(corpus.test_ids(experiment.split_seed).astype("int64"))
    scheme, nats = experiment.scheme, []
    other: float | None = None
    micro: dict[str, float] = {}
    scoring: float | None = None
    for folder in runs:
        between()
        own: float | None = None
        try:
            run = with_corpus(load(folder.path, weights=BEST), corpus)
            began = time.perf_counter()
            own = _nats(run.model, ids, scheme.k2, scheme.sample, between)
            scoring = time.perf_counter() - began
            if not micro:
                found = {each: microseconds(run, each, between) for each in PROCEDURES}
                micro = {each: taken for each, taken in found.items() if taken is not None}
                rest = next((each for each in PROCEDURES if each != scheme.sample), None)
                under = _nats(run.model, ids, scheme.k2, rest, between) if rest else None
                other = None if own is None or under is None else under - own
        except UnrollError:  # its weights are gone, or its numbers are not finite
            pass
        nats.append(own)
    alone = _batch_ms(experiment, corpus, between)
    sets = 2 if experiment.validation or experiment.validation_file else 1
    points = len(evaluation_points(experiment.batches))
    return Measures(
        tuple(nats),
        other,
        micro,
        alone,
        None if alone is None else alone * experiment.batches / 1000,
        None if scoring is None else scoring * sets * points,
        memory.fleet_bytes([experiment], [corpus]),
    )


def _nats(model, ids, k2, procedure, between) -> float | None:  # type: ignore[no-untyped-def]
    (nll_NR,) = token_nll(model, [ids.to(model.device)], k2, procedure, between=between)
    mean = float(nll_NR.mean())
    return mean if math.isfinite(mean) else None


def _batch_ms(experiment: Experiment, corpus: Corpus, between: Callable[[], None]) -> float | None:
    """A batch of a run alone, on all threads."""
    try:
        return measuring.pace([devices.resolve(replace(experiment, threads=None))], [corpus], between).milliseconds
    except Exception as error:
        if not (isinstance(error, UnrollError) or memory.ran_out(error)):
            raise
        return None
    finally:
        devices.give_back()
