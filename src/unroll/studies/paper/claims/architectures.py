"""C6, C8 and C9: the architectures, overfitting on Music, and a bump on Finnish."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

from unroll.studies.paper.claims.lines import Line, Lines, average, gmean, max_over_min, mean, ratio
from unroll.studies.paper.claims.thresholds import (
    ALL_BUT_ONE,
    CLOSE,
    CORPUS_NAMES,
    HALF_WAY,
    MUCH,
    VISIBLE,
    percent,
    times,
)
from unroll.studies.paper.claims.verdict import Finding, Measure, Part, Records, above, at_least, at_most, below, table
from unroll.studies.paper.figures import ARCHITECTURES, BEST, CORPORA, K1

PLOTS = tuple((scheme, corpus) for scheme in (1, 2) for corpus in CORPORA)
# The first evaluations are the same for all, near the size of the vocabulary: nothing is learnt before ten batches.
LEARNING = 10
# "Around 1,000 train sequences": within a factor of two. The wild first batches (320 to 450 sequences) are not it.
BUMP = (500, 2000)
# A tenth of the learning rate may come to the same place ten times later.
BUMP_SLOWLY = (500, 20_000)
ROWS = 64


def _plot(records: Records, scheme: int, corpus: str) -> dict[tuple[int, int], Line]:
    """A panel's four architectures, each the mean over k1."""
    lines = Lines(records, f"architectures-{scheme}")
    return {
        (r, h): average([lines.one(corpus=corpus, scheme=scheme, layers=r, hidden=h, k1=k1, k2=100) for k1 in K1])
        for r, h in ARCHITECTURES
    }


def c6(records: Records) -> Finding:
    """Wide is better early, shallow later, and in the end it hardly matters; the same under both schemes."""
    early: dict[tuple[int, str], float] = {}
    late: dict[tuple[int, str], float] = {}
    end: dict[tuple[int, str], float] = {}
    level: dict[tuple[int, str], dict[tuple[int, int], float]] = {}
    for plot in PLOTS:
        # How far each has learnt by then, so that the overfitting on Music (C8) does not count as slow learning.
        learnt = {a: line.best_so_far for a, line in _plot(records, *plot).items()}
        early[plot] = gmean(ratio(learnt[r, 512], learnt[r, 128], LEARNING, HALF_WAY) for r in (1, 2))
        late[plot] = gmean(ratio(learnt[1, h], learnt[2, h], HALF_WAY) for h in (128, 512))
        end[plot] = max_over_min(min(by_batch.values()) for by_batch in learnt.values())
        level[plot] = {a: ratio(by_batch, learnt[BEST[0]], LEARNING) for a, by_batch in learnt.items()}
    enough = len(PLOTS) - ALL_BUT_ONE
    best = sum(_lead(of_plot) <= 1 for of_plot in level.values())
    overall = {s: {a: gmean(level[s, c][a] for c in CORPORA) for a in ARCHITECTURES} for s in (1, 2)}
    pairs = list(combinations(ARCHITECTURES, 2))
    # Above 0 where both schemes put a pair of architectures in the same order.
    same = {(a, b): math.prod(math.log(overall[s][a] / overall[s][b]) for s in (1, 2)) for a, b in pairs}
    alike = sum(value > 0 for value in same.values())
    parts = (
        _plots("γ=512 is better early", enough, early, "γ=512 over γ=128"),
        _plots("r=1 learns faster later", enough, late, "r=1 over r=2"),
        Part(
            "at 12,800 batches there is no clear difference",
            _measures(end, CLOSE),
            f"the four architectures end {percent(min(end.values()))} to {percent(max(end.values()))} apart, and "
            f"within {percent(CLOSE)} in {sum(v <= CLOSE for v in end.values())} of {len(PLOTS)} plots",
            f"within {percent(CLOSE)} in at least {enough} of {len(PLOTS)} plots, best perplexity, mean over k1",
            enough,
        ),
        Part(
            "r=1, γ=512 is best overall",
            _measures({plot: _lead(of_plot) for plot, of_plot in level.items()}, 1.0),
            f"lowest in {best} of {len(PLOTS)} plots, over the whole of the curve",
            f"in at least {enough} of {len(PLOTS)}",
            enough,
        ),
        # Six pairs of architectures: one that turns round is the exception that is allowed above.
        Part(
            "with schemes 1 and 2 alike",
            tuple(above(f"{_named(a)} and {_named(b)}", v, 0.0, is_ratio=False) for (a, b), v in same.items()),
            f"{alike} of {len(pairs)} pairs of architectures stand in the same order",
            f"at least {len(pairs) - ALL_BUT_ONE} of {len(pairs)}, mean over data sets",
            len(pairs) - ALL_BUT_ONE,
        ),
    )
    rows = tuple(
        (
            f"{CORPUS_NAMES[c]}, scheme {s}",
            *(round(column[s, c], 3) for column in (early, late, end)),
            *(round(level[s, c][a], 3) for a in ARCHITECTURES),
        )
        for s, c in PLOTS
    )
    columns = ("plot", "early, γ 512 / 128", "late, r 1 / 2", "end, highest / lowest")
    return Finding(parts, table((*columns, *(f"r={r} γ={h}, to r=1 γ=512" for r, h in ARCHITECTURES)), rows))


