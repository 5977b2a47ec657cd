"""Drift: how perplexity depends on the number of tokens read since the state was reset, far beyond k2.

Training shows a model no state older than k2 tokens; where states are carried, it shows none but the model's own.
Progressive sampling lets the state run on for ever. The cost or the gain of that is what distinguishes schemes 1 and 3:
windowed predicts every token from a state exactly k2 tokens old.

Many stretches of one text are read side by side, each from the reset state. A state of age p predicts the token after p
tokens of a stretch. A few hundred stretches meet tokens that are harder or easier than the text is, so averages of them
alone scatter by a tenth. Each prediction is therefore compared with what a window of k2 tokens says about the very same
token. That mean difference is far more certain, and it is added to the windowed value of the whole text.

Shapes: M runs (one), N ages, n of them at a time, R stretches, H hidden, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unroll.base import randomness
from unroll.base.errors import ConfigurationError, CorpusError, RunError
from unroll.corpus.corpus import Corpus
from unroll.model import head
from unroll.model.model import Model
from unroll.runs import perplexities
from unroll.runs.loaded import Run, text_ids
from unroll.runs.perplexities import DIVERGED, Perplexity

STARTS = 256
REACH = 10  # times k2
STEPS = 512  # time steps of one call of the kernel, at most
PER_OCTAVE = 2  # bins while the age doubles


@dataclass(frozen=True)
class Bin:
    """The predictions made by states of similar age."""

    first: int  # tokens since the reset
    last: int
    predictions: int
    nats: float  # the mean negative log-likelihood of the tokens it predicted
    error: float  # its standard error, over the stretches
    above: float  # the same less what a window of k2 tokens says about those tokens
    above_error: float


@dataclass(frozen=True)
class Drift:
    """A run's perplexity by the age of its state, in bins that grow with it; a bin ends at k2."""

    k2: int
    tokens: int  # the oldest age
    starts: int
    windowed: Perplexity  # of the whole text
    bins: tuple[Bin, ...]

    def perplexity(self, ages: Bin, errors: float = 0.0) -> float:
        """The whole text's perplexity at these ages, or this many standard errors above it."""
        nats = self.windowed.nats + ages.above + errors * ages.above_error
        return Perplexity(nats, ages.predictions).perplexity


def perplexity_since_reset(
    run: Run,
    tokens: int | None = None,
    starts: int = STARTS,
    seed: int = 0,
    corpus: Corpus | str | Path | None = None,
    between: Callable[[], None] = lambda: None,
    test_tokens: int | None = None,
) -> Drift:
    """Read the run's test set (or another text) from many seeded starting points and average by age.

    `tokens` is the oldest age, 10 · k2 by default, or half of the text where that is shorter. `test_tokens` bounds how
    much of the text is read.
    """
    if test_tokens is not None and test_tokens < 1:
        raise ConfigurationError(f"test_tokens must be at least 1. Got {test_tokens}.")
    ids = text_ids(run, corpus)[:test_tokens]
    k2 = run.experiment.scheme.k2
    tokens = reach(len(ids), k2, tokens)
    if starts < 2:
        raise ConfigurationError(f"starts must be at least 2. Got {starts}.")
    if not 0 <= seed < 2**63:
        raise ConfigurationError(f"seed must be between 0 and 2^63 − 1. Got {seed}.")
    starts_R = _starting_points(len(ids), k2, tokens, starts, seed)
    ids_N = torch.from_numpy(ids.astype(np.int64)).to(run.model.device)
    (window,) = perplexities.token_nll(run.model, [ids_N], k2, "windowed", None, between)
    window_N = window[:, 0].numpy()
    nll_NR = _by_age(run.model, ids_N, starts_R, tokens, between)
    if not (np.isfinite(nll_NR).all() and np.isfinite(window_N).all()):
        raise RunError(DIVERGED)
    # Age 1 has read one token and predicts the next, which lies one token after the beginning of the stretch.
    targets_NR = starts_R + np.arange(1, tokens + 1)[:, None]
    above_NR = nll_NR - window_N[targets_NR - k2]
    bins = tuple(_bin(first, last, nll_NR, above_NR) for first, last in edges(tokens, k2))
    (windowed,) = perplexities.perplexities(window)
    return Drift(k2, tokens, len(starts_R), windowed, bins)


