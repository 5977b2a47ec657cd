"""The numbers of “Why conditional training looks unstable”, computed anew."""

from __future__ import annotations

import math
from statistics import geometric_mean

from prose_facts import (
    BIASED,
    NEVER,
    RANDOM,
    READ_ON,
    Facts,
    both_ends,
    ends,
    none_or,
    percent,
    rounded_up,
    said,
    thousands,
    word,
)

from unroll.studies.paper import causes, instability
from unroll.studies.paper.claims.lines import Lines, line_of
from unroll.studies.paper.claims.schemes import PARTING
from unroll.studies.paper.claims.thresholds import CLOSE, WARM_UP
from unroll.studies.paper.figures import CORPORA, K1, K1_OF_K2, RANDOM_RESET
from unroll.studies.paper.instability import Reading
from unroll.studies.paper.records import CARRIED, Curve


def of_sentences(f: Facts) -> dict[str, list[str]]:
    """The numbers of these sentences, by their beginnings."""
    return {**_instability(f), **_when(f), **_left(f), **_advice(f)}


def _instability(f: Facts) -> dict[str, list[str]]:
    plain, biased = f.of({}), f.of(BIASED)
    rows = {row[0]: row for row in instability.by_setting(f.runs).rows}
    reached = {row[0]: row[1:] for row in instability.by_corpus(f.runs).rows}
    both = zip(reached["forget bias 5"], reached["as in the paper"], strict=True)
    worse = [new / old for new, old in both if new is not None]
    most = percent(CLOSE)
    carried, zeros = (sum(_above_scheme_3(f, run, column) for run in plain) for column in (CARRIED, "progressive"))
    of_paper, off, lasagne = rows["as in the paper"], rows["no peepholes"], rows["Lasagne's peepholes"]
    return {
        "The paper's most surprising": said("200"),
        "Experiments can distinguish": said("five"),
        "it rises by 10 %": [*said(most), none_or(of_paper[2]), str(len(plain))],
        "from them it rises in none": [
            none_or(of_paper[4]), str(len(plain)), *said(str(PARTING), most), str(carried), str(zeros),
        ],
        "a forget bias of 5 helps": said("5"),
        "7 of 20 runs rise": [
            str(rows["forget bias 5"][3]), str(len(biased)), *(percent(v) for v in both_ends(worse)),
        ],
        "0 of 20 runs rise without": [
            str(off[3]), str(off[1]), str(lasagne[3]), str(lasagne[1]), str(of_paper[3]), str(of_paper[1]),
        ],
        "it goes with the resets": said("none"),
    }  # fmt: skip


def _above_scheme_3(f: Facts, run: Reading, column: str) -> int:
    """Points from batch 200 to its best one at which a reading of scheme 4 stands 10 % above scheme 3."""
    c = run.curve
    third = f.lines.each(corpus=c.corpus, scheme=3, k1=c.k1, seed=c.seed)[0].by_batch
    by_batch = dict(zip(c.points["batch"], c.points[column], strict=True))
    turn = min(by_batch, key=by_batch.__getitem__)
    return sum(value > CLOSE * third[batch] for batch, value in by_batch.items() if PARTING <= batch <= turn)


def _when(f: Facts) -> dict[str, list[str]]:
    plain = f.of({})
    far = [(run, batch) for run in plain for batch, ratio in run.apart.items() if ratio > CLOSE]
    later = [run.since_zero(batch) for run, batch in far if batch > (run.curve.epoch or 0)]
    soon = [
        ratio
        for run in plain
        for batch, ratio in run.apart.items()
        if batch > (run.curve.epoch or 0) and run.since_zero(batch) < 100
    ]
    music = [(run, batch) for run, batch in far if run.curve.corpus == "music"]
    shown = sorted({batch for _, batch in music})
    seeds = {run.curve.seed for run, _ in music}
    epochs = {run.curve.k1: run.curve.epoch for run, _ in music}
    assert {run.curve.k1 for run, _ in music} == {80, 100}
    behind, after = _behind_a_reset(f)
    never, read_on, at_random = f.of(NEVER), f.of(READ_ON), f.of(RANDOM)
    (english,) = (run for run in at_random if (run.curve.corpus, run.curve.k1) == ("english", 40))
    points = english.curve.points
    at = points["batch"].index(4852)
    jump = [points["progressive"][i] for i in (at - 1, at, at + 1)]
    assert [round(points[CARRIED][i], 2) for i in (at - 1, at, at + 1)] == [round(value, 2) for value in jump]
    return {
        "Of the 27 evaluation points": [
            str(len(far)), *said(percent(CLOSE)), str(len({run.curve.identity for run, _ in far})), str(len(plain)),
            str(len(far) - len(later)), str(len(later)),
            thousands(round(min(later), -1)), thousands(round(max(later), -2)), *said("100"),
            f"{rounded_up(math.log(max(soon))):.1f}",
        ],
        "On Music with k1 = 80 and 100 it shows": [
            word(len(seeds)), word(len(f.measured["schemes"].seeds)), str(shown[0]), str(shown[-1]), *said("200"),
            str(epochs[80]), str(epochs[100]),
        ],
        "With k1 = 100, six batches behind": [
            word(207 - (epochs[100] or 0)), *(percent(v) for v in behind), "264",
            f"{math.ceil(100 * (max(after) - 1)):.0f}",
        ],
        "- **By intervention**": [
            *said("two"), f"{max(max(run.apart.values()) for run in (*never, *read_on)):.1f}",
        ],
        "Reset at random, each row": [
            *said(f"{RANDOM_RESET:g}", "two"),
            f"{100 * max(abs(math.log(v)) for run in at_random for v in run.apart.values()):.2f}", str(len(at_random)),
        ],
        "English with k1 = 40 goes": [
            f"{jump[0]:.3f}", thousands(points["batch"][at - 1]), f"{jump[1]:.3f}", thousands(points["batch"][at]),
            f"{jump[2]:.3f}",
        ],
    }  # fmt: skip