def _plots(says: str, enough: int, ratios: dict[tuple[int, str], float], what: str) -> Part:
    below_1 = sum(value < 1 for value in ratios.values())
    measured = f"{what} is {times(gmean(ratios.values()))} in the mean, below 1 in {below_1} of {len(ratios)} plots"
    half = "left" if "early" in says else "right"
    asked = f"below 1 in at least {enough}, over the {half} half of the axis"
    return Part(says, tuple(below(_plot_named(*plot), v, 1.0) for plot, v in ratios.items()), measured, asked, enough)


def _measures(values: dict[tuple[int, str], float], bound: float) -> tuple[Measure, ...]:
    return tuple(at_most(_plot_named(*plot), value, bound) for plot, value in values.items())


def _lead(of_plot: dict[tuple[int, int], float]) -> float:
    """The level of the paper's best architecture over the lowest of the others: at most 1 where it is the best."""
    return of_plot[BEST[0]] / min(value for a, value in of_plot.items() if a != BEST[0])


def _named(architecture: tuple[int, int]) -> str:
    return f"r={architecture[0]} γ={architecture[1]}"


def _plot_named(scheme: int, corpus: str) -> str:
    return f"{CORPUS_NAMES[corpus]}, scheme {scheme}"


def _music(records: Records, figure: str, variant: dict[str, Any]) -> list[Line]:
    lines = Lines(records, figure)
    return [
        lines.one(variant, corpus="music", scheme=1, layers=r, hidden=512, k1=k1, k2=100) for r in (1, 2) for k1 in K1
    ]


def c8(records: Records) -> Finding:
    """Overfitting is a test perplexity that ends above its lowest while the train loss goes on falling."""
    plain = _music(records, "architectures-1", {})
    dropped = _music(records, "extras", {"dropout": 0.25})
    rise, with_dropout = (gmean(line.final / line.best for line in group) for group in (plain, dropped))
    falling = sum(_loss_falls(line) for line in plain)
    # Nothing can be reduced where nothing rises.
    kept = math.log(with_dropout) / math.log(rise) if rise > 1 else 1.0
    parts = (
        Part(
            "there is overfitting",
            (
                at_least("last / lowest", rise, CLOSE),
                at_least("lines whose loss falls", falling, len(plain) - ALL_BUT_ONE, is_ratio=False),
            ),
            f"the last perplexity stands {percent(rise)} above the lowest, while the train loss falls on in {falling} "
            f"of {len(plain)} lines",
            f"at least {percent(CLOSE)} above in the mean, the train loss falling in "
            f"{len(plain) - ALL_BUT_ONE} lines or more",
        ),
        Part(
            "dropout greatly reduces it",
            (at_most("share of the rise", kept, 1 / MUCH, is_ratio=False),),
            f"with 25 % dropout it stands {percent(with_dropout)} above: {100 * kept:.0f} % of the rise, in logarithms",
            "at most half of the rise",
        ),
        Part(
            "it stays observable",
            (at_least("last / lowest", with_dropout, VISIBLE),),
            f"{percent(with_dropout)} above",
            f"at least {percent(VISIBLE)}, what can be seen in the paper's plots",
        ),
    )
    rows = tuple(
        (f"r={1 + i // len(K1)}, k1 = {a.k1}", *(round(v, 3) for v in (a.best, a.final, b.best, b.final)))
        for i, (a, b) in enumerate(zip(plain, dropped, strict=True))
    )
    return Finding(parts, table(("line", "best", "last", "best, dropout", "last, dropout"), rows))


