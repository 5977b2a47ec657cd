"""C5, C7 and C10: the data sets, how much of them a model needs, and the order in which it reads them."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from unroll.studies.paper.claims.lines import (
    Lines,
    average,
    by_corpus,
    common_level,
    gmean,
    max_over_min,
    ratio,
    spread,
    turns,
)
from unroll.studies.paper.claims.thresholds import (
    CLOSE,
    CORPUS_NAMES,
    MUCH,
    TIE,
    VISIBLE,
    WARM_UP,
    listed,
    percent,
    times,
)
from unroll.studies.paper.claims.verdict import Finding, Measure, Part, Records, at_least, at_most, below, table
from unroll.studies.paper.figures import CORPORA, K1

SCHEMES = (1, 2, 3, 4)
TEXTS = ("english", "finnish", "linux")
# "Harder to model": beyond all that is called close, by half as much again. A unit of perplexity is a choice among
# that many equally likely tokens, so 1.5 × is a real difference for alphabets of similar size (85 to 106).
HARDER = 1.5
MOST = 3
SHUFFLED = {"shuffle": True}


def c5(records: Records) -> Finding:
    """Three texts alike, Music apart, under every scheme."""
    lines = Lines(records, "schemes")
    # The lowest perplexity of a line, not its end: Music's end is overfitting, and would make it look
    # harder than it is.
    best = {s: {c: gmean(line.best for line in lines.over_k1(c, s)) for c in CORPORA} for s in SCHEMES}
    texts = {s: max_over_min(by_corpus[c] for c in TEXTS) for s, by_corpus in best.items()}
    music = {s: by_corpus["music"] / max(by_corpus[c] for c in TEXTS) for s, by_corpus in best.items()}
    parts = (
        Part(
            "English, Finnish and Linux end at almost equal perplexity",
            tuple(at_most(f"scheme {s}", value, CLOSE) for s, value in texts.items()),
            "the highest of the three stands above the lowest by "
            + ", ".join(f"{percent(v)} (scheme {s})" for s, v in texts.items()),
            f"by at most {percent(CLOSE)} under every scheme, best perplexity, mean over k1",
        ),
        Part(
            "Music is harder",
            tuple(at_least(f"scheme {s}", value, HARDER) for s, value in music.items()),
            "Music stands at "
            + ", ".join(f"{times(v)} (scheme {s})" for s, v in music.items())
            + " the highest of them",
            f"at least {times(HARDER)} under every scheme",
        ),
    )
    rows = tuple((f"scheme {s}", *(round(best[s][c], 3) for c in CORPORA)) for s in SCHEMES)
    return Finding(parts, table(("best perplexity", *CORPUS_NAMES.values()), rows))


def c7(records: Records) -> Finding:
    """k1 against the scheme; and how much a token of train data gives with a small k1."""
    lines = Lines(records, "schemes")
    by_k1: dict[str, float] = {}
    by_scheme: dict[str, float] = {}
    saved: dict[str, float] = {}
    for corpus in CORPORA:
        grid = {s: lines.over_k1(corpus, s) for s in SCHEMES}
        by_k1[corpus] = gmean(spread(over_k1) for over_k1 in grid.values())
        by_scheme[corpus] = gmean(spread([grid[s][i] for s in SCHEMES]) for i in range(len(K1)))
        few = grid[1][0]
        many = grid[1][-1]
        level = common_level(few, many)
        # Batch i has read i·k1 new tokens per row: a stream of data would have had to supply these.
        tokens = {line.k1: line.needed(level, line.batch) * line.k1 for line in (few, many)}
        saved[corpus] = tokens[many.k1] / tokens[few.k1]
    parts = (
        Part(
            "k1 matters less than the scheme",
            by_corpus(below, {c: by_k1[c] / by_scheme[c] for c in CORPORA}, 1.0),
            f"five k1 of one scheme lie {listed({c: percent(v) for c, v in by_k1.items()})} apart, four "
            "schemes at one k1 " + listed({c: percent(v) for c, v in by_scheme.items()}),
            f"less, on at least {MOST} of 4 data sets, from batch {WARM_UP} on",
            MOST,
        ),
        Part(
            "a small k1 is data efficient",
            by_corpus(at_least, saved, MUCH),
            "to the same perplexity under scheme 1, k1 = 100 reads "
            f"{listed({c: times(v) for c, v in saved.items()})} the tokens of k1 = 20",
            f"at least {times(MUCH)} (5 × where batches count alike) on at least {MOST} of 4 data sets",
            MOST,
        ),
    )
    rows = tuple((CORPUS_NAMES[c], *(round(column[c], 3) for column in (by_k1, by_scheme, saved))) for c in CORPORA)
    columns = ("data set", "spread over k1", "spread over schemes", "tokens read, k1 = 100 / 20")
    note = "Label reuse, k2/k1 times an epoch, follows from how windows are laid and is not a measurement."
    return Finding(parts, table(columns, rows), note)


def c10(records: Records) -> Finding:
    """Shuffled windows against a rotated train set, schemes 1 to 3."""
    rotated = Lines(records, "schemes")
    shuffled = Lines(records, "extras")
    changed: dict[tuple[str, int], float] = {}
    turning: dict[str, float] = {}
    for corpus in CORPORA:
        best = {}
        for scheme in (1, 2, 3):
            pairs = []
            for k1 in K1:
                what: dict[str, Any] = {"corpus": corpus, "scheme": scheme, "layers": 1, "hidden": 512}
                what |= {"k1": k1, "k2": 100}
                new = shuffled.curves_of(SHUFFLED, **what)
                # Both come in the same seeds; a difference between seeds would otherwise count as one of the order.
                old = average([line for curve in new for line in rotated.each(seed=curve.seed, **what)])
                pairs.append((shuffled.one(SHUFFLED, **what), old))
            changed[corpus, scheme] = gmean(ratio(mixed.by_batch, plain.by_batch) for mixed, plain in pairs)
            best[scheme] = tuple(average(side).best for side in zip(*pairs, strict=True))
        for a, b in combinations(best, 2):
            pair = f"{a} and {b} on {CORPUS_NAMES[corpus]}"
            turning[pair] = turns(best[a][i] / best[b][i] for i in (0, 1))
    turned = [pair for pair, size in turning.items() if size > TIE]
    parts = (
        Part(
            "the curves stay where they are",
            tuple(
                Measure(f"{CORPUS_NAMES[c]}, scheme {s}", value, 1 / VISIBLE, VISIBLE)
                for (c, s), value in changed.items()
            ),
            f"shuffled over rotated lies between {times(min(changed.values()))} and {times(max(changed.values()))}",
            f"within {percent(VISIBLE)} either way for each data set and scheme, mean over k1 and points",
        ),
        Part(
            "and so do the observations",
            tuple(at_most(pair, size, TIE) for pair, size in turning.items()),
            f"pairs of schemes whose order turns round: {', '.join(turned) or 'none'}",
            f"none of 12, differences below {percent(TIE)} taken as ties",
        ),
    )
    rows = tuple((CORPUS_NAMES[c], *(round(changed[c, s], 4) for s in (1, 2, 3))) for c in CORPORA)
    columns = ("shuffled / rotated", "scheme 1", "scheme 2", "scheme 3")
    return Finding(parts, table(columns, rows), "Compared in the seeds that both have.")
