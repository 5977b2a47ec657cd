"""The paper's table, measured: milliseconds a training batch and a sampled token, for one run alone and for a fleet.

All runs of a measurement have one procedure and one k2. Schemes 1 and 3 train alike, and their batches are timed once;
tokens are timed under windowed sampling as the paper ran it, windowed rolling, and progressive.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence

import torch

from unroll.corpus.corpus import Corpus
from unroll.engines import devices
from unroll.engines.choice import engine_of
from unroll.experiment.decoding import Decoding
from unroll.experiment.experiment import Experiment
from unroll.model.model import Model
from unroll.sampling.host_loop import Stream, generate
from unroll.studies.paper.experiments import Scale, experiment
from unroll.studies.paper.figures import BEST, CORPORA, K1, TABLE, TIMED_CORPUS, Series, series, training
from unroll.studies.paper.records import Record, Time, significant
from unroll.sweep import plan as plans
from unroll.training import memory
from unroll.training.learner import Learner

FLEET = len(CORPORA) * len(K1)  # runs side by side: a figure's trainings of one architecture and one procedure
# Batches before the clock runs; then this many blocks of this many batches.
WARM_UP, BLOCK, BLOCKS = 3, 8, 5
TOKENS = {"windowed-naive": 32, "windowed": 256, "progressive": 256}  # a block; a GPU draws up to 64 in one launch
SECONDS = 0.2  # for one number on a CPU; a slower one gets fewer and shorter blocks

# The paper says that k1 hardly changes the time of a batch. One run alone, every k1, one curve for each way to train.
BY_K1 = series([TIMED_CORPUS], (1, 2, 4), BEST, K1)


class Clock:
    """Takes the median over blocks, and asks between two of them whether to go on."""

    def __init__(self, device: torch.device, between: Callable[[], None]) -> None:
        self.device, self.between = device, between

    def milliseconds(self, step: Callable[[], object], length: int) -> float:
        """The milliseconds of one step."""
        for _ in range(WARM_UP):
            first = self._block(step, 1)
        length = min(length, max(1, int(SECONDS / BLOCKS / first))) if devices.is_host(self.device) else length
        taken = [self._block(step, length)]
        while len(taken) < BLOCKS and (not devices.is_host(self.device) or sum(taken) * length < SECONDS):
            taken.append(self._block(step, length))
        return 1000 * statistics.median(taken)

    def _block(self, step: Callable[[], object], length: int) -> float:
        self.between()
        devices.wait(self.device)
        began = time.perf_counter()
        for _ in range(length):
            step()
        devices.wait(self.device)
        return (time.perf_counter() - began) / length


def missing(
    record: Record | None, side_by_side: Callable[[Series], int] = lambda one: FLEET
) -> list[tuple[Series, bool]]:
    """What the record lacks, with whether it belongs to the table or to the times by k1.

    Where no more than one run trains side by side, no fleet is missing.
    """
    record = record or Record("timing", 1.0, (0,), "")
    alone = {(t.scheme, t.layers, t.hidden) for t in record.times if t.fleet == 1}
    fleets = {(t.scheme, t.layers, t.hidden) for t in record.times if t.fleet != 1}
    known = {(t.scheme, t.k1) for t in record.k1_times}
    table = [
        (series, True)
        for series in TABLE
        for cell in [(series.scheme, series.layers, series.hidden)]
        if cell not in alone or (cell not in fleets and side_by_side(series) > 1)
    ]
    return table + [(series, False) for series in BY_K1 if (series.scheme, series.k1) not in known]


def measure(
    asked: Sequence[tuple[Series, bool]],
    scale: Scale,
    precision: str,
    corpus: Corpus,
    most: int | None,
    between: Callable[[], None] = lambda: None,
) -> Iterator[tuple[tuple[Time, ...], bool]]:
    """Measure one training procedure of one architecture after the other: times, and whether they are the table's."""
    together: dict[tuple[Series, bool], list[Series]] = {}
    for curve, table in asked:
        together.setdefault((training(curve), table), []).append(curve)
    tokens: dict[tuple[int, int, int], dict[str, float]] = {}  # how a model was trained is nothing to sampling
    for (first, table), group in together.items():
        run = devices.resolve(experiment(first, 0, scale, precision, corpus))
        times: list[Time] = []
        for fleet in sorted({1, _room(run, corpus, most)}) if table else [1]:
            key = (first.layers, first.hidden, fleet) if table else None
            times += _times(group, run, corpus, fleet, tokens, key, between)
        yield tuple(times), table


def side_by_side(one: Series, scale: Scale, precision: str, corpus: Corpus, most: int | None) -> int:
    """How many runs a fleet of the table has: as many as `most` allows and the memory holds."""
    return _room(devices.resolve(experiment(training(one), 0, scale, precision, corpus)), corpus, most)


def _room(run: Experiment, corpus: Corpus, most: int | None) -> int:
    limit = memory.available(devices.find(run.device))
    return min(plans.fit([run] * FLEET, [corpus] * FLEET, limit), most or FLEET)


def _times(
    group: Sequence[Series],
    run: Experiment,
    corpus: Corpus,
    fleet: int,
    tokens: dict[tuple[int, int, int], dict[str, float]],
    key: tuple[int, int, int] | None,
    between: Callable[[], None],
) -> list[Time]:
    """The times of one measurement. Tokens that are not known yet under `key` are added to them."""
    device = devices.find(run.device)
    torch.set_num_threads(run.threads or 1)
    clock = Clock(device, between)
    learner = Learner([run] * fleet, [corpus] * fleet, engine_of(device, run.kernel))
    batch = clock.milliseconds(learner.step, BLOCK) / fleet
    if key is not None and key not in tokens:
        model = learner.model.runs([0])
        tokens[key] = {name.replace("-", "_"): _token(model, corpus, name, fleet, clock) for name in TOKENS}
    return [
        Time(
            scheme=one.scheme,
            layers=one.layers,
            hidden=one.hidden,
            fleet=fleet,
            batch_ms=significant(batch, 4) or 0.0,
            sample_ms=tokens[key] if key is not None else {},
            device=devices.describe(device),
            precision=run.precision,
            k1=one.k1,
        )
        for one in group
    ]


def _token(model: Model, corpus: Corpus, procedure: str, texts: int, clock: Clock) -> float:
    """The milliseconds a token of one text, with this many texts of one model drawn side by side."""
    k2 = model.experiments[0].scheme.k2
    prompt = corpus.test_ids(0)[:k2].astype("int64")
    endless = 1 << 40  # tokens: more than the clock asks for
    streams = [Stream(prompt, endless, Decoding(), seed) for seed in range(texts)]
    drawn = generate(model, streams, k2, procedure)
    next(drawn)  # reads the prompt
    return significant(clock.milliseconds(lambda: next(drawn), TOKENS[procedure]) / texts, 4) or 0.0


def order(times: Sequence[Time]) -> tuple[Time, ...]:
    """Sort as the table reads: runs alone, then fleets; by architecture, scheme and k1. A cell's newest time counts."""
    newest = {(t.fleet != 1, t.layers, t.hidden, t.scheme, t.k1): t for t in times}
    return tuple(sorted(newest.values(), key=lambda t: (t.fleet, t.layers, t.hidden, t.scheme, t.k1)))
