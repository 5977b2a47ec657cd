"""The numbers of docs/paper.md that the records of the study beyond the paper give."""

from __future__ import annotations

import math
from statistics import geometric_mean

from beyond_study import EPOCH, NEVER, OFTEN, SELDOM, TEXTS, Study, said, share

from unroll.studies.beyond import split_tables, tables
from unroll.studies.beyond.parts import LEARNED, NARROWEST
from unroll.studies.paper.claims.thresholds import CLOSE, CORPUS_NAMES, TIE, VISIBLE


def of_sentences() -> dict[str, list[str]]:
    """The numbers of these sentences, by their beginnings."""
    study = Study()
    return {**_splits(study), **_left_open(study), **_resets(study)}


def _splits(s: Study) -> dict[str, list[str]]:
    pairs = {
        (second, corpus): split_tables.apart(s.scores, corpus, 1, second)
        for second in (2, 3, 4)
        for corpus in CORPUS_NAMES
    }
    single = [ratio for corpus in CORPUS_NAMES for ratio in pairs[2, corpus].ratios]
    assert all(pairs[2, corpus].beyond_seeds(1) == len(pairs[2, corpus].ratios) for corpus in CORPUS_NAMES)
    assert not any(pairs[n, c].beyond_seeds(1) + pairs[n, c].beyond_seeds(-1) for n in (3, 4) for c in CORPUS_NAMES)
    assert min(ratio for corpus in CORPUS_NAMES for ratio in pairs[3, corpus].ratios) > 1 / TIE
    worse = {c: sum(ratio < 1 / TIE for ratio in pairs[4, c].ratios) for c in CORPUS_NAMES}
    drifting = {c: sum(ratio > VISIBLE for ratio in pairs[3, c].ratios) for c in CORPUS_NAMES}
    assert {c for c, count in worse.items() if count} == {"linux", "finnish"}
    assert {c for c, count in drifting.items() if count} == {"english", "linux"}
    assert any(ratio > TIE for ratio in pairs[4, "music"].ratios), "scheme 1 and scheme 4 change places"
    *equal, last = sorted(texts for texts, _ in split_tables.texts_apart(s.scores).values())
    close, others = sum(texts <= CLOSE for texts in equal), [texts for texts in equal if texts > CLOSE]
    count = len(single)
    assert (count, close, len(equal)) == (20, 1, 4)
    return {
        "- One test set of": said("11,100", "five", "three"),
        "### What five": said("five"),
        "All of the above": said("11,100"),
        "So the four schemes": said("four", "five", "two"),
        "Half a per cent": said("Half"),
        "stays: on all 20": [str(count), share(min(single)), share(max(single))],
        "moves: it is worse on": [
            str(sum(worse.values())), str(count), str(worse["linux"]), str(worse["finnish"]), "none",
        ],
        "C3: scheme 3 is worse than scheme 1 by at most": [share(VISIBLE, 0)],
        "moves: it is worse by more": [
            str(sum(drifting.values())), str(count), str(drifting["english"]), str(drifting["linux"]), "none",
        ],
        "English, Finnish and Linux end": [share(CLOSE, 0)],
        "moves: on 1 split": [str(close), "5", share(min(others), 0), share(last, 0)],
        "stays: on all 5": said("5"),
    }  # fmt: skip


def _left_open(s: Study) -> dict[str, list[str]]:
    first, last = s.left_after(NEVER, 0), s.left_after(NEVER, 5)
    worst = [s.worst_batch(name, TEXTS) for name in (EPOCH, LEARNED, NARROWEST)]
    assert worst[0] < worst[2]
    on_linux = [s.end(EPOCH, "linux", column) for column in ("windowed", "progressive")]
    odd = [r for r in s.measured["splits"].runs if (r.setting, r.corpus, r.split_seed) == (EPOCH, "finnish", 4)]
    run = max(odd, key=lambda run: run.points["progressive"][-1])
    return {
        "What else they leave open": said("three"),
        "- **Between two": ["two", "three", *(f"{value:.2f}" for value in worst)],
        "Never reset, zeros cost": [share(geometric_mean(first)), share(geometric_mean(last)), "50"],
        "- **Windowed**": [f"{value:.3f}" for value in on_linux],
        "- **Another split**": [f"{run.points[column][-1]:.2f}" for column in ("progressive", "carried")],
    }


def _resets(s: Study) -> dict[str, list[str]]:
    pairs = tables.against(s.measured, tables.ORIGINS, (LEARNED, EPOCH))
    often, seldom = pairs[OFTEN, EPOCH], pairs[SELDOM, EPOCH]
    assert often.is_higher
    for found in (seldom, *(pairs[name, LEARNED] for name in (EPOCH, SELDOM, OFTEN))):
        assert (found.is_lower, found.is_higher) == (False, False)
    rows = 64
    assert 0.45 < 1 - (1 - 0.01) ** rows < 0.5, "nearly every second batch"
    assert 1 - (1 - 0.1) ** rows > 0.99, "every batch"
    apart = max(abs(math.log(value)) for value in s.excess(SELDOM))
    assert math.exp(apart) < 1.009
    return {
        "Three seeds with k1 = 40 do not": ["Three", "four", "0.1", share(often.ratio), "0.01"],
        "Reset rows at random": ["two", "0.9", str(len(s.of(SELDOM)))],
        "With 0.1 every": said("0.1"),
        "Three seeds with k1 = 40 tell": [
            "Three", "four", "0.1", *(share(value or 0) for value in (often.ratio, often.low, often.high)),
            "0.01", *(share(value or 0) for value in (seldom.ratio, seldom.low, seldom.high)), "none",
        ],
    }  # fmt: skip
