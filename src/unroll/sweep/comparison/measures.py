"""What is measured of a trained run of each scheme: what a token costs, what a sample copies, how a state drifts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from unroll.base.errors import UnrollError
from unroll.corpus.corpus import Corpus
from unroll.engines import devices
from unroll.model.conditioning import PROCEDURES
from unroll.runs.drift import Drift, perplexity_since_reset
from unroll.runs.loaded import Run, load
from unroll.runs.memorisation import memorised
from unroll.sampling.api import Request, sample_all

TOKENS = 1000  # of a sample that is looked up in the training data
TIMED, BLOCKS = 200, 3  # tokens of a block, and blocks, of which the fastest counts
ERRORS = 2.0  # standard errors within which a drift may be none


@dataclass(frozen=True)
class Measured:
    """What was measured of one run, under the sampling procedure of its scheme."""

    microseconds: dict[str, float]  # a token of one text, by sampling procedure
    tokens: int  # of the sample
    longest: int | None  # the longest stretch of it that stands in the training data
    held_out: int | None  # the same of as much held-out text
    drift: float | None  # perplexity of the oldest states over that within k2 tokens; None where nothing runs on
    drift_low: float | None  # less two standard errors, and more
    drift_high: float | None
    age: int | None  # tokens that the oldest states have read
    why_not: str | None = None  # what could not be measured


def measure(
    runs: Mapping[str, tuple[str, str]],
    corpus: Corpus,
    between: Callable[[], None] = lambda: None,
    tokens: int = TOKENS,
) -> dict[str, Measured]:
    """Measure the run of each name: a folder, and the procedure that it is sampled with."""
    loaded: dict[str, Run] = {}
    texts: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    micro: dict[str, dict[str, float]] = {}
    for name, (path, procedure) in runs.items():
        between()
        try:
            run = loaded[name] = with_corpus(load(path), corpus)
            clocked = {each: microseconds(run, each, between) for each in PROCEDURES}
            micro[name] = {each: taken for each, taken in clocked.items() if taken is not None}
            (drawn,) = sample_all(run, [Request(length=tokens)], procedure)
            texts[name] = np.asarray(drawn.tokens)
        except UnrollError as error:  # its weights are gone, or its numbers are not finite
            wrong[name] = str(error)
    between()
    copied = {}
    if texts:
        # The order of the training data's suffixes is made once, for all samples of this corpus and this split.
        found = memorised(loaded[next(iter(texts))], list(texts.values()))
        copied = {name: (each.matches.longest, each.test_longest) for name, each in zip(texts, found, strict=True)}
    measured = {}
    for name, (_, procedure) in runs.items():
        between()
        drift = _drift(loaded[name], between) if name in texts and procedure == "progressive" else None
        longest, held_out = copied.get(name, (None, None))
        length = len(texts[name]) if name in texts else 0
        drifted, low, high, age = drift or (None, None, None, None)
        times, why = micro.get(name, {}), wrong.get(name)
        measured[name] = Measured(times, length, longest, held_out, drifted, low, high, age, why)
    return measured


def with_corpus(run: Run, corpus: Corpus) -> Run:
    """A run that need not open its corpus again: one in memory has no place to be opened from."""
    vars(run)["corpus"] = corpus  # what `Run.corpus` keeps once it has looked
    return run


def microseconds(run: Run, procedure: str, between: Callable[[], None]) -> float | None:
    """A token of one text, without what its prompt takes to read, and without what happens only once."""
    one, many = [], []
    for _ in range(BLOCKS + 1):
        between()
        one.append(_seconds(run, procedure, 1))
        many.append(_seconds(run, procedure, TIMED + 1))
    # Other work on the machine only ever slows it: the fastest blocks are nearest to the truth.
    taken = min(many[1:]) - min(one[1:])
    return 1e6 * taken / TIMED if taken > 0 else None


def _seconds(run: Run, procedure: str, tokens: int) -> float:
    began = time.perf_counter()
    sample_all(run, [Request(length=tokens)], procedure)
    devices.wait(run.model.device)
    return time.perf_counter() - began


def _drift(run: Run, between: Callable[[], None]) -> tuple[float, float, float, int] | None:
    """How much worse the oldest states predict than a window of k2 tokens does, with its bounds and their age."""
    try:
        drift = perplexity_since_reset(run, between=between)
    except UnrollError:  # the test set is too short for it, or the model has diverged
        return None
    return oldest(drift)


def oldest(drift: Drift) -> tuple[float, float, float, int] | None:
    """The ratio at the oldest ages beyond k2, where there are any."""
    beyond = [ages for ages in drift.bins if ages.first > drift.k2]
    if not beyond:
        return None
    last = beyond[-1]
    reach = ERRORS * (last.above_error if last.above_error == last.above_error else 0.0)
    low, middle, high = (float(np.exp(min(last.above + part, 700.0))) for part in (-reach, 0.0, reach))
    return middle, low, high, last.last


NOTHING = Measured({}, 0, None, None, None, None, None, None)
