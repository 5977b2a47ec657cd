"""All runs of a stage on the same tokens of the validation set, at the best evaluation of each.

During training a run is scored from its own k2 on, so runs of different k2 are scored on different tokens. Here every
run predicts the same ones, after as many as the longest window holds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

import numpy as np
import torch

from unroll.base.errors import UnrollError
from unroll.corpus.corpus import Corpus
from unroll.corpus.tokens import Ids
from unroll.experiment.experiment import Experiment
from unroll.runs.folder import RunFolder
from unroll.runs.loaded import load
from unroll.runs.perplexities import token_nll
from unroll.runs.selection import BEST

MOST_TOKENS, LEAST_TOKENS = 4_000, 500  # that are predicted


def choosing_ids(experiment: Experiment, corpus: Corpus) -> Ids:
    """The ids of the set that chooses: the validation set, or the test set where there is none."""
    if experiment.validation or corpus.validation_part:
        return corpus.validation_ids(experiment.split_seed, experiment.validation)
    return corpus.test_ids(experiment.split_seed)


def scores(
    folders: Mapping[str, RunFolder],
    experiments: Mapping[str, Experiment],
    corpus: Corpus,
    between: Callable[[], None] = lambda: None,
    seconds: float = math.inf,
) -> dict[str, float]:
    """Nats a token of each run, all on the same tokens; infinite where a run has no weights, or they have diverged.

    Where that would take more than `seconds`, fewer tokens are scored, of all runs alike.
    """
    if not folders:
        return {}
    first = next(iter(experiments.values()))
    ids = choosing_ids(first, corpus)
    longest = max(e.scheme.k2 for e in experiments.values())
    most = min(MOST_TOKENS, len(ids) - longest)
    tokens = min(LEAST_TOKENS, most)
    costs = {}
    found = {}
    for name, folder in folders.items():
        between()
        began = time.perf_counter()
        found[name] = nats(folder, experiments[name], ids, longest, tokens, between)
        costs[name] = time.perf_counter() - began
    affordable = int(tokens * seconds / max(sum(costs.values()), 1e-9)) if seconds < math.inf else most
    tokens, before = min(most, affordable), tokens
    if tokens < 2 * before:
        return found
    return {name: nats(folder, experiments[name], ids, longest, tokens, between) for name, folder in folders.items()}


def nats(
    folder: RunFolder,
    experiment: Experiment,
    ids: Ids,
    first: int,
    tokens: int,
    between: Callable[[], None] = lambda: None,
    procedure: str | None = None,
) -> float:
    """Nats a token of one run at its best evaluation, for the tokens from position `first` on."""
    k2 = experiment.scheme.k2
    try:
        run = load(folder.path, weights=BEST)
        piece = torch.from_numpy(ids[first - k2 : first + tokens].astype(np.int64)).to(run.model.device)
        (nll_NR,) = token_nll(run.model, [piece], k2, procedure or experiment.scheme.sample, between=between)
    except UnrollError:  # it diverged before its first evaluation, or its weights are gone
        return math.inf
    mean = float(nll_NR.mean())
    return mean if math.isfinite(mean) else math.inf
