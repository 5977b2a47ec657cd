"""The numbers of “What differs from the paper, and why”, computed anew."""

from __future__ import annotations

import math
from statistics import geometric_mean, median

from paths import ROOT
from prose_facts import SHUFFLED, TEXTS, Facts, both_ends, ends, percent, rounded_up, said, thousands, word

from unroll.studies.paper import causes, stranger
from unroll.studies.paper.claims.lines import Line, Lines, max_over_min
from unroll.studies.paper.claims.thresholds import CLOSE
from unroll.studies.paper.claims.verdict import IN_PART
from unroll.studies.paper.figures import ARCHITECTURES, CORPORA, K1, K1_OF_K2


def of_sentences(f: Facts) -> dict[str, list[str]]:
    """The numbers of these sentences, by their beginnings."""
    return {**_results(f), **_late(f), **_stranger()}


def _results(f: Facts) -> dict[str, list[str]]:
    spread = {row[0]: row for row in causes.before_overfitting(f.measured).rows}
    interval = f.verdicts["C1"].parts[1].measures[CORPORA.index("music")].interval
    assert interval is not None
    smallest = {scheme: row[-1] for scheme, row in f.evidence("C14").items()}
    assert min(smallest, key=smallest.__getitem__) == "scheme 2"
    late, later = (_detours(f, since) for since in (10, 100))
    assert max(max(both) for both in later.values()) < 0.005, "none to speak of"
    parity = {path.stem.rsplit("-seed")[1] for path in (ROOT / "results" / "parity").glob("*-seed*.json")}
    texts = {path.stem.split("-")[1] for path in (ROOT / "results" / "parity").glob("*-seed*.json")}
    asked = percent(CLOSE)
    return {
        "The paper names no forget bias": [*said("0", "five"), word(len(f.measured["schemes"].seeds))],
        "Training is in bfloat16": [word(len(parity)), word(len(texts))],
        "By the numbers alone ten": [word(f.alone(IN_PART))],
        "Under scheme 1 the five k1": [
            word(len(K1)), percent(spread["Music"][1]), *(percent(v) for v in interval), *said(asked),
        ],
        "Up to the first line's best": [percent(spread["Music"][2]), word(K1[-1] // K1[0])],
        "On Linux it is": [percent(spread["Linux"][1], 1), percent(spread["Linux"][2], 1)],
        "- **C2: its smoothness": said("ten"),
        "From batch 10 on scheme 2": [
            *said("10"), word(sum(two > one for one, two in late.values())), word(len(late)), *said("100"),
        ],
        "- **C3: scheme 3 is worse late": [
            word(sum(int(row[7].split()[0]) > 7 for row in causes.two_readings(f.measured).rows)),
        ],
        **_best_points(f),
    }  # fmt: skip


def _detours(f: Facts, since: int) -> dict[str, tuple[float, float]]:
    """The median detour of schemes 1 and 2 from a batch on, by data set."""
    lines = Lines(f.measured, "architectures-1", "architectures-2")
    return {
        corpus: (
            median(_from(line, since).detour for line in lines.each(corpus=corpus, scheme=1, k2=100)),
            median(_from(line, since).detour for line in lines.each(corpus=corpus, scheme=2, k2=100)),
        )
        for corpus in CORPORA
    }


def _from(line: Line, since: int) -> Line:
    first = next(i for i, batch in enumerate(line.batch) if batch >= since)
    columns = (line.batch, line.perplexity, line.loss, line.seconds)
    return Line(*(column[first:] for column in columns), line.k1)


def _best_points(f: Facts) -> dict[str, list[str]]:
    best = {s: {c: geometric_mean(line.best for line in f.lines.over_k1(c, s)) for c in CORPORA} for s in (1, 2, 3, 4)}
    harder = [max(of["english"], of["finnish"]) / of["linux"] for of in best.values()]
    alike = max(max_over_min((of["english"], of["finnish"])) for of in best.values())
    readings = {row[0]: row for row in causes.two_readings(f.measured).rows}
    early = max(readings[name][2] for name in ("English", "Finnish", "Music"))
    plots = f.evidence("C6")
    deep = {plot: row[7] for plot, row in plots.items()}
    on_texts = [100 * (1 - deep[f"{name}, scheme 1"]) for name in ("English", "Finnish", "Linux")]
    others = [deep["Music, scheme 1"], *(row for plot, row in deep.items() if str(plot).endswith("2"))]
    four = {c: best[3][c] / best[4][c] for c in CORPORA}
    assert four["music"] < 1 < min(four[c] for c in TEXTS)
    return {
        "Up to batch 1,000 the two": [
            *said("1,000", "two"), f"{math.ceil(100 * (early - 1))}", percent(readings["Linux"][2]),
        ],
        "From batch 3,000 on": [
            *said("3,000", percent(CLOSE)), *readings["Finnish"][7].split(" of "), *readings["Linux"][7].split(" of "),
            f"{max(row[6] for row in readings.values()):.1f}",
        ],
        "Scheme 4, whose training does": [f"{readings['Finnish'][10]:.2f}", f"{readings['Finnish'][9]:.2f}"],
        "Linux is easier**": [
            *(percent(v) for v in both_ends(harder)), *said("two"), f"{math.ceil(100 * (alike - 1))}",
        ],
        "On the paper's logarithmic": [percent(min(harder))],
        "- **C6: two layers": [*said("two", "512"), *ends(on_texts), word(len(on_texts))],
        "On Music, and under scheme 2": [f"{max(100 * abs(v - 1) for v in others):.0f}"],
        "The four architectures end": [word(len(ARCHITECTURES)), percent(max(row[3] for row in plots.values()))],
        "At their best points": [
            *ends(100 * (four[c] - 1) for c in TEXTS), percent(1 / four["music"]),
        ],
        "- **C16: the distances": [
            *(percent(v) for v in both_ends(row[2] for row in f.evidence("C16").values())),
        ],
    }  # fmt: skip


def _late(f: Facts) -> dict[str, list[str]]:
    shuffled = {s: {c: _shuffled(f, s, c) for c in CORPORA} for s in (1, 2)}
    labels = causes.labels(f.measured).rows
    learnt = ends(row[5] for row in labels)
    by_k2 = {
        k2: geometric_mean(f.k2.one(corpus="music", scheme=1, k1=k1, k2=k2).best for k1 in every)
        for k2, every in K1_OF_K2.items()
    }
    assert max(by_k2, key=by_k2.__getitem__) == 20
    assert learnt[0] == "0"
    windows = f.verdicts["C13"].parts
    robust = next(part for part in windows if part.says == "scheme 1 is the most robust").measured
    spreads = [piece.split(" %")[0].split()[-1] for piece in robust.split(", ")]
    share = next(part for part in windows if part.says == "scheme 4 is unstable almost everywhere").measures[0].value
    optimum = next(part for part in windows if part.says.startswith("scheme 1 reaches")).measures[0].value
    naive = [m.value for m in f.verdicts["C12"].parts[1].measures]
    return {
        "- **C9: there is no bump": said("1,000"),
        "(That they lower nothing": [*said("four")],
        "- **C10: shuffling harms": ends(100 * (shuffled[2][c] - 1) for c in TEXTS),
        "Shuffled windows begin": [
            *ends((row[5] for row in labels), 3)[:1], f"{max(row[5] for row in labels):.2f}",
            f"{median(row[2] for row in labels):.1f}", *(thousands(v) for v in both_ends(row[7] for row in labels)),
        ],
        "Multi-loss has labels": ends(100 * (1 - v) for v in shuffled[1].values()),
        "- **C11: scheme 4": [percent(_dearer(f, alone=True), 1)],
        "Side by side it is": [percent(_dearer(f, alone=False), 1)],
        "- **C12: windowed": [*ends(naive), *said("10", "20")],
        "Scheme 1 is not the most": [f"{float(v):.0f}" for v in spreads[:2]],
        "The optimum differs by": [percent(optimum, 1), *said(percent(CLOSE))],
        "Scheme 4 is unstable in": [f"{100 * share:.0f}", *said("80", "350")],
    }  # fmt: skip


def _dearer(f: Facts, alone: bool) -> float:
    """How much more a batch of the dearest of schemes 1, 3 and 4 takes, on the worst architecture."""
    cells: dict[tuple[int, int], list[float]] = {}
    for t in f.measured["timing"].times:
        if (t.fleet == 1) == alone and t.scheme != 2:
            cells.setdefault((t.layers, t.hidden), []).append(t.batch_ms)
    assert set(cells) == set(ARCHITECTURES)
    return max(max_over_min(ms) for ms in cells.values())


def _shuffled(f: Facts, scheme: int, corpus: str) -> float:
    """The best perplexity, mean over k1, with shuffled windows over that with rotated ones, in seed 0."""
    both = Lines(f.measured, "schemes", "extras")
    new = [both.one(SHUFFLED, corpus=corpus, scheme=scheme, k1=k1).best for k1 in K1]
    return geometric_mean(new) / geometric_mean(f.best(corpus, scheme, k1, 0) for k1 in K1)


def _stranger() -> dict[str, list[str]]:
    compared = stranger.read(ROOT / "results" / "paper")
    assert compared is not None
    settings = stranger.groups(compared.runs)
    counts = []
    for who in ("stranger", "unroll"):
        runs = settings[who, "never", True]
        counts += [word(sum(max(run.apart.values()) > 1.01 for run in runs)), word(len(runs))]

    def within(reset: str, peepholes: bool) -> str:
        runs = [run for who in stranger.WHO for run in settings[who, reset, peepholes]]
        return f"{rounded_up(max(abs(math.log(ratio)) for run in runs for ratio in run.apart.values())):.1f}"

    return {
        "Never reset, the test set is read": [*said("1"), *counts],
        "Reset at random, the two starts agree within 0": [*said("two"), within("random", True)],
        "Reset each epoch, a run is": said("two"),
        "And one thing more:": [*said("two"), within("never", False)],
        "That fits the runs": said("none"),
    }
