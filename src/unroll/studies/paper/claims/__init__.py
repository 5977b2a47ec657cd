"""The paper's claims, C1 to C17, each a function of the records: what was measured, the threshold, and the verdict.

thresholds.py      what "very close", "much" and "observable" mean, in numbers, and why
lines.py           curves as the claims read them
verdict.py         a claim, its parts, the numbers that they turn on, and its verdict: data
certainty.py       an interval over seeds for each number: the one rule
schemes.py         C1 to C4, C14, C16
data_sets.py       C5, C7, C10
architectures.py   C6, C8, C9
clocks.py          C11, C12, C15, C17
windows.py         C13

A claim says several things; each is a part that holds, does not hold, or cannot be told, since another seed might have
turned it. All hold: the claim *holds*; some: *holds in part*; none: *does not hold*. Where that turns on parts that are
open, the claim *cannot be told*. Where the records do not suffice, or are of a smaller scale, it is *not judged*.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from unroll.studies.paper.claims import architectures, clocks, data_sets, schemes, windows
from unroll.studies.paper.claims.certainty import with_intervals
from unroll.studies.paper.claims.lines import gmean, max_over_min
from unroll.studies.paper.claims.thresholds import CORPUS_NAMES, percent
from unroll.studies.paper.claims.verdict import NOT_JUDGED, Claim, NotJudgedError, Records, Verdict, decide
from unroll.studies.paper.figures import FIGURES, Series
from unroll.studies.paper.records import Record

__all__ = ["CLAIMS", "Claim", "Verdict", "judge", "verdict"]

BOTH = ("architectures-1", "architectures-2")
CLAIMS = (
    Claim(
        "C1",
        "Scheme 1 has the best perplexity on every data set, and its curves for different k1 lie very close.",
        ("schemes",),
        schemes.c1,
    ),
    Claim(
        "C2",
        "Scheme 2 learns more slowly than scheme 1 in train sequences, most visibly on Music, with smoother curves.",
        BOTH,
        schemes.c2,
    ),
    Claim(
        "C3",
        "Scheme 3 is very slightly worse than scheme 1 and a little less robust to k1.",
        ("schemes",),
        schemes.c3,
    ),
    Claim(
        "C4",
        "Scheme 4 follows scheme 3 until about 200 batches, then some k1 go unstable; it depends on the data set: "
        "Music worst, Finnish much milder.",
        ("schemes",),
        schemes.c4,
    ),
    Claim(
        "C5",
        "English, Finnish and Linux end at almost equal perplexity; Music is harder.",
        ("schemes",),
        data_sets.c5,
    ),
    Claim(
        "C6",
        "γ=512 is better early; r=1 learns faster later; at 12,800 batches no clear difference; r=1, γ=512 is best "
        "overall; with schemes 1 and 2 alike.",
        BOTH,
        architectures.c6,
    ),
    Claim(
        "C7",
        "k1 matters less than the scheme; small k1 is data efficient (label reuse about k2/k1 in multi-loss training).",
        ("schemes",),
        data_sets.c7,
    ),
    Claim(
        "C8",
        "On Music with γ=512 there is overfitting; 25 % dropout greatly reduces it, but it stays observable.",
        ("architectures-1", "extras"),
        architectures.c8,
    ),
    Claim(
        "C9",
        "Finnish, γ=128, r 1 and 2: a bump around 1,000 train sequences for all k1, lowered but not removed by "
        "learning rate 0.0001 or RMSprop.",
        ("architectures-1", "extras"),
        architectures.c9,
    ),
    Claim(
        "C10",
        "Shuffling windows instead of rotating the train set changes nothing (schemes 1 to 3).",
        ("schemes", "extras"),
        data_sets.c10,
    ),
    Claim(
        "C11",
        "Single-loss trains faster a batch, and the relative gain shrinks as the architecture grows (the text says "
        "25 % to 9 %, its table 23, 17, 13, 8 %); schemes 1, 3, 4 cost the same.",
        ("timing",),
        clocks.c11,
    ),
    Claim(
        "C12",
        "Progressive sampling is 10 to 20 times faster a token than windowed as the paper runs it (k2 tokens read "
        "again for each new one).",
        ("timing",),
        clocks.c12,
    ),
    Claim(
        "C13",
        "Music, k2 from 20 to 100: smaller k2 finishes sooner; scheme 1 is the most robust, its shortest k2 noisy only "
        "at first; schemes 1 and 3 reach the same optimum for all k2, scheme 3 less robust at small k2; scheme 2 is "
        "much slower, unstable for k2 ≤ 40, stable but not converged for k2 ≥ 60; scheme 4 is unstable almost "
        "everywhere, two runs with k2 = 20 end near perplexity 350, lower k1 helps there.",
        ("k2",),
        windows.c13,
    ),
    Claim("C14", "The spread over k1 grows from scheme 1 to 2 to 3 to 4.", ("schemes",), schemes.c14),
    Claim(
        "C15",
        "Also in total training time multi-loss beats single-loss: its faster batches do not make up for it.",
        ("k2", "schemes", "timing"),
        clocks.c15,
    ),
    Claim("C16", "The schemes' behaviour is nearly the same on all data sets.", ("schemes",), schemes.c16),
    Claim("C17", "k1 hardly changes the time of a batch.", ("timing",), clocks.c17),
)


def judge(records: Records) -> tuple[Verdict, ...]:
    """All seventeen, in order."""
    return tuple(verdict(claim, records) for claim in CLAIMS)


def verdict(claim: Claim, records: Records) -> Verdict:
    """One claim, as far as the records go."""
    try:
        known = {name: whole(name, records.get(name)) for name in claim.needs}
        finding = with_intervals(claim.judge, known, _whole(records))
    except NotJudgedError as error:
        why = str(error)
        return Verdict(claim.id, claim.words, NOT_JUDGED, f"{why[0].upper()}{why[1:]}.", "", claim.needs)
    measured = "; ".join(part.measured for part in finding.parts)
    sentences = [f"{measured[0].upper()}{measured[1:]}.", finding.note, _seeds(known)]
    return Verdict(
        claim.id,
        claim.words,
        decide(part.held for part in finding.parts),
        " ".join(sentence for sentence in sentences if sentence),
        "; ".join(f"{part.says}: {part.threshold}" for part in finding.parts) + ".",
        claim.needs,
        finding.parts,
        finding.table,
    )


def whole(name: str, record: Record | None) -> Record:
    """A record's whole seeds. Half a grid would be a choice of evidence, and a smaller scale another experiment."""
    if record is None:
        raise NotJudgedError(f"there is no record of {name}")
    if record.scale < 1:
        raise NotJudgedError(f"not judged at this scale, {record.scale:g} of the paper's")
    held = {(curve.series, curve.seed) for curve in record.curves}
    missing = {seed: [series for series in FIGURES[name] if (series, seed) not in held] for seed in record.seeds}
    seeds = [seed for seed, absent in missing.items() if not absent]
    if not seeds:
        absent = min(missing.values(), key=len, default=list(FIGURES[name]))
        example = absent[0]
        first = f"{CORPUS_NAMES[example.corpus]}, scheme {example.scheme}, k1 = {example.k1}, k2 = {example.k2}"
        what = f"{len(absent)} curves of {name} are" if len(absent) > 1 else f"a curve of {name} is"
        raise NotJudgedError(f"{what} missing from its record: {first}{', …' if len(absent) > 1 else ''}")
    return replace(record, curves=tuple(curve for curve in record.curves if curve.seed in seeds))


def _whole(records: Records) -> Records:
    """The records that could be judged."""
    known = {}
    for name, record in records.items():
        with suppress(NotJudgedError):
            known[name] = whole(name, record)
    return known


def _seeds(records: Records) -> str:
    """How far apart seeds lie, where there are several. A run in two records counts as one seed."""
    best: dict[Series, dict[int, float]] = {}
    for record in records.values():
        for curve in record.curves:
            if curve.scored:
                best.setdefault(curve.series, {})[curve.seed] = min(value for _, _, value in curve.scored)
    apart = [max_over_min(by_seed.values()) for by_seed in best.values() if len(by_seed) > 1]
    if not apart:
        return ""
    seeds = max(len(by_seed) for by_seed in best.values())
    return (
        f"Means over up to {seeds} seeds, whose best perplexities lie {percent(gmean(apart))} apart in the mean and "
        f"{percent(max(apart))} at most."
    )
