"""C1 to C4, C14 and C16: the four schemes against each other, on r=1 γ=512 and k2 = 100."""

from __future__ import annotations

import math
from itertools import combinations
from statistics import median
from typing import Any

from unroll.studies.paper.claims.lines import (
    Line,
    Lines,
    average,
    by_corpus,
    common_level,
    gmean,
    max_over_min,
    mean,
    ratio,
    spread,
    turns,
    unstable,
)
from unroll.studies.paper.claims.thresholds import (
    CLOSE,
    CORPUS_NAMES,
    MUCH,
    STEP,
    TIE,
    VISIBLE,
    WARM_UP,
    listed,
    percent,
    times,
)
from unroll.studies.paper.claims.verdict import (
    Finding,
    Measure,
    Part,
    Records,
    above,
    at_least,
    at_most,
    below,
    table,
)
from unroll.studies.paper.figures import ARCHITECTURES, CORPORA, K1

SCHEMES = (1, 2, 3, 4)
# "Around 200 train batches": up to here schemes 3 and 4 should go together.
PARTING = 200
# Of the 20 lines of scheme 4 (four corpora, five k1), "some" that diverge are at least two: one might be chance.
SOME = 2
# To diverge is more than a single point above the line: the next evaluation is 27 % more batches away.
LASTING = 2
# A majority of the four data sets, for what the paper says of schemes and not of every plot.
MOST = 3


def _spreads(lines: Lines, scheme: int) -> dict[str, float]:
    return {corpus: spread(lines.over_k1(corpus, scheme)) for corpus in CORPORA}


def c1(records: Records) -> Finding:
    """Scheme 1: the best, and robust."""
    lines = Lines(records, "schemes")
    best = {c: {s: gmean(line.best for line in lines.over_k1(c, s)) for s in SCHEMES} for c in CORPORA}
    # Best of all, except within a tie. The lowest point of a curve counts, not its end: on Music the end is a matter of
    # overfitting, which the paper treats apart.
    behind = {c: by_scheme[1] / min(by_scheme[s] for s in SCHEMES if s != 1) for c, by_scheme in best.items()}
    close = _spreads(lines, 1)
    parts = (
        Part(
            "scheme 1 has the best perplexity on every data set",
            by_corpus(at_most, behind, TIE),
            "scheme 1's best perplexity, mean over k1, is "
            f"{listed({c: times(v) for c, v in behind.items()})} the best of the other three",
            f"at most {times(TIE)} on each of the four",
        ),
        Part(
            "its curves for different k1 lie very close",
            by_corpus(at_most, close, CLOSE),
            f"from batch {WARM_UP} on the five lie {listed({c: percent(v) for c, v in close.items()})} apart",
            f"within {percent(CLOSE)} on each data set, highest over lowest in the mean over points",
        ),
    )
    rows = tuple((CORPUS_NAMES[c], *(round(best[c][s], 3) for s in SCHEMES), round(close[c], 3)) for c in CORPORA)
    columns = ("data set", *(f"best, scheme {s}" for s in SCHEMES), "scheme 1, highest / lowest k1")
    return Finding(parts, table(columns, rows))


def c2(records: Records) -> Finding:
    """Scheme 2: slower, and smoother."""
    lines = Lines(records, "architectures-1", "architectures-2")
    slower: dict[str, float] = {}
    detour: dict[str, tuple[float, float]] = {}
    for corpus in CORPORA:
        pairs = [
            tuple(lines.one(corpus=corpus, scheme=s, layers=r, hidden=h, k1=k1, k2=100) for s in (1, 2))
            for r, h in ARCHITECTURES
            for k1 in K1
        ]
        slower[corpus] = gmean(_times_as_long(one, two) for one, two in pairs)
        # Smoothness is measured on single curves: a mean over seeds would smooth them.
        each = {s: lines.each(corpus=corpus, scheme=s, k2=100) for s in (1, 2)}
        detour[corpus] = (median(line.detour for line in each[1]), median(line.detour for line in each[2]))
    others = max(value for corpus, value in slower.items() if corpus != "music")
    smoother = {corpus: (1 + two) / (1 + one) for corpus, (one, two) in detour.items()}
    parts = (
        Part(
            "scheme 2 needs more train sequences than scheme 1",
            by_corpus(at_least, slower, STEP),
            f"to the same perplexity scheme 2 takes {listed({c: times(v) for c, v in slower.items()})} as many",
            f"at least {times(STEP)}, one evaluation point, on every data set",
        ),
        Part(
            "most visibly on Music",
            (above("Music / the others", slower["music"] / others, 1.0),),
            f"Music {times(slower['music'])}, the others up to {times(others)}",
            "the largest factor of the four is Music's",
        ),
        Part(
            "its curves are smoother",
            by_corpus(below, smoother, 1.0),
            "detours on the way down, scheme 1 and scheme 2: "
            + listed({c: f"{100 * a:.0f} and {100 * b:.0f} %" for c, (a, b) in detour.items()}),
            f"smaller under scheme 2 on at least {MOST} of 4 data sets, median over lines; "
            "0 % is a line that only falls",
            MOST,
        ),
    )
    rows = tuple((CORPUS_NAMES[c], round(slower[c], 2), *(round(v, 3) for v in detour[c])) for c in CORPORA)
    columns = ("data set", "train sequences, scheme 2 / scheme 1", "detour, scheme 1", "detour, scheme 2")
    return Finding(parts, table(columns, rows))


