"""What lies behind verdicts that nobody expected, as tables: each sets apart the cause that docs/paper.md names.

- `two_readings` (C3, C4): one training, its test set read in windows and progressively. What differs between the two
  is no fault of training: the weights are the same.
- `labels` (C10): under single-loss a window brings one label. Rotated windows begin anywhere, shuffled ones always at
  multiples of k1, so that a corpus brings one label in k1 again and again.
- `before_overfitting` (C1, C14): the spread over k1 up to the batch at which the first of the five lines is at its
  best. Behind it a small k1 has read the corpus fewer times, and overfits less.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import median

from unroll.paper.claims.lines import Lines, between, gmean, spread
from unroll.paper.claims.verdict import NotJudgedError, Records, Table, table
from unroll.paper.claims.words import CLOSE, CORPUS_NAMES, WARM_UP
from unroll.paper.figures import K1
from unroll.scheme import SCHEMES

SHUFFLED = {"shuffle": True}
ABOUT = (
    "Schemes 1 and 3 share their trainings, so a test set read in windows and progressively is two readings of the "
    "same weights (C3). Shuffled windows begin at multiples of k1 only, and single-loss takes one label from each "
    "(C10). Behind the best point of a line the spread over k1 is one of overfitting (C1, C14)."
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
                found = [b / a for batch, a, b in both if low <= batch < high and a and b]
                ratios.append(max(found, default=1.0))
            apart = sum(ratio > CLOSE for ratio in ratios)
            cells += [round(median(ratios), 3), round(max(ratios), 3)]
        ends = [round(gmean(own.final for own in figure.each(corpus=corpus, scheme=scheme)), 3) for scheme in (1, 3, 4)]
        rows.append((name, *cells, f"{apart} of {len(curves)}", *ends))
    names = ["batches 100 to 999", "1,000 to 2,999", "3,000 and more"]
    columns = [word for name in names for word in (f"{name}: median", "largest")]
    last = ("last perplexity, scheme 1", "scheme 3", "scheme 4")
    return table(("progressive / windowed, same weights", *columns, f"above {CLOSE:g} in the end", *last), rows)


def labels(records: Records) -> Table:
    """Scheme 2 on Music, windows rotated and shuffled: what k1 leaves to learn from."""
    figure = Lines(records, "schemes", "extras")
    rows = []
    for k1 in K1:
        own: list[object] = []
        for variant in ({}, SHUFFLED):
            (line,) = figure.each(variant, corpus="music", scheme=2, k1=k1, seed=0)
            own += [line.loss[-1], round(line.best, 2), round(line.final, 2)]
        rows.append((k1, f"1 in {k1}", *own))
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
            until = min(own.batch[own.turn] for own in lines)
            early = [b for b in lines[0].batch if WARM_UP <= b <= until]
            cells += [
                round(spread(lines), 3),
                round(gmean(between(own.by_batch[batch] for own in lines) for batch in early), 3),
            ]
        rows.append((name, *cells))
    columns = [word for scheme in SCHEMES for word in (f"scheme {scheme}", "up to the best")]
    return table(("highest / lowest k1", *columns), rows)


TABLES: dict[str, Callable[[Records], Table]] = {
    "One training, read in two ways": two_readings,
    "Single-loss on Music, windows rotated and shuffled": labels,
    "The spread over k1, and before anything overfits": before_overfitting,
}


def found(records: Records) -> dict[str, Table]:
    """Every table that these records allow, by its title."""
    every = {}
    for title, make in TABLES.items():
        try:
            every[title] = make(records)
        except (NotJudgedError, KeyError):
            continue  # a record that it needs is not there
    return every