def _behind_a_reset(f: Facts) -> tuple[list[float], list[float]]:
    """Music, k1 = 100: both starts over scheme 3 at batch 207 in the two seeds that had risen, and at batch 264."""
    behind, after = [], []
    for run in f.of({}):
        c = run.curve
        if (c.corpus, c.k1) == ("music", 100) and max(run.apart.values()) > CLOSE:
            third = f.lines.each(corpus="music", scheme=3, k1=100, seed=c.seed)[0].by_batch
            for column in ("progressive", CARRIED):
                by_batch = dict(zip(c.points["batch"], c.points[column], strict=True))
                behind.append(by_batch[207] / third[207])
                after.append(by_batch[264] / third[264])
    assert len(behind) == 4
    return sorted({round(value, 2) for value in behind}), after


def _left(f: Facts) -> dict[str, list[str]]:
    starts = {row[0]: [int(cell.split()[0]) for cell in row[1:]] for row in causes.two_starts(f.measured).rows}
    zeros, carried = ({name: sum(cells[side::2]) for name, cells in starts.items()} for side in (0, 1))
    paper = starts["as in the paper"]
    runs = [len(f.of(variant)) for variant in ({}, NEVER, RANDOM)]
    four, one = ({k1: f.lines.one(corpus="music", scheme=scheme, k1=k1).final for k1 in (80, 100)} for scheme in (4, 1))
    at_random = {r.curve.k1: r.curve.points["progressive"][-1] for r in f.of(RANDOM) if r.curve.corpus == "music"}
    one_seed = {k1: f.lines.each(corpus="music", scheme=1, k1=k1, seed=0)[0].final for k1 in (80, 100)}
    counted, behind = _behind_the_best(f)
    share = {corpus: _share_up_to_the_best(f, corpus) for corpus in CORPORA}
    widest = {c: max(max(r.apart.values()) for r in f.of({}) if r.curve.corpus == c) for c in CORPORA}
    epochs = {c: [r.curve.batches / (r.curve.epoch or 1) for r in f.of({}) if r.curve.corpus == c] for c in CORPORA}
    return {
        "- **As C4 counts**": [str(zeros["as in the paper"]), str(runs[0])],
        "From carried states the four": [
            word(paper[2] + paper[4]), word(paper[6]), word(carried["as in the paper"]),
        ],
        "Never reset, it is 9": [
            str(zeros["never reset"]), str(runs[1]), str(zeros["never reset, read on"]),
            str(carried["never reset"]), str(carried["never reset, read on"]),
        ],
        "Reset at random, it is 2": [str(zeros["reset at random"])],
        "Behind batch 3,000": [
            *said("3,000"), *(f"{four[k1]:.0f}" for k1 in (80, 100)), *(f"{one[k1]:.0f}" for k1 in (80, 100)),
        ],
        "It is the same from carried": [
            *(f"{at_random[k1]:.0f}" for k1 in (80, 100)), *(f"{one_seed[k1]:.0f}" for k1 in (80, 100)),
        ],
        "Of the 32 lines": [str(counted), str(behind)],
        "Up to the best points, zeros": [f"{100 * share['linux']:.0f}", f"{100 * share['music']:.0f}"],
        "Linux and Music most": [f"{widest[c]:.2f}" for c in ("linux", "music", "finnish", "english")],
        "Finnish sees": [
            *(f"{v:.1f}" for c in ("finnish", "linux") for v in both_ends(epochs[c])),
            *(f"{v:.0f}" for v in both_ends(epochs["music"])),
        ],
        **_shares(f),
    }  # fmt: skip


def _unstable(f: Facts, curve: Curve, figure: Lines, since: int) -> list[int]:
    return causes._unstable(figure, curve, since)


def _turn(curve: Curve) -> int:
    return min(curve.scored, key=lambda point: point[2])[0]