def _times_as_long(one: Line, two: Line) -> float:
    level = common_level(one, two)
    return two.needed(level, two.batch) / one.needed(level, one.batch)


def c3(records: Records) -> Finding:
    """Scheme 3: the same model as scheme 1, scored with a state that runs on."""
    lines = Lines(records, "schemes")
    worse: dict[str, float] = {}
    ends: dict[str, float] = {}
    for corpus in CORPORA:
        pairs = list(zip(lines.over_k1(corpus, 3), lines.over_k1(corpus, 1), strict=True))
        worse[corpus] = gmean(ratio(three.by_batch, one.by_batch) for three, one in pairs)
        ends[corpus] = max(three.final / one.final for three, one in pairs)
    first = _spreads(lines, 1)
    third = _spreads(lines, 3)
    # One model is scored twice, so the smallest difference is real, and "worse" needs no margin.
    parts = (
        Part(
            "scheme 3 is worse than scheme 1",
            by_corpus(above, worse, 1.0),
            f"from batch {WARM_UP} on scheme 3 stands at {listed({c: times(v) for c, v in worse.items()})} scheme 1",
            f"above 1 on at least {MOST} of 4 data sets",
            MOST,
        ),
        Part(
            "but only very slightly",
            tuple(Measure(CORPUS_NAMES[c], value, 1 / VISIBLE, VISIBLE) for c, value in worse.items()),
            f"by {listed({c: percent(v) for c, v in worse.items()})}; after the last batch the worst k1 stands at "
            f"{listed({c: times(v) for c, v in ends.items()})}",
            f"within {percent(VISIBLE)} of it on every data set, the width of a line in the paper's plots",
        ),
        Part(
            "and a little less robust to k1",
            (above("scheme 3 / scheme 1", gmean(third.values()) / gmean(first.values()), 1.0),),
            f"the five k1 lie {percent(gmean(third.values()))} apart, scheme 1's {percent(gmean(first.values()))}",
            "further apart than scheme 1's, mean over data sets",
        ),
    )
    rows = tuple(
        (CORPUS_NAMES[c], round(worse[c], 4), round(ends[c], 3), round(first[c], 3), round(third[c], 3))
        for c in CORPORA
    )
    columns = ("data set", "scheme 3 / scheme 1", "worst k1 at the end", "k1 spread, scheme 1", "k1 spread, scheme 3")
    return Finding(parts, table(columns, rows))


