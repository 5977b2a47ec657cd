"""Which of the paper's trainings stand side by side.

Where a figure shows times, they must mean something: a fleet of `k2` holds one training procedure and one k2, all its
k1 and seeds, and nothing else. A training of that figure is planned this way whichever figure asks for it. All others
are planned like any runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from unroll.corpus.corpus import Corpus
from unroll.corpus.open_corpora import Library
from unroll.engines import devices
from unroll.studies.paper.experiments import MOST_SMALL, Scale, Wanted
from unroll.studies.paper.figures import FIGURES, training
from unroll.sweep import measuring
from unroll.sweep import plan as plans
from unroll.sweep.deduplicate import Training
from unroll.sweep.plan import Plan

PATIENCE = 20.0  # seconds of trying, for an estimate
_TIMED = {training(one) for one in FIGURES["k2"]}


def make(
    trainings: Iterable[Wanted],
    corpora: Mapping[str, Corpus],
    scale: Scale,
    most: int | None,
    between: Callable[[], None] = lambda: None,
) -> Plan:
    """A plan for these trainings."""
    classes: dict[tuple[str, int] | None, list[Wanted]] = {}
    for one in trainings:
        pure = (one.series.train, one.series.k2) if one.series in _TIMED else None
        classes.setdefault(pure, []).append(one)
    whole = Plan(())
    for pure, members in sorted(classes.items(), key=lambda item: item[0] or ("", 0)):
        experiments = {one.training.name: one.training.experiment for one in members}
        texts = {one.training.name: corpora[one.series.corpus] for one in members}
        # A fleet of one procedure and one k2 is small: there is nothing to choose.
        limit = most or (len(members) if pure else None if scale.whole else MOST_SMALL)
        whole = joined(whole, plans.make(experiments, texts, limit, between))
    return whole


def joined(plan: Plan, other: Plan) -> Plan:
    """Two plans as one; the second's fleets get numbers after the first's."""
    last = max((int(fleet.name.rstrip("ab")) for fleet in plan.fleets), default=0)
    renamed = {fleet.name: str(last + n) for n, fleet in enumerate(other.fleets, 1)}
    fleets = tuple(replace(fleet, name=renamed[fleet.name]) for fleet in other.fleets)
    measured = tuple(replace(m, fleets=tuple(renamed[name] for name in m.fleets)) for m in other.measured)
    return Plan(
        (*plan.fleets, *fleets),
        {**plan.refused, **other.refused},
        (*plan.measured, *measured),
        (*plan.changes, *other.changes),
        plan.version,
    )


def estimate(plan: Plan, trainings: Sequence[Training], library: Library) -> dict[str, float]:
    """Seconds of training by fleet: from a few batches of each, while that is quick; then from each fleet's work."""
    experiments = {one.name: one.experiment for one in trainings}
    seconds: dict[str, float] = {}
    spent, rate = 0.0, 0.0
    for fleet in sorted(plan.fleets, key=lambda fleet: fleet.work):
        runs = [
            replace(
                experiments[name], device=devices.places(fleet.device)[0], kernel=fleet.kernel, threads=fleet.threads
            )
            for name in fleet.runs
        ]
        milliseconds = fleet.milliseconds
        if milliseconds is None and spent < PATIENCE:
            began = time.perf_counter()
            milliseconds = measuring.pace(runs, [library.open(e) for e in runs], lambda: None).milliseconds
            spent += time.perf_counter() - began
        if milliseconds is not None:
            rate = milliseconds / 1000 * runs[0].batches * len(runs) / fleet.work
        seconds[fleet.name] = fleet.work * rate
    return seconds