def _behind_the_best(f: Facts) -> tuple[int, int]:
    """Lines of scheme 4 that C13 counts, and those unstable only behind their best point."""
    curves = [c for k2 in K1_OF_K2 for c in f.k2.curves_of(scheme=4, k2=k2)]
    found = [(c, batches) for c in curves if (batches := _unstable(f, c, f.k2, WARM_UP))]
    return len(found), sum(min(batches) > _turn(c) for c, batches in found)


def _share_up_to_the_best(f: Facts, corpus: str) -> float:
    curves = f.lines.curves_of(corpus=corpus, scheme=4)
    unstable = sum(batch <= _turn(c) for c in curves for batch in _unstable(f, c, f.lines, PARTING))
    return unstable / sum(PARTING <= batch <= _turn(c) for c in curves for batch in c.points["batch"])


def _shares(f: Facts) -> dict[str, list[str]]:
    by_share = causes.by_share(f.measured).rows
    counts = [sum(int(cell.split()[0]) for cell in row[1:-1]) for row in by_share]
    early = [row[-1].split()[0] for row in by_share]

    def lines(k1: int, k2: int) -> tuple[int, int]:
        curves = f.k2.curves_of(scheme=4, k1=k1, k2=k2)
        return sum(bool(_unstable(f, c, f.k2, WARM_UP)) for c in curves), len(curves)

    biased = f.of(BIASED)
    risen = [_first_rise(run) for run in biased if run.zero > CLOSE and run.curve.corpus == "music"]
    losses = sorted(run.loss for run in biased if run.loss > CLOSE)
    final = {run.curve.points["progressive"][-1] for run in biased if run.curve.corpus == "music"}
    music = [line_of(c, f.k2.grid).final for c in f.k2.curves_of(scheme=4)]
    never, read_on = (
        {run.curve.k1: run.curve.points["progressive"][-1] for run in f.of(variant) if run.curve.corpus == "music"}
        for variant in (NEVER, READ_ON)
    )
    assert max(never, key=never.__getitem__) == 60
    twenty, sixty, thirteen, forty = lines(20, 20), lines(20, 60), lines(13, 20), lines(13, 40)
    return {
        "- **k1 / k2** matters": [str(counts[0]), *said("two"), str(counts[1]), str(counts[2]), *early],
        "It is not the epochs, which go": [
            str(twenty[0]), str(twenty[1]), none_or(sixty[0]), str(thirteen[0]), none_or(forty[0]),
        ],
        "1 with k2 = 40, 2": [str(lines(27, 40)[0]), str(lines(27, 80)[0])],
        "- **A forget bias of 5**": [
            *said("5"), word(len(risen)), word(sum(run.zero > CLOSE for run in biased)), thousands(340),
            str(len(losses)), str(len(biased)), *(percent(v) for v in losses), thousands(12800), *ends(final, 1),
        ],
        "- The paper saw runs": said("350"),
        "Ours, reset each epoch": ends(music),
        "Never reset, with k2 = 100": [f"{never[60]:.0f}", f"{read_on[80]:.0f}"],
    }  # fmt: skip


def _first_rise(run: Reading) -> int:
    lowest = math.inf
    for batch, value in zip(run.curve.points["batch"], run.curve.points["progressive"], strict=True):
        if batch >= WARM_UP and value > CLOSE * lowest:
            assert batch < 340, "before batch 340, as is said"
            return int(batch)
        lowest = min(lowest, value)
    raise AssertionError


def _advice(f: Facts) -> dict[str, list[str]]:
    linux, music = (f.random_over(4, corpus) for corpus in ("linux", "music"))
    higher = [v for v in music.values() if v > 1]
    others = [100 * (v - 1) for corpus in ("english", "finnish") for v in f.random_over(4, corpus).values()]
    against_1 = f.random_over(1, "music")
    worse = [v for v in against_1.values() if v > 1]
    reached = {row[0]: row[1:] for row in instability.by_corpus(f.runs).rows}["reset at random"]
    of_scheme_1 = [geometric_mean(f.best(corpus, 1, k1, 0) for k1 in K1) for corpus in CORPORA]
    assert {run.curve.seed for run in f.of(RANDOM)} == {0}
    assert against_1[20] < 1
    assert max(linux.values()) < 1
    minus = "−" if min(others) < 0 else ""
    return {
        "What these records do not hold": [str(f.of({})[0].curve.rows), *said("100")],
        "Against the paper's setting": [
            word(len(linux)), *ends((100 * (1 - v) for v in linux.values()), 1),
            word(len(higher)), word(len(music)), *ends((100 * (v - 1) for v in higher), 1),
            f"{minus}{abs(min(others)):.1f}", f"{max(others):.1f}",
        ],
        "Against scheme 1, in the same seed": [
            word(len(worse)), word(len(against_1)), *ends((100 * (v - 1) for v in worse), 1),
            percent(against_1[20], 1),
        ],
        "Its best perplexities": [
            *(f"{v:.{3 if v < 10 else 2}f}" for v in reached[::2]), word(len(CORPORA)),
            *(f"{v:.{3 if v < 10 else 2}f}" for v in of_scheme_1),
        ],
    }  # fmt: skip
