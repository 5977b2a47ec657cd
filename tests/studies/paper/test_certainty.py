"""Numbers that verdicts turn on have intervals over seeds, and what another seed might have turned cannot be told."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import product

import pytest
from made_up import PAPER, World, records

from unroll.studies.paper import verdicts_in_words
from unroll.studies.paper.claims import CLAIMS, certainty, judge, verdict
from unroll.studies.paper.claims.lines import Lines, gmean
from unroll.studies.paper.claims.verdict import (
    FAILS,
    HOLDS,
    IN_PART,
    OPEN,
    Finding,
    Measure,
    Part,
    Records,
    Table,
    Verdict,
    above,
    at_least,
    at_most,
    below,
    decide,
)
from unroll.studies.paper.figures import K1
from unroll.studies.paper.records import Record
from unroll.sweep.answers import answers

BY_ID = {claim.id: claim for claim in CLAIMS}
SEEDS = (0, 1, 2)


def part(*measures: Measure, needed: int | None = None, most: int | None = None) -> Part:
    return Part("", measures, "", "", needed, most)


def final_of_scheme_2(given: Records) -> Finding:
    """A claim of one number: how scheme 2 ends on English with k1 = 40, over scheme 1."""
    lines = Lines(given, "schemes")
    ends = [lines.one(corpus="english", scheme=scheme, k1=40).final for scheme in (1, 2)]
    return Finding((part(below("English", ends[1] / ends[0], 1.0)),), Table((), ()))


def shaken(given: Record, size: float, seed: int) -> Record:
    """The record with every curve moved by a number of its own, whose logarithm is normal."""
    generator = random.Random(seed)
    curves = []
    for curve in given.curves:
        factor = math.exp(generator.gauss(0, size))
        curves.append(
            replace(curve, points=curve.points | {curve.sample: [factor * v for v in curve.points[curve.sample]]})
        )
    return replace(given, curves=tuple(curves))


def test_the_interval_of_a_ratio_is_that_of_a_sweep_paired_by_seed() -> None:
    given = {"schemes": shaken(records(seeds=SEEDS, figures=["schemes"])["schemes"], 0.05, 1)}
    (measure,) = certainty.with_intervals(final_of_scheme_2, given, given).parts[0].measures
    rows = [
        {"corpus": "english", "scheme": c.scheme, "seed": c.seed, "perplexity": c.scored[-1][2], "state": c.state}
        for c in given["schemes"].curves
        if (c.corpus, c.k1) == ("english", 40) and c.scheme in (1, 2)
    ]
    (answer,) = answers(rows)
    ratio = answer.standings[1].ratio
    assert ratio is not None
    assert measure.interval is not None
    ends = (ratio.low, ratio.high) if answer.best.setting["scheme"] == 1 else (1 / ratio.high, 1 / ratio.low)
    assert measure.interval == pytest.approx(ends)


def test_of_equal_schemes_one_is_called_better_about_as_rarely_as_the_level_says() -> None:
    """200 worlds in which schemes 1 and 2 are the same: either is called better in about 5 of 100."""
    world = World(slowness=dict.fromkeys(("english", "finnish", "linux", "music"), 1.0), seed_noise=0.0)
    world = replace(world, level=dict.fromkeys((1, 2, 3, 4), 1.0), spread=dict.fromkeys((1, 2, 3, 4), 0.0))
    made = records(world, seeds=SEEDS, figures=["schemes"])["schemes"]
    made = replace(made, curves=tuple(c for c in made.curves if (c.corpus, c.k1) == ("english", 40) and c.scheme < 3))
    wrong = 0
    for n in range(200):
        given = {"schemes": shaken(made, 0.02, n)}
        wrong += certainty.with_intervals(final_of_scheme_2, given, given).parts[0].held is not None
    assert 1 <= wrong <= 22


def test_what_another_seed_might_turn_cannot_be_told_and_the_numbers_alone_are_kept() -> None:
    steady = records(replace(PAPER, seed_noise=0.0), SEEDS, figures=["schemes"])["schemes"]
    first = verdict(BY_ID["C1"], {"schemes": shaken(steady, 0.02, 4)}).parts[0]
    assert first.held is None
    assert first.held_alone is not None
    calm = records(replace(PAPER, seed_noise=1e-4), seeds=SEEDS, figures=["schemes"])
    assert verdict(BY_ID["C1"], calm).parts[0].held is True
    assert verdict(BY_ID["C1"], calm).verdict == verdict(BY_ID["C1"], calm).verdict_alone == HOLDS


def test_one_seed_without_similar_runs_tells_nothing_but_the_time_by_a_clock() -> None:
    verdicts = {each.claim: each for each in judge(records())}
    timed = {"C11", "C12", "C17"}
    assert {name for name, each in verdicts.items() if each.verdict != OPEN} == timed
    assert all(verdicts[name].verdict == HOLDS for name in timed)
    assert all(each.verdict_alone == HOLDS for each in verdicts.values()), "the numbers alone are the paper's"
    assert "One seed: cannot be told." in verdicts_in_words.evidence(verdicts["C1"], lambda _: "")


def widths(claim: str, part_of_claim: int, size: float) -> list[float]:
    """The reaches of a claim with one seed, where the seeds of `schemes` differ by a factor of this size."""
    steady = replace(PAPER, seed_noise=0.0)
    one = records(steady, figures=BY_ID[claim].needs)
    several = shaken(records(steady, SEEDS, figures=["schemes"])["schemes"], size, 3)
    asked = verdict(BY_ID[claim], {**one, "schemes": several}).parts[part_of_claim]
    assert asked.known_from == certainty.BORROWED
    return [measure.reach or 0.0 for measure in asked.measures]


def test_one_seed_borrows_the_spread_of_similar_runs() -> None:
    """C6 compares lines, and grows less sure; C8 turns on ratios within a line, which a factor on it leaves alone."""
    small, large = (widths("C6", 2, size) for size in (0.01, 0.04))
    assert all(0 < a < b for a, b in zip(small, large, strict=True))
    assert widths("C8", 0, 0.1) == pytest.approx([0.0, 0.0], abs=1e-9)


def test_the_borrowed_deviations_of_a_training_have_its_own_size() -> None:
    made = shaken(records(replace(PAPER, seed_noise=0.0), tuple(range(8)), figures=["schemes"])["schemes"], 0.05, 5)
    spreads = certainty.deviations({"schemes": made})
    assert len(spreads) == 4 * 4 * len(K1)
    squares = [math.log(by_batch[12800]) ** 2 for of_twin in spreads.values() for by_batch, _ in of_twin]
    assert math.sqrt(sum(squares) / len(squares)) == pytest.approx(0.05, rel=0.1)
    assert all(gmean(d[0][12800] for d in of_twin) == pytest.approx(1) for of_twin in spreads.values())


def test_the_same_records_give_the_same_intervals() -> None:
    given = records(figures=["architectures-1", "extras"]) | records(seeds=SEEDS, figures=["schemes"])
    assert verdict(BY_ID["C9"], given) == verdict(BY_ID["C9"], given)


def test_an_interval_is_inside_outside_or_on_both_sides() -> None:
    at = Measure("", 1.0, None, 1.005, reach=0.001)
    assert [replace(at, value=value).is_inside for value in (1.0, 1.005, 1.02)] == [True, None, False]
    assert replace(at, reach=None).is_inside is None
    assert replace(at, reach=None, is_clock=True).is_inside is True
    assert replace(at_least("", 0.0, 1.0, is_ratio=False), reach=2.0).is_inside is None
    assert replace(above("", 1.0, 1.0), reach=0.0).is_inside is False
    assert replace(below("", 1.0, 1.0), reach=0.0).is_inside is False
    assert replace(at_most("", math.inf, 1.0), reach=0.0).is_inside is False


def test_a_part_that_asks_for_some_of_its_numbers_holds_once_these_are_sure() -> None:
    yes, no, open_ = (replace(at_most("", value, 1.0), reach=0.1) for value in (0.5, 2.0, 1.0))
    assert part(yes, yes, open_).held is None
    assert part(yes, yes, open_, needed=2).held is True
    assert part(yes, no, no, needed=2).held is False
    assert part(yes, no, open_, needed=2).held is None
    assert part(yes, yes, yes, needed=2, most=2).held is False
    assert part(no, open_).held is False


def test_a_verdict_is_given_where_no_open_part_can_turn_it() -> None:
    for held in product((True, False, None), repeat=3):
        turned = {decide(choice) for choice in product(*[[True, False] if h is None else [h] for h in held])}
        assert decide(held) == (turned.pop() if len(turned) == 1 else OPEN)


def test_an_open_verdict_says_which_two_are_left() -> None:
    yes, no, open_ = (part(replace(at_most("", value, 1.0), reach=0.1)) for value in (0.5, 2.0, 1.0))

    def row(*parts: Part) -> list[str]:
        made = Verdict("C1", "words", decide(p.held for p in parts), "", "", (), parts)
        return verdicts_in_words.claims([made])[1][0]

    assert row(yes, open_)[2:] == ["≈ cannot be told: holds or holds in part", "✔ ≈"]
    assert row(no, open_)[2:] == ["≈ cannot be told: holds in part or does not hold", "✘ ≈"]
    assert row(open_, open_)[2:] == ["≈ cannot be told", "≈ ≈"]
    assert row(yes, no, open_)[2:] == [f"◐ {IN_PART}", "✔ ✘ ≈"]
    assert row(no, no)[2:] == [f"✘ {FAILS}", "✘ ✘"]


def test_what_intervals_changed_is_listed_and_only_that() -> None:
    of_schemes = [claim for claim in CLAIMS if claim.needs == ("schemes",)]
    steady = records(replace(PAPER, seed_noise=0.0), SEEDS, figures=["schemes"])
    noisy = [verdict(claim, {"schemes": shaken(steady["schemes"], 0.02, 4)}) for claim in of_schemes]
    listed = [row[0] for row in verdicts_in_words.changes(noisy)[1]]
    assert listed == [f"[{v.claim}](#{v.claim.lower()})" for v in noisy if any(p.held is None for p in v.parts)]
    assert 0 < len(listed) < len(noisy)
    assert verdicts_in_words.changes(verdict(claim, steady) for claim in of_schemes)[1] == []