def reach(length: int, k2: int, tokens: int | None = None) -> int:
    """The oldest age: as asked, or 10 · k2, or half of what a short text allows."""
    # A window must predict the same tokens, so k2 tokens must lie before each; and two stretches must differ.
    most = length - k2 - 1
    if most < 1:
        raise CorpusError(f"Drift needs more than k2 + 1 = {k2 + 1} tokens of text; there are {length}.")
    if tokens is None:
        return max(1, min(REACH * k2, most // 2))
    if not 1 <= tokens <= most:
        raise ConfigurationError(
            f"tokens must be between 1 and {most:,}: the text has {length:,}, and k2 = {k2}. Got {tokens:,}."
        )
    return tokens


def edges(tokens: int, k2: int) -> list[tuple[int, int]]:
    """The first and last age of each bin: two bins an octave, none across k2.

    >>> edges(40, 10)
    [(1, 1), (2, 2), (3, 4), (5, 5), (6, 7), (8, 10), (11, 14), (15, 20), (21, 28), (29, 40)]
    """
    octaves = range(-PER_OCTAVE * math.ceil(math.log2(k2)), PER_OCTAVE * math.ceil(math.log2(max(tokens, 2))))
    ends = {round(k2 * 2 ** (step / PER_OCTAVE)) for step in octaves}
    kept = [*sorted(end for end in ends if 1 <= end < tokens), tokens]
    return [(before + 1, end) for before, end in zip([0, *kept], kept, strict=False)]


def _starting_points(length: int, k2: int, tokens: int, starts: int, seed: int) -> NDArray[np.int64]:
    """Draw one point from each of as many equal parts of the text, so that all of it is read."""
    possible = length - tokens - k2 + 1
    parts = min(starts, possible)
    drawn = randomness.uniform(seed, "drift", 0, parts)
    return k2 - 1 + ((np.arange(parts) + drawn) * possible / parts).astype(np.int64)


def _by_age(
    model: Model, ids_N: Tensor, starts_R: NDArray[np.int64], tokens: int, between: Callable[[], None]
) -> NDArray[np.float64]:
    """−log p of the token after p tokens of each stretch, for p = 1 … N."""
    R = len(starts_R)
    H = model.experiments[0].hidden
    positions_NR = torch.arange(tokens + 1).unsqueeze(1) + torch.from_numpy(starts_R)
    stretch_NR = ids_N[positions_NR.to(ids_N.device)]
    steps = min(STEPS, max(1, model.engine.chunk_bytes // (R * H * model.dtype.itemsize)))
    state = model.first_state(R)
    done = 1
    parts = []
    with torch.no_grad(), model.engine.reading(model.precision):
        for read_TR in stretch_NR[:-1].split(steps):
            between()
            h_MTRH, state = model.read(read_TR.unsqueeze(0), state)
            for logits_MnRV in perplexities.logits(model, h_MTRH):
                n = logits_MnRV.shape[1]
                parts.append(head.nll(logits_MnRV, stretch_NR[done : done + n].unsqueeze(0))[0].cpu())
                done += n
    nll_NR: NDArray[np.float64] = torch.cat(parts).numpy()
    return nll_NR


def _bin(first: int, last: int, nll_NR: NDArray[np.float64], above_NR: NDArray[np.float64]) -> Bin:
    """Average over ages and stretches. Ages of one stretch are neighbours in one text; stretches are independent."""
    nats_R, above_R = (values_NR[first - 1 : last].mean(0) for values_NR in (nll_NR, above_NR))
    R = len(nats_R)
    spread = [float(x.std(ddof=1)) / math.sqrt(R) if R > 1 else math.nan for x in (nats_R, above_R)]
    count = (last - first + 1) * R
    return Bin(first, last, count, float(nats_R.mean()), spread[0], float(above_R.mean()), spread[1])
