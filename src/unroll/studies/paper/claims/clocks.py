"""C11, C12, C15 and C17: the cost of a batch and of a token, and its effect on learning."""

from __future__ import annotations

import math

from unroll.studies.paper.claims.lines import Lines, Measures, common_level, gmean, max_over_min
from unroll.studies.paper.claims.thresholds import CORPUS_NAMES, VISIBLE, listed, percent, times
from unroll.studies.paper.claims.verdict import Finding, Measure, NotJudgedError, Part, Records, above, table
from unroll.studies.paper.figures import ARCHITECTURES, BEST, CORPORA, K1, K1_OF_K2
from unroll.studies.paper.records import Time

# Two gains closer than two points in a hundred are the noise of a clock.
CLOCK_POINTS = 2.0
# The paper's own numbers: "a factor of 10 up to 20" (its table: 10.0, 18.1, 12.5 and 19.7).
FASTER = (10.0, 20.0)
WAYS = ("windowed_naive", "windowed", "progressive")


def _times(records: Records, alone: bool = True) -> dict[tuple[int, int, int], Time]:
    """Times by scheme and architecture. The paper measured one run at a time; a fleet stands beside it."""
    cells = {(t.scheme, t.layers, t.hidden): t for t in records["timing"].times if (t.fleet == 1) == alone}
    missing = [(s, r, h) for s in (1, 2, 3, 4) for r, h in ARCHITECTURES if (s, r, h) not in cells]
    if missing:
        side = "one run at a time" if alone else "a fleet"
        raise NotJudgedError(f"the timing table has no row for scheme, r, γ = {missing[0]} with {side}")
    return cells


def _gain(cells: dict[tuple[int, int, int], Time], architecture: tuple[int, int]) -> float:
    """The time that a single-loss batch saves, in per cent of a multi-loss batch."""
    return 100 * (1 - cells[2, *architecture].batch_ms / cells[1, *architecture].batch_ms)


def _read(values: dict[tuple[int, int], float], low: float | None = None, high: float | None = None) -> Measures:
    """Numbers of a clock, one for each architecture."""
    return tuple(Measure(f"r={r} γ={h}", value, low, high, is_clock=True) for (r, h), value in values.items())


def c11(records: Records) -> Finding:
    """Training time a batch."""
    alone = _times(records)
    fleet = _times(records, alone=False)
    gains = {a: _gain(alone, a) for a in ARCHITECTURES}
    in_fleet = {a: _gain(fleet, a) for a in ARCHITECTURES}
    # Each step that grows the architecture: more units at the same depth, or more layers at the same width.
    steps = [((1, 128), (1, 512)), ((2, 128), (2, 512)), ((1, 128), (2, 128)), ((1, 512), (2, 512))]
    against = [f"r={a[0]} γ={a[1]} to r={b[0]} γ={b[1]}" for a, b in steps if gains[b] > gains[a] + CLOCK_POINTS]
    same = {a: max_over_min(alone[s, *a].batch_ms for s in (1, 3, 4)) for a in ARCHITECTURES}

    def listed_gains(values: dict[tuple[int, int], float]) -> str:
        return ", ".join(f"{value:.0f} % (r={r} γ={h})" for (r, h), value in values.items())

    parts = (
        Part(
            "single-loss trains faster a batch",
            _read(gains, low=math.nextafter(0.0, 1.0)),
            f"by {listed_gains(gains)}; in a fleet by {listed_gains(in_fleet)}",
            "less time on every architecture, one run at a time",
        ),
        Part(
            "the relative gain shrinks as the architecture grows",
            (
                Measure(
                    "smallest less largest", gains[1, 128] - gains[2, 512], math.nextafter(0.0, 1.0), is_clock=True
                ),
                Measure("steps up", len(against), None, 0.0, is_clock=True),
            ),
            f"from {gains[1, 128]:.0f} % to {gains[2, 512]:.0f} % (the paper's table: 23 to 8)"
            + (f"; it grows from {', '.join(against)}" if against else ""),
            f"smaller for the largest than for the smallest, and no step up by more than {CLOCK_POINTS:.0f} points",
        ),
        Part(
            "schemes 1, 3 and 4 cost the same",
            _read(same, high=VISIBLE),
            f"their batches differ by at most {percent(max(same.values()))}",
            f"by at most {percent(VISIBLE)} on every architecture",
        ),
    )
    rows = tuple(
        (
            f"r={r} γ={h}",
            *(round(alone[s, r, h].batch_ms, 3) for s in (1, 2, 4)),
            round(gains[r, h], 1),
            *(round(fleet[s, r, h].batch_ms, 4) for s in (1, 2, 4)),
            round(in_fleet[r, h], 1),
        )
        for r, h in ARCHITECTURES
    )
    names = ("multi-loss", "single-loss", "conditional", "gain, %")
    return Finding(parts, table(("ms a batch", *names, *(f"{name}, fleet" for name in names)), rows))


