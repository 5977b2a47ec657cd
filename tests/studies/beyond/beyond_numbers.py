"""The numbers of docs/beyond.md's prose, each computed anew from the records, or said to be none of theirs.

As in tests/studies/paper: the beginning of each sentence with a number, and its numbers in their order.
"""

from __future__ import annotations

import math
from statistics import geometric_mean

from beyond_study import (
    EPOCH,
    EXPONENTIAL,
    FOLDER,
    GAPS,
    HALF,
    LINEAR,
    NEVER,
    OFTEN,
    RANDOM,
    SELDOM,
    TEXTS,
    Study,
    said,
    share,
    shares,
)
from paths import ROOT
from sentences import WORDS

from unroll.studies.beyond import ngrams, split_tables, tables
from unroll.studies.beyond.comparing import best
from unroll.studies.beyond.parts import K1, LEARNED, NARROWEST, PARTS, ZERO
from unroll.studies.beyond.records import Measured
from unroll.studies.paper import records as paper_records
from unroll.studies.paper.claims.thresholds import CLOSE, CORPUS_NAMES
from unroll.studies.paper.instability import readings


def of_sentences(s: Study) -> dict[str, list[str]]:
    """The numbers of every sentence that has some, by its beginning."""
    return {**_conclusion(s), **_states(s), **_method(s), **_scheme_4(s), **_spikes(s), **_splits(s)}


def _conclusion(s: Study) -> dict[str, list[str]]:
    lines = tables.beyond_the_schemes(s.measured).splitlines()
    assert [line.count("no point is better beyond the interval") for line in lines] == [1] * 4
    counts = {len(one.means) - len(tables.SCHEMES) for one in s.plane.values()}
    assert counts == {15}
    reach = {
        name: f"{100 * math.expm1(one.reach(len(one.means) - 1) or math.nan):.1f}" for name, one in s.plane.items()
    }
    lowest = {name: one.names[0] for name, one in s.plane.items()}
    assert lowest == {"english": EPOCH, "finnish": GAPS, "linux": "multi-loss,k3=25", "music": "multi-loss,k3=5"}
    below = [
        share(1 / min(one.mean(name) / one.mean(one.names[0]) for name in tables.SCHEMES))
        for corpus, one in s.plane.items()
        if corpus != "english"
    ]
    assert not any(s.is_apart(name, c) for name in ("multi-loss,k3=50", LINEAR) for c in CORPUS_NAMES)
    weights = [setting.name for setting in PARTS["weights"].settings if setting.name != LEARNED]
    assert [name for name in weights if s.is_apart(name, "music")] == [NARROWEST]
    finnish = [s.over(f"multi-loss,k3={k3}", "finnish") for k3 in (25, 10)] + [s.over(NARROWEST, "finnish")]
    assert all(each.is_higher for each in finnish)
    decayed = [s.over(EXPONENTIAL, corpus) for corpus in ("english", "finnish")]
    assert all(each.is_higher for each in decayed)
    assert all(abs(math.log(s.over(EXPONENTIAL, c, "multi-loss,k3=2").ratio)) < 0.02 for c in TEXTS)
    normalised = [s.pooled(f"{name},normalise", name, 2) for name in (LINEAR, EXPONENTIAL)]
    return {
        "The paper compares": said("four", "three"),
        "Here are more of its points": said("four"),
        "- **No point of the plane": said("four"),
        "On each of the four data sets": ["four", *map(str, counts), "none"],
        "With three seeds a difference": ["three", *(reach[c] for c in ("finnish", "english", "music", "linux"))],
        "By number the lowest": [number.removeprefix("−") for number in below],
        "All of them, the last 50": said("50"),
        "From there it gets worse": ["25", share(finnish[0].ratio), "10", *(share(each.ratio) for each in finnish[1:])],
        "An exponential decay is about": said("two"),
        "22.0 % on": [share(each.ratio) for each in decayed],
        "But the last 5": [
            "5", f"{s.end('multi-loss,k3=5', 'music'):.1f}", f"{s.plane['music'].mean(LEARNED):.1f}",
            f"{s.end(LEARNED, 'music'):.1f}",
        ],
        "A corpus that is read as often": [f"{12_800 / s.of(LEARNED, 'music')[0].epoch:.0f}"],
        "On the texts it costs": shares(s.over("multi-loss,k3=5", c).ratio for c in TEXTS),
        "It changes a perplexity": [
            share(value) for each in normalised for value in (each.ratio, each.low or 0, each.high or 0)
        ],
        "An optimiser that does": [f"{s.norm(LINEAR):,.0f}", f"{s.norm(LINEAR + ',normalise'):.0f}"],
    }  # fmt: skip