def _loss_falls(line: Line) -> bool:
    at_best = line.loss[line.turn]
    at_end = line.loss[-1]
    return at_best is not None and at_end is not None and at_end < at_best


def _bump(line: Line, since: int, until: int) -> float:
    """The largest rise over the lowest before it, between two numbers of train sequences."""
    return max(rise for batch, rise in line.rises.items() if since <= ROWS * batch <= until)


def c9(records: Records) -> Finding:
    """A rise near 1,000 train sequences, lower with gentler steps."""
    base = Lines(records, "architectures-1")
    extras = Lines(records, "extras")
    groups: dict[str, list[float]] = {}
    for name, lines, variant, window in (
        ("Adam 0.001", base, {}, BUMP),
        ("Adam 0.0001", extras, {"learning_rate": 0.0001}, BUMP_SLOWLY),
        ("RMSprop 0.001", extras, {"optimiser": "rmsprop"}, BUMP),
    ):
        cells = [{"layers": r, "k1": k1} for r in (1, 2) for k1 in K1]
        lines_of_group = [lines.one(variant, corpus="finnish", scheme=1, hidden=128, k2=100, **cell) for cell in cells]
        groups[name] = [_bump(line, *window) for line in lines_of_group]
    height = {name: gmean(bumps) for name, bumps in groups.items()}
    seen = sum(rise >= VISIBLE for rise in groups["Adam 0.001"])
    others = list(groups)[1:]
    left = {name: mean(rise >= VISIBLE for rise in groups[name]) for name in others}
    parts = (
        Part(
            "there is a bump around 1,000 train sequences for all k1",
            (at_least("lines", seen, len(groups["Adam 0.001"]) - ALL_BUT_ONE, is_ratio=False),),
            f"in {seen} of 10 lines perplexity rises by {percent(VISIBLE)} or more between {BUMP[0]} and {BUMP[1]:,} "
            f"train sequences; {percent(height['Adam 0.001'])} in the mean",
            "in at least 9 of 10 (r 1 and 2, five k1)",
        ),
        # Where there is no bump, nothing lowers it: 0.0 % instead of 0.1 % is no confirmation.
        Part(
            "learning rate 0.0001 or RMSprop lower it",
            (
                at_least("Adam 0.001", height["Adam 0.001"], VISIBLE),
                *(below(f"{name} / Adam 0.001", height[name] / height["Adam 0.001"], 1.0) for name in others),
            ),
            ", ".join(f"{name} {percent(height[name])}" for name in others) + " in the mean",
            f"both lower than with Adam 0.001, which shows one of at least {percent(VISIBLE)}",
        ),
        # "Remains an artefact": half of the lines still show it.
        Part(
            "but do not remove it",
            tuple(at_least(name, value, 0.5, is_ratio=False) for name, value in left.items()),
            ", ".join(f"{name} keeps one in {100 * left[name]:.0f} % of the lines" for name in others),
            f"at least {percent(VISIBLE)} high in at least half of the lines of each",
        ),
    )
    rows = tuple(
        (f"r={1 + i // len(K1)}, k1 = {K1[i % len(K1)]}", *(round(groups[name][i], 3) for name in groups))
        for i in range(10)
    )
    return Finding(parts, table(("largest rise, times the lowest before", *groups), rows))