def c12(records: Records) -> Finding:
    """Sampling time a token: windowed as the paper ran it, rolling, and progressive."""
    alone = _times(records)
    ms = {a: alone[1, *a].sample_ms for a in ARCHITECTURES}
    if any(not by_way.keys() >= set(WAYS) for by_way in ms.values()):
        raise NotJudgedError("the timing table lacks one of the three ways of sampling")
    naive = {a: by_way["windowed_naive"] / by_way["progressive"] for a, by_way in ms.items()}
    rolling = {a: by_way["windowed"] / by_way["progressive"] for a, by_way in ms.items()}
    listed_factors = ", ".join(f"{times(v)} (r={r} γ={h})" for (r, h), v in naive.items())
    low, high = FASTER
    parts = (
        Part(
            "progressive sampling is at least 10 times faster a token",
            _read(naive, low=low),
            f"windowed as the paper ran it takes {listed_factors}; rolling {times(min(rolling.values()))} to "
            f"{times(max(rolling.values()))}",
            f"at least {times(low)} on every architecture, one text at a time",
        ),
        Part(
            "by 10 to 20 times",
            _read(naive, low=low, high=high),
            f"by {times(min(naive.values()))} to {times(max(naive.values()))}",
            f"from {times(low)} to {times(high)} on every architecture",
        ),
    )
    rows = tuple(
        (f"r={r} γ={h}", *(round(ms[r, h][way], 4) for way in WAYS), round(naive[r, h], 1), round(rolling[r, h], 2))
        for r, h in ARCHITECTURES
    )
    columns = (
        "ms a token",
        "windowed, as the paper ran it",
        "windowed, rolling",
        "progressive",
        "factor",
        "factor, rolling",
    )
    return Finding(parts, table(columns, rows))


def c15(records: Records) -> Finding:
    """Time to a perplexity, single-loss over multi-loss."""
    k2_lines = Lines(records, "k2")
    lines = Lines(records, "schemes")
    by_k2: dict[int, float] = {}
    for k2, every in K1_OF_K2.items():
        pairs = [
            [k2_lines.one(corpus="music", scheme=s, layers=1, hidden=512, k1=k1, k2=k2) for s in (1, 2)] for k1 in every
        ]
        by_k2[k2] = gmean(
            two.needed(common_level(one, two), two.seconds) / one.needed(common_level(one, two), one.seconds)
            for one, two in pairs
        )
    # Runs of `schemes` share fleets with other procedures, so their clock is the fleet's. Batches come from the curve,
    # and the time of a batch from the table, in a fleet as they ran.
    cells = _times(records, alone=False)
    batch = cells[2, *BEST[0]].batch_ms / cells[1, *BEST[0]].batch_ms
    by_corpus: dict[str, float] = {}
    for corpus in CORPORA:
        pairs = [[lines.one(corpus=corpus, scheme=s, layers=1, hidden=512, k1=k1, k2=100) for s in (1, 2)] for k1 in K1]
        by_corpus[corpus] = batch * gmean(
            two.needed(common_level(one, two), two.batch) / one.needed(common_level(one, two), one.batch)
            for one, two in pairs
        )
    parts = (
        Part(
            "on every data set single-loss takes longer to the same perplexity",
            tuple(above(CORPUS_NAMES[c], value, 1.0) for c, value in by_corpus.items()),
            f"{listed({c: times(v) for c, v in by_corpus.items()})} the time of multi-loss, a batch {times(batch)}",
            "longer on each of the four, mean over k1",
        ),
        Part(
            "and so it does for every k2",
            tuple(above(f"k2 = {k2}", value, 1.0) for k2, value in by_k2.items()),
            "on Music " + ", ".join(f"{times(v)} (k2 = {k2})" for k2, v in by_k2.items()),
            "longer for each of the five, mean over k1",
        ),
    )
    rows = (
        *((f"{CORPUS_NAMES[c]}, k2 = 100", round(v, 2)) for c, v in by_corpus.items()),
        *((f"Music, k2 = {k2}, by the clock", round(v, 2)) for k2, v in by_k2.items()),
    )
    return Finding(parts, table(("training", "time to the same perplexity, scheme 2 / scheme 1"), rows))


def c17(records: Records) -> Finding:
    """The time of a batch by k1."""
    groups: dict[str, dict[int, float]] = {}
    for t in records["timing"].k1_times:
        side = "alone" if t.fleet == 1 else f"fleet of {t.fleet}"
        groups.setdefault(f"scheme {t.scheme}, r={t.layers} γ={t.hidden}, {side}", {})[t.k1] = t.batch_ms
    groups = {name: by_k1 for name, by_k1 in groups.items() if len(by_k1) > 1}
    if not groups:
        raise NotJudgedError("the record of timing has no times for several k1")
    spans = {name: max_over_min(by_k1.values()) for name, by_k1 in groups.items()}
    worst = max(spans, key=spans.__getitem__)
    part = Part(
        "k1 hardly changes the time of a batch",
        (Measure(worst, spans[worst], None, VISIBLE, is_clock=True),),
        f"the slowest k1 takes {percent(spans[worst])} more than the fastest ({worst})",
        f"at most {percent(VISIBLE)} more, under every training procedure",
    )
    every = sorted({k1 for by_k1 in groups.values() for k1 in by_k1})
    rows = tuple((name, *(by_k1.get(k1) for k1 in every)) for name, by_k1 in groups.items())
    return Finding((part,), table(("ms a batch", *(f"k1 = {k1}" for k1 in every)), rows))