def _states(s: Study) -> dict[str, list[str]]:
    table = tables.against(s.measured, tables.ORIGINS, (LEARNED, EPOCH))
    zero, often, seldom = table[ZERO, LEARNED], table[OFTEN, EPOCH], table[SELDOM, EPOCH]
    for name in (ZERO, EPOCH, *RANDOM):
        found = table[name, LEARNED]
        assert (found.is_lower, found.is_higher) == (False, False)
        assert not any(s.is_apart(name, corpus) for corpus in CORPUS_NAMES)
    assert often.is_higher
    pairs = ((SELDOM, OFTEN), (SELDOM, HALF), (OFTEN, HALF))
    assert not any(found.is_lower or found.is_higher for a, b in pairs for found in [s.pooled(a, b, len(pairs))])
    read_on = [ratio for name in RANDOM for ratio in s.read_on(name)]
    drifting = [ratio for ratio in s.read_on(LEARNED) if ratio > CLOSE]
    never = s.over(NEVER, "linux")
    assert never.is_higher
    seldom_apart = max(abs(math.log(value)) for value in s.excess(SELDOM))
    often_apart = max(abs(math.log(value)) for name in (OFTEN, HALF) for value in s.excess(name))
    assert math.exp(often_apart) < 1.001
    assert 0.008 < seldom_apart < 0.009
    gaps = [s.over(GAPS, corpus).ratio for corpus in ("finnish", "linux", "music", "english")]
    assert not any(s.is_apart(GAPS, corpus) for corpus in CORPUS_NAMES)
    misled = tables.misled(s.measured).rows
    assert {row[3] for row in misled} == {"progressive"}
    worst = max(misled, key=lambda row: row[-2] / row[-1])
    ends = [f"{s.end(name, 'music'):.1f}" for name in (GAPS, LEARNED)]
    return {
        "Windows that all begin": [share(value or 0) for value in (zero.ratio, zero.low, zero.high)],
        "What they bring": [*shares(read_on), str(len(read_on))],
        "5 of 12 runs": [
            str(len(drifting)), str(len(s.of(LEARNED))), *said("10"), f"{max(drifting):.1f}",
        ],
        "- **Reset with 0.01": said("0.01"),
        "Without any reset": [share(never.ratio), f"{1 / min(s.read_on(NEVER)):.1f}"],
        "At 0.01 zeros": said("0.01", "0.9", "0.1", "0.5", "0.1"),
        "But 0.1, which": [
            "0.1", *(share(value or 0) for value in (often.ratio, often.low, often.high)), "four",
            "0.01", *(share(value or 0) for value in (seldom.ratio, seldom.low, seldom.high)),
        ],
        "Between the three": said("three"),
        "4,000 with 0.01": [f"{K1 / 0.01:,.0f}", "0.01", f"{K1 / 0.1:.0f}", "0.1"],
        "With k1 = 200": said("half"),
        "At equal batches": [*shares(gaps), "five", *ends],
        "A validation set of 11,100 tokens may": [
            "11,100", str(len(misled)), "5", f"{worst[-2]:.0f}", f"{worst[-1]:.1f}",
        ],
    }  # fmt: skip


def _method(s: Study) -> dict[str, list[str]]:
    by_choice = tables.comparisons(s.runs, tables.chosen)["music"]
    reach = by_choice.reach(len(by_choice.means) - 1)
    assert reach is not None
    assert "better beyond the interval: " not in tables.beyond_the_schemes(s.measured, value=tables.chosen)
    crossed = PARTS["crossed"]
    assert "crossed" not in s.measured
    assert {run.setting for run in s.measured["gaps"].runs} == {GAPS}
    runs = len(crossed.settings) * len(crossed.seeds) * len(CORPUS_NAMES)
    pairs = sum(1 for run in s.of(LEARNED))
    linux = {name: (s.end(name, "linux"), s.end(name, "linux", "progressive")) for name in (EPOCH, NEVER)}
    assert max(CORPUS_NAMES, key=lambda c: abs(math.log(s.end(EPOCH, c) / s.end(EPOCH, c, "progressive")))) == "linux"
    return {
        "What the seeds cannot tell": said("100"),
        "What was asked": said("half"),
        "One k1 stands for all": said("40"),
        "A validation set of 11,100 tokens chooses": [f"{s.measured['weights'].size.validation:,}"],
        "Differences are paired": said("95"),
        "## Is any point": said("four"),
        "At first the validation": [f"{tables.misled(s.measured).rows[0][-2]:.0f}", f"{100 * math.expm1(reach):.0f}"],
        "These are all runs": [share(tables.MISLED, 0)],
        "Three seeds on four": ["Three", "four", str(pairs)],
        "**Scheme 4, read": ["two", *(f"{value:.3f}" for value in linux[EPOCH])],
        "Never reset, it is not:": [f"{value:.3f}" for value in linux[NEVER]],
        "192 runs": [str(runs)],
        "What stands above": said("two"),
    }


