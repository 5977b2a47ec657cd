"""The numbers of docs/paper.md's prose, each computed anew from the records, or said to be none of ours.

`of_sentences` maps the beginning of each sentence with a number to its numbers in their order: a string that was
computed, or `Said`, which is a setting, a threshold or a number of the paper's own, and no measurement of these
records.
"""

from __future__ import annotations

import math

import numbers_of_beyond
import numbers_of_instability
import numbers_of_results
from prose_facts import Facts, ends, percent, rounded_up, said, thousands, word

from unroll.studies.paper import page
from unroll.studies.paper.claims.lines import max_over_min
from unroll.studies.paper.claims.thresholds import CLOSE, TIE
from unroll.studies.paper.claims.verdict import HOLDS, IN_PART
from unroll.studies.paper.figures import CORPORA


def of_sentences(f: Facts) -> dict[str, list[str]]:
    """The numbers of every sentence that has some, by its beginning."""
    return {
        **_summary(f), **_rule(f), **numbers_of_instability.of_sentences(f), **numbers_of_results.of_sentences(f),
        **numbers_of_beyond.of_sentences(),
    }  # fmt: skip


def _summary(f: Facts) -> dict[str, list[str]]:
    times = {(t.scheme, t.fleet): t for t in f.measured["timing"].times if (t.layers, t.hidden) == (1, 512)}
    fleet = max(fleet for _, fleet in times)
    _, training, scoring = page.cost(f.measured, base=True)
    count, training_again, scoring_again = page.cost(f.again)
    seconds = round(training_again)
    rolling = [t.sample_ms["windowed"] / t.sample_ms["progressive"] for t in f.measured["timing"].times if t.fleet == 1]
    on_linux = f.random_over(4, "linux").values()
    elsewhere = [v for c in CORPORA if c != "linux" for v in f.random_over(4, c).values()]
    assert count == 222, "the second reproduction is of the same trainings"
    assert max(on_linux) < 1, "lower on Linux, as is said"
    within = f.verdicts["C1"].parts[0].measures
    assert [m.name for m in within if m.is_inside] == ["Music"], "on Music alone it is told"
    return {
        "Comparing Training and Sampling": [word(len(f.evidence("C1")))],
        "Which of schemes 1, 3 and 4": said(f"{100 * (TIE - 1):.1f}"),
        "In the one seed that was trained so, the best": [
            *ends((100 * (1 - v) for v in on_linux), 1), f"{rounded_up(max(abs(math.log(v)) for v in elsewhere)):.1f}",
            word(len(CORPORA) - 1),
        ],
        "- Progressive sampling from a multi-loss": [thousands(round(_drift_begins(f), -2))],
        "- Times: a training": [
            *said("30"), f"{times[1, 1].batch_ms * 12.8:.0f}", f"{times[1, fleet].batch_ms * 12.8:.0f}", str(fleet),
            *ends(rolling, 1), *said("10", "20"),
        ],
        "The 222 trainings of the records": [f"{(training + scoring) / 60:.1f}"],
        "The same 222 trainings again": [*said("2026"), f"{(training_again + scoring_again) / 60:.1f}"],
        "8 min 21 s": [str(seconds // 60), str(seconds % 60), f"{scoring_again:.0f}"],
        "By its numbers alone, as by those": _one_verdict_is_another(f),
    }  # fmt: skip


def _drift_begins(f: Facts) -> int:
    """The last point, from batch 1,000 on, at which at most one run on Finnish and Linux reads 10 % apart."""
    apart: dict[int, int] = {}
    for curve in (c for c in f.lines.curves if c.scheme == 3 and c.corpus in ("finnish", "linux")):
        for batch, a, b in zip(*(curve.points[key] for key in ("batch", "windowed", "progressive")), strict=True):
            apart[batch] = apart.get(batch, 0) + (b > CLOSE * a)
    return max(batch for batch, count in apart.items() if batch >= 1000 and count <= 1)


def _one_verdict_is_another(f: Facts) -> list[str]:
    others = [
        name
        for name, each in f.verdicts_again.items()
        if each.parts and each.verdict_alone != f.verdicts[name].verdict_alone
    ]
    assert others == ["C3"]
    assert (f.verdicts_again["C3"].verdict_alone, f.verdicts["C3"].verdict_alone) == (HOLDS, IN_PART)
    assert [name for name, each in f.verdicts_again.items() if not each.parts] == ["C8", "C9", "C10"]
    return []


def _rule(f: Facts) -> dict[str, list[str]]:
    seeds = f.measured["schemes"].seeds
    by_training: dict[tuple[str, int, int], list[float]] = {}
    for c in f.measured["schemes"].curves:
        by_training.setdefault((c.corpus, c.scheme, c.k1), []).append(min(value for _, _, value in c.scored))
    apart = max(max_over_min(values) for values in by_training.values())
    count = word(len(seeds))
    return {
        "*holds in part*; none:": said("none"),
        "Three things were mended": said("Three"),
        "C9 gave a tick": [count, count],
        "Seeds differ:": [count, percent(apart, 1), *said(f"{100 * (TIE - 1):.1f}")],
        "So each number has an interval": said("95"),
        "Where there is one seed, the curves": [count],
        "With three seeds such": [count],
        "A ring marks": said("1.1", "1.1", "100"),
    }
