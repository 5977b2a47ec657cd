"""The causes behind unexpected verdicts, as tables: each sets apart one cause that docs/paper.md names.

- `two_readings` (C3, C4): the test set read in windows and progressively, by one training. The weights are the same,
  so what differs is no fault of training.
- `labels` (C10): under single-loss a window brings one label. Rotated windows begin anywhere. Shuffled ones always
  begin at multiples of k1, so a corpus brings one label in k1 again and again.
- `before_overfitting` (C1, C14): the spread over k1 up to the batch at which the first of the five lines is at its
  best. Behind it a small k1 has read the corpus fewer times, and overfits less.
- `two_starts` (C4): scheme 4 by the claim's own measure, its test set read from zeros and from carried states. What
  only the first counts is the start; what both count is the model.
- `by_share` (C13): scheme 4 on Music by the share of a window that is new, k1 / k2: over the whole line, and up to its
  best point.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from statistics import median

from unroll.experiment.scheme import SCHEMES
from unroll.studies.paper.claims import whole
from unroll.studies.paper.claims.data_sets import SHUFFLED
from unroll.studies.paper.claims.lines import Lines, gmean, line_of, max_over_min, spread, unstable
from unroll.studies.paper.claims.schemes import LASTING, PARTING
from unroll.studies.paper.claims.thresholds import CLOSE, CORPUS_NAMES, WARM_UP
from unroll.studies.paper.claims.verdict import NotJudgedError, Records, Table, table
from unroll.studies.paper.figures import K1, K1_OF_K2
from unroll.studies.paper.instability import RESETS
from unroll.studies.paper.pictures import SETTINGS
from unroll.studies.paper.records import CARRIED, Curve, significant

ABOUT = (
    "Schemes 1 and 3 share their trainings, so a test set read in windows and progressively is two readings of the "
    "same weights (C3). Shuffled windows begin at multiples of k1 only, and single-loss takes one label from each "
    "(C10). Behind the best point of a line the spread over k1 is one of overfitting (C1, C14). What is unstable under "
    "scheme 4 from zeros only is its start; what is so from carried states too is the model (C4, C13)."
)


def two_readings(records: Records) -> Table:
    """Progressive over windowed perplexity of the same multi-loss weights, by batch: median and largest over runs."""
    figure = Lines(records, "schemes")
    parts = ((WARM_UP, 1000), (1000, 3000), (3000, math.inf))
    rows = []
    for corpus, name in CORPUS_NAMES.items():
        curves = figure.curves_of(corpus=corpus, scheme=3)
        cells: list[object] = []
        apart = 0
        for low, high in parts:
            ratios = []
            for curve in curves:
                both = zip(*(curve.points[key] for key in ("batch", "windowed", "progressive")), strict=True)
                ratios_here = [b / a for batch, a, b in both if low <= batch < high and a and b]
                ratios.append(max(ratios_here, default=1.0))
            apart = sum(ratio > CLOSE for ratio in ratios)
            cells += [round(median(ratios), 3), round(max(ratios), 3)]
        ends = [
            round(gmean(line.final for line in figure.each(corpus=corpus, scheme=scheme)), 3) for scheme in (1, 3, 4)
        ]
        rows.append((name, *cells, f"{apart} of {len(curves)}", *ends))
    names = ["batches 100 to 999", "1,000 to 2,999", "3,000 and more"]
    columns = [word for name in names for word in (f"{name}: median", "largest")]
    last = ("last perplexity, scheme 1", "scheme 3", "scheme 4")
    return table(("progressive / windowed, same weights", *columns, f"runs above {CLOSE:g} there", *last), rows)


def labels(records: Records) -> Table:
    """Scheme 2 on Music, windows rotated and shuffled: how many labels k1 leaves."""
    figure = Lines(records, "schemes", "extras")
    rows = []
    for k1 in K1:
        cells: list[object] = []
        for variant in ({}, SHUFFLED):
            (line,) = figure.each(variant, corpus="music", scheme=2, k1=k1, seed=0)
            cells += [significant(line.loss[-1], 3), round(line.best, 2), round(line.final, 2)]
        rows.append((k1, f"1 in {k1}", *cells))
    columns = ("k1", "labels met when shuffled")
    each = ("last training loss", "best perplexity", "last")
    return table((*columns, *(f"{how}: {name}" for how in ("rotated", "shuffled") for name in each)), rows)


def before_overfitting(records: Records) -> Table:
    """The spread over k1 as C1 and C14 measure it, and the same up to the first line's best point."""
    figure = Lines(records, "schemes")
    rows = []
    for corpus, name in CORPUS_NAMES.items():
        cells: list[float] = []
        for scheme in SCHEMES:
            lines = [figure.one(corpus=corpus, scheme=scheme, k1=k1) for k1 in K1]
            until = min(line.batch[line.turn] for line in lines)
            early = [b for b in lines[0].batch if WARM_UP <= b <= until]
            cells += [
                round(spread(lines), 3),
                round(gmean(max_over_min(line.by_batch[batch] for line in lines) for batch in early), 3),
            ]
        rows.append((name, *cells))
    columns = [word for scheme in SCHEMES for word in (f"scheme {scheme}", "up to the best")]
    return table(("highest / lowest k1", *columns), rows)