def _scheme_4(s: Study) -> dict[str, list[str]]:
    assert max(s.excess(EPOCH)) < CLOSE
    paper = [run for run in readings(paper_records.read(ROOT / "results" / "paper")) if not run.curve.variant]
    above = sum(max(run.apart.values()) > CLOSE for run in paper)
    run = max(
        (
            run
            for run in s.measured["splits"].runs
            if (run.setting, run.corpus, run.split_seed) == (EPOCH, "finnish", 4)
        ),
        key=lambda run: run.points["progressive"][-1],
    )
    first, last = s.left_after(NEVER, 0), s.left_after(NEVER, 5)
    music, linux = max(s.by_bin(NEVER, "music")), min(s.by_bin(NEVER, "linux"), key=lambda row: abs(row[5] - 0.3))
    assert max(music[5:]) < 0.001
    assert all(0.25 < value < 0.35 for value in linux[2:6])
    return {
        "Here are the resets": said("three"),
        "Random resets close": said("0.01"),
        "With the paper's reset the excess": [
            "10", str(len(s.of(EPOCH))), str(len(s.of(EPOCH)[0].points["batch"])), str(above), str(len(paper)),
        ],
        "It depends on the seed": [f"{run.points[column][-1]:.2f}" for column in ("progressive", "carried")],
        "Each run at the point": said("100"),
        "Never reset, zeros cost": [
            share(geometric_mean(first)), share(geometric_mean(last)), "50", share(max(first)), share(max(last)),
        ],
        "In the worst run": [f"{music[0]:.2f}", f"{music[4]:.2f}", "5,000", "0.3", "10,000"],
    }  # fmt: skip


def _spikes(s: Study) -> dict[str, list[str]]:
    few = "multi-loss,k3=2"
    others = {run.setting for run in s.runs} - {few}
    assert s.worst_batch(few, ["english"]) > 2.5 * max(s.worst_batch(name, CORPUS_NAMES) for name in others)
    for name in (EPOCH, LEARNED):
        assert all(max(tables.rises(run)) == tables.rises(run)[-1] for run in s.of(name, "music"))
    return {
        "## Between two": said("two"),
        "The largest loss of any": said("100", "two"),
        "With the paper's reset the worst": [
            "three", *(f"{s.worst_batch(name, TEXTS):.2f}" for name in (EPOCH, LEARNED, NARROWEST)),
        ],
        "The one true spike": [f"{s.worst_batch(few, ['english']):.2f}"],
        "Gradient norms grow": [f"{s.norm(NEVER):.0f}", f"{s.norm(LEARNED):.0f}"],
    }  # fmt: skip


def _splits(s: Study) -> dict[str, list[str]]:
    assert len({row.split_seed for row in ngrams.read(FOLDER)}) == 5
    told = [split_tables.apart(s.scores, corpus, 1, 2).beyond_seeds(1) for corpus in CORPUS_NAMES]
    assert told == [5] * 4
    moves = {(row[0][:2], row[1]) for row in split_tables.moving(s.measured).rows if row[3] == "moves"}
    assert moves == {
        ("C1", "Finnish"), ("C1", "Linux"), ("C3", "English"), ("C3", "Linux"), ("C5", "English, Finnish, Linux"),
    }  # fmt: skip
    equal = sorted(texts for texts, _ in split_tables.texts_apart(s.scores).values())
    assert sum(texts <= CLOSE for texts in equal) == 1
    assert min(music for _, music in split_tables.texts_apart(s.scores).values()) > 1.5
    of_texts = []
    for corpus in TEXTS:
        means = [split_tables.mean(one[1]) for (name, _), one in s.scores.items() if name == corpus]
        of_texts.append(max(means) / min(means))
    *others, highest = sorted(split_tables.apart(s.scores, "finnish", 1, 4).ratios)
    runs = [best(run, ("progressive",)) for run in s.measured["splits"].runs if _is_odd(run)]
    assert sum(found is not None and found.perplexity > 8 for found in runs) == 1
    return {
        "## Five": said("five"),
        "Everything in": said("11,100"),
        "What counting reaches": said("five"),
        "The four schemes on": ["four", "five", WORDS[len(PARTS["splits"].seeds)]],
        "Which verdicts on": [share(split_tables.TIE)],
        "The last column counts": said("two"),
        "- **Stays**": [str(sum(told))],
        "Music is harder": said("five"),
        "- **Moves**: whether": said("three"),
        "They do on one": ["five", share(equal[1], 0), share(equal[-1], 0)],
        "The test sets of one": [share(min(of_texts), 0), share(max(of_texts), 0)],
        "On split 4": ["4", share(highest), "two", share(min(others)), share(max(others))],
    }


def _is_odd(run: Measured) -> bool:
    return (run.setting, run.corpus, run.split_seed) == (EPOCH, "finnish", 4)
