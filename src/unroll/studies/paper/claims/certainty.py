"""How sure the records are: each number that a claim turns on gets an interval over seeds. One rule for all claims.

A number is *inside* if the whole interval lies where the claim asks for it, *outside* if none of it does, and otherwise
it *cannot be told*: the threshold lies within what another seed might have given. Intervals are Student's, as in a
sweep's answer (`unroll.sweep.answers`): 95 %, shared among the numbers of one part; ratios in the logarithm, counts
and shares as they are.

- **Several seeds.** Each seed is left out in turn, from all curves at once, and the number is computed again (the
  jackknife). For a ratio of means that is the interval of differences paired by seed; and it serves a spread, a count
  and the batches to a perplexity as well.
- **One seed.** Its curves borrow the deviations of similar runs: from other records those of the same data set, scheme
  and k1 that have several seeds. Each curve is moved, independently of the others, by the whole deviation of one of
  those seeds, up or down; the number is computed again, REPLICATES times; and their scatter is what a seed does to it.
- **One seed, and no similar runs.** Nothing is known of other seeds, and nothing can be told.

A clock is read once and has no seeds: such a number is taken as it is.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, stdev

from unroll.studies.paper.claims.verdict import (
    BORROWED,
    SEVERAL,
    UNKNOWN,
    Finding,
    Measure,
    NotJudgedError,
    Part,
    Records,
)
from unroll.studies.paper.figures import BEST
from unroll.studies.paper.records import Curve, Record
from unroll.sweep.answers import LEVEL
from unroll.sweep.student import quantile

REPLICATES = 24

Judge = Callable[[Records], Finding]
Twin = tuple[str, int, int]  # corpus, scheme, k1
Deviation = tuple[Mapping[int, float], Mapping[int, float]]  # factors by batch: of the perplexity, and of the loss


def with_intervals(judge: Judge, known: Records, every: Records) -> Finding:
    """Judge a claim by the records that it knows, with an interval for each number; `every` record may lend spreads."""
    finding = judge(known)
    replicates, freedom, known_from = _replicates(known, every)
    findings = [other for record in replicates if (other := _judged(judge, record))]
    factor = math.sqrt((len(findings) - 1) ** 2 / len(findings)) if known_from == SEVERAL and findings else 1.0
    parts = []
    for i, part in enumerate(finding.parts):
        others = [other.parts[i].measures for other in findings]
        parts.append(_with_reaches(part, others, freedom, factor, known_from))
    return replace(finding, parts=tuple(parts))


def _judged(judge: Judge, records: Records) -> Finding | None:
    try:
        return judge(records)
    except NotJudgedError:
        return None


def _with_reaches(
    part: Part, others: Sequence[Sequence[Measure]], freedom: int, factor: float, known_from: str
) -> Part:
    """The part, each of its numbers with the reach of its interval."""
    count = sum(not measure.is_clock for measure in part.measures)
    if not count:
        return part
    t = quantile(1 - LEVEL / count / 2, freedom) if freedom else math.inf
    measures = []
    for j, measure in enumerate(part.measures):
        values = [of_replicate[j].scaled for of_replicate in others]
        known = not measure.is_clock and len(values) > 1 and all(map(math.isfinite, (measure.scaled, *values)))
        # The jackknife's error is √((n − 1)² / n) times the deviation between its replicates: `factor`.
        measures.append(replace(measure, reach=t * factor * stdev(values)) if known else measure)
    return replace(part, measures=tuple(measures), known_from=known_from)


def _replicates(known: Records, every: Records) -> tuple[list[Records], int, str]:
    """The records as other seeds might have made them, the degrees of freedom, and where that is known from."""
    seeds = [{curve.seed for curve in record.curves} for record in known.values() if record.curves]
    if seeds and len(seeds[0]) > 1 and all(other == seeds[0] for other in seeds):
        return [_without(known, seed) for seed in sorted(seeds[0])], len(seeds[0]) - 1, SEVERAL
    spreads = deviations(every)
    if not spreads or not seeds:
        return [], 0, UNKNOWN
    groups: dict[tuple[str, int], int] = {}
    for (corpus, scheme, _), of_twin in spreads.items():
        groups[corpus, scheme] = groups.get((corpus, scheme), 0) + len(of_twin) // 2 - 1
    asked = {(c.corpus, c.scheme) for record in known.values() for c in record.curves}
    if not asked <= groups.keys():
        return [], 0, UNKNOWN
    freedom = min(groups[key] for key in asked)
    return [_moved(known, spreads, replicate) for replicate in range(REPLICATES)], freedom, BORROWED


def _without(known: Records, seed: int) -> Records:
    return {
        name: replace(record, curves=tuple(c for c in record.curves if c.seed != seed))
        for name, record in known.items()
    }


def deviations(every: Records) -> dict[Twin, list[Deviation]]:
    """How each seed of a training with several differs from their mean, and the same turned round.

    The trainings are those of the paper's settings, r=1 γ=512, k2 = 100.
    """
    groups: dict[Twin, dict[int, Curve]] = {}
    for record in every.values():
        for c in record.curves:
            if not c.variant and (c.layers, c.hidden) in BEST and c.k2 == 100:
                groups.setdefault((c.corpus, c.scheme, c.k1), {})[c.seed] = c
    return {twin: _deviations(list(by_seed.values())) for twin, by_seed in groups.items() if len(by_seed) > 1}


def _deviations(curves: Sequence[Curve]) -> list[Deviation]:
    # The deviations from a mean of n are too small by √((n − 1) / n).
    wider = math.sqrt(len(curves) / (len(curves) - 1))
    columns = []
    for name in (curves[0].sample, "loss"):
        logs = [
            {b: math.log(value) for b, value in zip(c.points["batch"], c.points[name], strict=True) if value}
            for c in curves
        ]
        shared = set.intersection(*(set(of_seed) for of_seed in logs))
        means = {batch: fmean(of_seed[batch] for of_seed in logs) for batch in shared}
        columns.append(
            [
                {batch: math.exp(sign * wider * (of_seed[batch] - means[batch])) for batch in shared}
                for of_seed in logs
                for sign in (1, -1)
            ]
        )
    return list(zip(*columns, strict=True))


def _moved(known: Records, spreads: Mapping[Twin, list[Deviation]], replicate: int) -> Records:
    return {name: _moved_record(name, record, spreads, replicate) for name, record in known.items()}


def _moved_record(name: str, record: Record, spreads: Mapping[Twin, list[Deviation]], replicate: int) -> Record:
    curves = []
    for curve in record.curves:
        # A string as the seed of a generator is hashed alike in every process.
        generator = random.Random(f"{replicate} {name} {curve.identity} {curve.scheme}")
        curves.append(_moved_curve(curve, generator, spreads))
    return replace(record, curves=tuple(curves))


def _moved_curve(curve: Curve, generator: random.Random, spreads: Mapping[Twin, list[Deviation]]) -> Curve:
    near = [twin for twin in spreads if twin[:2] == (curve.corpus, curve.scheme)]
    twin = min(near, key=lambda twin: abs(math.log(twin[2] / curve.k1)))
    of_perplexity, of_loss = generator.choice(spreads[twin])
    points = dict(curve.points)
    for name, deviation in ((curve.sample, of_perplexity), ("loss", of_loss)):
        points[name] = [
            None if value is None else value * deviation.get(batch, 1.0)
            for batch, value in zip(points["batch"], points[name], strict=True)
        ]
    return replace(curve, points=points)