def two_starts(records: Records) -> Table:
    """Lines of scheme 4 that C4 counts as unstable, by how the state is reset and where the test set begins."""
    figure = Lines(records, "schemes", "extras")
    rows = []
    for name in RESETS:
        cells = []
        for corpus in CORPUS_NAMES:
            curves = figure.curves_of(SETTINGS[name], corpus=corpus, scheme=4)
            if not all(CARRIED in curve.points for curve in curves):
                raise NotJudgedError(f"not every run of scheme 4, {name}, was scored from carried states")
            for start in ("progressive", CARRIED):
                lasting = [len(_unstable(figure, replace(c, sample=start), PARTING)) >= LASTING for c in curves]
                cells.append(f"{sum(lasting)} of {len(lasting)}")
        rows.append((name, *cells))
    starts = [start for name in CORPUS_NAMES.values() for start in (f"{name}, from zeros", "from carried")]
    return table(("unstable lines, as C4 counts", *starts), rows)


def by_share(records: Records) -> Table:
    """Lines of scheme 4 on Music that C13 counts as unstable, by k1 / k2: at any point, and up to their best one."""
    figure = Lines(records, "k2")
    rows = []
    for index, name in enumerate(("1", "2/3", "1/3")):
        cells: list[object] = []
        early, every = 0, 0
        for k2, k1 in K1_OF_K2.items():
            curves = figure.curves_of(scheme=4, k1=k1[index], k2=k2)
            unstable_batches = [_unstable(figure, curve, WARM_UP) for curve in curves]
            cells.append(f"{sum(map(bool, unstable_batches))} of {len(curves)}")
            turns = [min(curve.scored, key=lambda point: point[2])[0] for curve in curves]
            early += sum(
                any(batch <= turn for batch in batches) for batches, turn in zip(unstable_batches, turns, strict=True)
            )
            every += len(curves)
        rows.append((name, *cells, f"{early} of {every}"))
    return table(("k1 / k2", *(f"k2 = {k2}" for k2 in K1_OF_K2), "up to their best point"), rows)


def _unstable(figure: Lines, curve: Curve, since: int) -> list[int]:
    """The batches at which a run of scheme 4 is unstable beside schemes 1 and 3 of the same k1, k2 and seed."""
    what = {"corpus": curve.corpus, "k1": curve.k1, "k2": curve.k2, "seed": curve.seed}
    (one,), (three,) = (figure.each(scheme=scheme, **what) for scheme in (1, 3))
    return unstable(line_of(curve, figure.grid), one, three, since)


TABLES: dict[str, tuple[Callable[[Records], Table], tuple[str, ...]]] = {
    "One training, read in two ways": (two_readings, ("schemes",)),
    "Single-loss on Music, windows rotated and shuffled": (labels, ("schemes", "extras")),
    "The spread over k1, and before anything overfits": (before_overfitting, ("schemes",)),
    "Scheme 4 as C4 counts, from zeros and from carried states": (two_starts, ("schemes", "extras")),
    "Scheme 4 on Music as C13 counts, by the share of a window that is new": (by_share, ("k2",)),
}


def every_table(records: Records) -> dict[str, Table]:
    """Make, by title, every table whose records are there, whole and at the paper's scale."""
    tables = {}
    for title, (make, needs) in TABLES.items():
        try:
            tables[title] = make({name: whole(name, records.get(name)) for name in needs})
        except NotJudgedError:
            continue
    return tables