def c4(records: Records) -> Finding:
    """Scheme 4: with scheme 3 at first, then not."""
    lines = Lines(records, "schemes")
    apart: list[float] = []
    lasting: dict[str, int] = {}
    share: dict[str, float] = {}
    third: dict[str, int] = {}
    seeds = 1
    for corpus in CORPORA:
        counts, third_counts = 0, 0
        shares = []
        for k1 in K1:
            what: dict[str, Any] = {"corpus": corpus, "layers": 1, "hidden": 512, "k1": k1, "k2": 100}
            groups = [lines.each(scheme=s, **what) for s in (1, 3, 4)]
            seeds = max(seeds, len(groups[2]))
            for one, three, four in zip(*groups, strict=True):
                of_three = three.by_batch
                early = [(b, p) for b, p in four.by_batch.items() if b <= PARTING and b in of_three]
                apart += [math.exp(abs(math.log(p / of_three[b]))) for b, p in early]
                when = unstable(four, scheme1=one, scheme3=three, since=PARTING)
                counts += len(when) >= LASTING
                shares.append(len(when) / sum(b >= PARTING for b in four.batch))
                third_counts += len(unstable(three, scheme1=one, since=PARTING)) >= LASTING
        lasting[corpus] = counts
        share[corpus] = mean(shares)
        third[corpus] = third_counts
    elsewhere = max(value for corpus, value in share.items() if corpus != "music")
    none = 0.0 if share["music"] > 0 else -1.0  # where Music is calm, nothing is milder
    parts = (
        Part(
            "scheme 4 follows scheme 3 until about 200 batches",
            (at_most("apart", median(apart), CLOSE),),
            f"up to batch {PARTING} the two lie {percent(median(apart))} apart",
            f"within {percent(CLOSE)}, median over points and lines",
        ),
        Part(
            "then some k1 go unstable",
            (at_least("lines a seed", sum(lasting.values()) / seeds, SOME, is_ratio=False),),
            f"of {5 * seeds} lines each, {listed({c: str(n) for c, n in lasting.items()})} turn unstable for good or "
            f"repeatedly (of scheme 3's: {listed({c: str(n) for c, n in third.items()})})",
            f"at least {SOME * seeds} of {20 * seeds}, each at {LASTING} evaluation points or more after batch "
            f"{PARTING}; a rise that scheme 1 shares is overfitting and does not count",
        ),
        Part(
            "Music is worst",
            (above("Music less the others", share["music"] - elsewhere, 0.0, is_ratio=False),),
            f"unstable points after batch {PARTING}: {listed({c: f'{100 * v:.0f} %' for c, v in share.items()})}",
            "the largest share of the four is Music's",
        ),
        Part(
            "Finnish is much milder",
            (at_most("twice Finnish less Music", MUCH * share["finnish"] - share["music"], none, is_ratio=False),),
            f"Finnish {100 * share['finnish']:.0f} %, Music {100 * share['music']:.0f} %",
            "at most half of Music's share",
        ),
    )
    rows = tuple((CORPUS_NAMES[c], lasting[c], round(share[c], 3), third[c]) for c in CORPORA)
    columns = ("data set", f"unstable lines of {5 * seeds}", "share of points", "of scheme 3's lines")
    return Finding(parts, table(columns, rows))


def c14(records: Records) -> Finding:
    """Robustness to k1, scheme by scheme."""
    lines = Lines(records, "schemes")
    spreads = {s: _spreads(lines, s) for s in SCHEMES}
    overall = {s: gmean(by_corpus.values()) for s, by_corpus in spreads.items()}
    # The paper gives an order and no sizes, so each step of the order is a part.
    parts = tuple(
        Part(
            f"the spread over k1 is larger under scheme {b} than under scheme {a}",
            (above(f"scheme {b} / scheme {a}", overall[b] / overall[a], 1.0),),
            f"scheme {a} {percent(overall[a])}, scheme {b} {percent(overall[b])}",
            "larger, mean over data sets",
        )
        for a, b in ((1, 2), (2, 3), (3, 4))
    )
    rows = tuple((f"scheme {s}", *(round(spreads[s][c], 3) for c in CORPORA), round(overall[s], 3)) for s in SCHEMES)
    return Finding(parts, table(("highest / lowest k1", *CORPUS_NAMES.values(), "all"), rows))


def c16(records: Records) -> Finding:
    """The schemes against each other, data set by data set."""
    lines = Lines(records, "schemes")
    level: dict[str, dict[int, float]] = {}
    for corpus in CORPORA:
        learnt = {s: average(lines.over_k1(corpus, s)).best_so_far for s in SCHEMES}
        level[corpus] = {s: ratio(by_batch, learnt[1]) for s, by_batch in learnt.items()}
    # An order that turns round from one data set to another, by more than a tie on both, is another behaviour.
    turning = {f"{a} and {b}": turns(level[c][a] / level[c][b] for c in CORPORA) for a, b in combinations(SCHEMES, 2)}
    turned = [pair for pair, size in turning.items() if size > TIE]
    sizes = {s: max_over_min(level[c][s] for c in CORPORA) for s in SCHEMES if s != 1}
    parts = (
        Part(
            "the schemes stand in the same order on all data sets",
            tuple(at_most(pair, size, TIE) for pair, size in turning.items()),
            f"pairs of schemes whose order turns round: {', '.join(turned) or 'none'} of 6",
            f"none, differences below {percent(TIE)} taken as ties",
        ),
        Part(
            "at nearly the same distances",
            tuple(at_most(f"scheme {s}", value, CLOSE) for s, value in sizes.items()),
            "their distance to scheme 1 differs between data sets by "
            + ", ".join(f"{percent(v)} (scheme {s})" for s, v in sizes.items()),
            f"by at most {percent(CLOSE)}, best perplexity so far, mean over points from batch {WARM_UP} on",
        ),
    )
    rows = tuple((CORPUS_NAMES[c], *(round(level[c][s], 3) for s in SCHEMES)) for c in CORPORA)
    return Finding(parts, table(("times scheme 1", *(f"scheme {s}" for s in SCHEMES)), rows))
