"""Each claim holds in a world made as the paper says, and turns where that world is made otherwise."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from made_up import PAPER, World, records

from unroll.studies.paper.claims import CLAIMS, Verdict, judge, verdict
from unroll.studies.paper.claims.lines import Line, Lines, line_of, unstable
from unroll.studies.paper.claims.verdict import FAILS, HOLDS, IN_PART, NOT_JUDGED, VERDICTS
from unroll.studies.paper.records import Record

BY_ID = {claim.id: claim for claim in CLAIMS}
TEXTS = ("english", "finnish", "linux")


def every(value: float) -> dict[str, Any]:
    return dict.fromkeys((*TEXTS, "music"), value)


SEEDS = (0, 1)
CALM = replace(PAPER, seed_noise=1e-6)  # seeds hardly differ, so that nothing is a tie


@cache
def papers() -> dict[str, Record]:
    return records(CALM, seeds=SEEDS)


@cache
def of_three_seeds() -> tuple[Verdict, ...]:
    return judge(records(World(seed_noise=0.03), seeds=(0, 1, 2)))


def judged(claim: str, **knobs: Any) -> Verdict:
    asked = BY_ID[claim]
    return verdict(asked, records(replace(CALM, **knobs), seeds=SEEDS, figures=asked.needs))


def test_there_are_seventeen_claims_in_order() -> None:
    assert [claim.id for claim in CLAIMS] == [f"C{n}" for n in range(1, 18)]


@pytest.mark.parametrize("claim", BY_ID)
def test_a_world_made_as_the_paper_says_makes_the_claim_hold(claim: str) -> None:
    judgement = verdict(BY_ID[claim], papers())
    assert [part.says for part in judgement.parts if part.held is not True] == []
    assert judgement.verdict == HOLDS
    assert any(letter.isdigit() for letter in judgement.measured)
    assert judgement.threshold
    assert judgement.evidence.rows
    assert {len(row) for row in judgement.evidence.rows} == {len(judgement.evidence.columns)}


# Claim by claim, a world in which the paper would have been wrong.
OTHERWISE: dict[str, dict[str, Any]] = {
    "C1": {"level": {1: 1.05, 2: 1.0, 3: 1.0, 4: 1.0}, "spread": {1: 0.5, 2: 0.0, 3: 0.0, 4: 0.0}},
    "C2": {"slowness": every(0.5) | {"music": 0.3}, "wiggle": {1: 0.0, 2: 0.3, 3: 0.0, 4: 0.0}},
    "C3": {"level": {1: 1.0, 2: 1.0, 3: 0.85, 4: 1.0}, "spread": {1: 0.1, 2: 0.1, 3: 0.0, 4: 0.1}},
    "C4": {"level": {1: 1.0, 2: 1.0, 3: 1.0, 4: 0.3}, "diverging": every(0)},
    "C5": {"optimum": {"english": 3.0, "finnish": 6.0, "linux": 9.0, "music": 5.0}},
    "C6": {"opposite": True, "deep_end": 1.4},
    "C7": {"spread": dict.fromkeys((1, 2, 3, 4), 1.5), "tokens_count": True},
    "C8": {"overfitting": 0.0, "with_dropout": 0.0},
    "C9": {"bump": {"": 1.0, "learning_rate": 1.0, "optimiser": 1.0}},
    "C10": {"shuffled": 1.3},
    "C11": {"gain": {(1, 128): -0.2, (1, 512): -0.1, (2, 128): -0.1, (2, 512): 0.0}, "carrying": 1.2},
    "C12": {"naive": 0.4},
    "C14": {"spread": {1: 0.4, 2: 0.3, 3: 0.2, 4: 0.0}, "diverging": every(0)},
    "C15": {"slowness": every(0.3)},
    "C16": {"slowness": every(0.3) | {"finnish": 9.0}},
    "C17": {"k1_costs": 0.5},
}


@pytest.mark.parametrize("claim", OTHERWISE)
def test_a_world_made_otherwise_makes_the_claim_fail(claim: str) -> None:
    judgement = judged(claim, **OTHERWISE[claim])
    assert [part.says for part in judgement.parts if part.held is not False] == []
    assert judgement.verdict == FAILS


# Claim, a world, and what of the claim no longer holds in it.
IN_PARTS: list[tuple[str, dict[str, Any], str]] = [
    ("C1", {"spread": dict.fromkeys((1, 2, 3, 4), 0.5)}, "its curves for different k1 lie very close"),
    ("C2", {"slowness": every(3.0) | {"music": 2.0}}, "most visibly on Music"),
    ("C3", {"level": {1: 1.0, 2: 1.0, 3: 1.2, 4: 1.2}}, "but only very slightly"),
    ("C4", {"diverging": every(2) | {"finnish": 4}}, "Finnish is much milder"),
    ("C4", {"diverging": every(0)}, "then some k1 go unstable"),
    ("C5", {"optimum": {"english": 3.0, "finnish": 4.0, "linux": 3.5, "music": 13.0}}, "English, Finnish and Linux"),
    ("C6", {"narrow_early": 0.8}, "γ=512 is better early"),
    ("C8", {"with_dropout": 0.4}, "dropout greatly reduces it"),
    ("C8", {"with_dropout": 0.0}, "it stays observable"),
    ("C9", {"bump": {"": 1.4, "learning_rate": 1.6, "optimiser": 1.1}}, "learning rate 0.0001 or RMSprop lower it"),
    ("C11", {"gain": {(1, 128): 0.1, (1, 512): 0.2, (2, 128): 0.2, (2, 512): 0.3}}, "the relative gain shrinks"),
    ("C12", {"naive": 3.0}, "by 10 to 20 times"),
    ("C13", {"k2_costs": False}, "a smaller k2 finishes sooner"),
    ("C13", {"spread": {1: 3.0, 2: 0.0, 3: 0.0, 4: 0.0}}, "scheme 1 is the most robust"),
    ("C13", {"short_noise": 1.0}, "its shortest k2 is noisy only at first"),
    ("C13", {"k2_optimum": 0.3}, "scheme 1 reaches the same optimum for all k2"),
    ("C13", {"k2_optimum": 0.3}, "scheme 3 reaches the same optimum for all k2"),
    (
        "C13",
        {"slowness": every(0.9)},
        "scheme 2 is much slower",
    ),
    ("C13", {"short_single": 1.0}, "scheme 2 is unstable for k2 ≤ 40"),
    ("C13", {"slowness": every(0.1)}, "for k2 ≥ 60 it is stable but has not converged"),
    ("C13", {"steady": True}, "scheme 4 is unstable almost everywhere"),
    ("C13", {"ends_350": (40.0, 40.0, 30.0)}, "two of its runs with k2 = 20 end near perplexity 350"),
    ("C13", {"ends_350": (350.0, 340.0, 350.0)}, "a lower k1 helps there"),
    ("C14", {"spread": {1: 0.02, 2: 0.05, 3: 0.04, 4: 0.06}}, "larger under scheme 3 than under scheme 2"),
]


@pytest.mark.parametrize(("claim", "knobs", "lost"), IN_PARTS)
def test_a_claim_holds_in_part_where_one_of_its_parts_is_lost(claim: str, knobs: dict[str, Any], lost: str) -> None:
    judgement = judged(claim, **knobs)
    assert judgement.verdict == IN_PART
    assert any(lost in part.says for part in judgement.parts if part.held is False)


@pytest.mark.parametrize("claim", BY_ID)
def test_a_smaller_scale_is_not_judged(claim: str) -> None:
    small = {name: replace(record, scale=0.005) for name, record in papers().items()}
    judgement = verdict(BY_ID[claim], small)
    assert judgement.verdict == NOT_JUDGED
    assert judgement.measured == "Not judged at this scale, 0.005 of the paper's."


@pytest.mark.parametrize("claim", BY_ID)
def test_a_missing_record_is_named(claim: str) -> None:
    for name in BY_ID[claim].needs:
        judgement = verdict(BY_ID[claim], {figure: record for figure, record in papers().items() if figure != name})
        assert judgement.verdict == NOT_JUDGED
        assert f"There is no record of {name}" in judgement.measured


def test_half_a_figure_is_not_judged_and_half_a_seed_is_left_out() -> None:
    schemes = records()["schemes"]
    half = replace(schemes, curves=schemes.curves[:-3])
    assert "3 curves of schemes are missing" in verdict(BY_ID["C1"], {"schemes": half}).measured
    two = records(seeds=(0, 1))["schemes"]
    cut = replace(two, curves=tuple(c for c in two.curves if c.seed == 0 or c.corpus != "linux"))
    assert verdict(BY_ID["C1"], {"schemes": cut}) == verdict(BY_ID["C1"], {"schemes": schemes})


def test_several_seeds_are_averaged_and_their_spread_is_shown() -> None:
    verdicts = of_three_seeds()
    assert {each.verdict for each in verdicts} <= set(VERDICTS) - {NOT_JUDGED}
    assert "Means over up to 3 seeds" in verdicts[0].measured
    assert "seeds" not in verdict(BY_ID["C1"], records(figures=["schemes"])).measured


def test_a_run_in_two_records_is_one_seed() -> None:
    """Music with k1 = k2 = 100 stands in `schemes` and in `k2`, both of which C15 reads."""
    by_claim = {each.claim: each for each in of_three_seeds()}
    assert "Means over up to 3 seeds" in by_claim["C15"].measured


def test_shuffled_windows_are_compared_with_rotated_ones_of_the_same_seeds() -> None:
    one, three = (records(World(seed_noise=0.2), seeds=seeds) for seeds in ((0,), (0, 1, 2)))
    alone = verdict(BY_ID["C10"], one)
    assert verdict(BY_ID["C10"], {**three, "extras": one["extras"]}).evidence == alone.evidence


def test_where_there_is_no_bump_nothing_lowers_it() -> None:
    still = dict.fromkeys((1, 2, 3, 4), 0.0)
    flat = records(replace(CALM, bump={"": 1.0, "learning_rate": 1.0, "optimiser": 1.0}, wiggle=still), seeds=SEEDS)
    for curve in flat["architectures-1"].curves:
        if (curve.corpus, curve.hidden) == ("finnish", 128):
            index, values = curve.points["batch"].index(18), curve.points["windowed"]
            values[index] = 1.01 * min(values[:index])
    assert [part.held for part in verdict(BY_ID["C9"], flat).parts] == [False, False, False]


def test_a_timing_table_without_fleets_is_not_judged() -> None:
    timing = papers()["timing"]
    alone = replace(timing, times=tuple(t for t in timing.times if t.fleet == 1), k1_times=())
    assert verdict(BY_ID["C11"], {"timing": alone}).verdict == NOT_JUDGED
    assert verdict(BY_ID["C12"], {"timing": alone}).verdict == HOLDS
    assert "no times for several k1" in verdict(BY_ID["C17"], {"timing": alone}).measured


def test_a_verdict_survives_json() -> None:
    for each in judge(papers()):
        assert Verdict.from_json(json.loads(json.dumps(each.to_json()))) == each


def test_a_run_that_stopped_counts_as_at_its_start_from_there_on() -> None:
    whole = papers()["schemes"].curves[0]
    cut = {name: column[:20] for name, column in whole.points.items()}
    stopped = line_of(replace(whole, state="stopped", stopped_at=90, points=cut), whole.points["batch"])
    assert stopped.batch == line_of(whole, []).batch
    assert stopped.perplexity[:20] == line_of(whole, []).perplexity[:20]
    assert set(stopped.perplexity[20:]) == {whole.scored[0][2]}
    assert unstable(stopped, None)
    curves = papers()["schemes"].curves
    spoilt = tuple(replace(c, state="stopped", points=cut_of(c)) if c.k1 == 40 else c for c in curves)
    assert verdict(BY_ID["C1"], {"schemes": replace(papers()["schemes"], curves=spoilt)}).verdict != HOLDS


def cut_of(curve: Any) -> dict[str, list[Any]]:
    return {name: column[:20] for name, column in curve.points.items()}


def made(*perplexity: float) -> Line:
    n = len(perplexity)
    return Line(tuple(100 * 2**i for i in range(n)), perplexity, (None,) * n, tuple(map(float, range(1, n + 1))), 20)


def test_unstable_is_above_eleven_tenths_of_the_lowest_so_far_and_overfitting_shared_with_scheme_1_is_not() -> None:
    assert unstable(made(10, 8, 8.7, 8), None) == []
    assert unstable(made(10, 8, 8.9, 8), None) == [400]
    assert unstable(made(10, 8, 12, 16), scheme1=made(10, 7, 10.5, 14)) == []
    assert unstable(made(10, 8, 12, 20), scheme1=made(10, 7, 10.5, 14)) == [800]
    assert unstable(made(10, 8, 7, 6), scheme1=None, scheme3=made(10, 8, 6, 5)) == [400, 800]
    assert unstable(made(10, 30, 8, 7), None, since=300) == []


def test_the_batches_needed_lie_between_evaluation_points() -> None:
    line = made(16, 4, 1)
    assert line.needed(8, line.batch) == pytest.approx(100 * 2**0.5)
    assert line.needed(16, line.batch) == 100
    assert line.needed(0.5, line.batch) == float("inf")


def test_a_line_that_only_falls_makes_no_detour() -> None:
    assert made(16, 8, 4).detour == pytest.approx(0)
    assert made(16, 4, 8, 2).detour == pytest.approx(2 / 3)
    # What comes after the lowest point is another matter.
    assert made(16, 8, 4, 9, 5).detour == pytest.approx(0)


def test_a_curve_that_is_asked_for_and_not_there_is_named() -> None:
    with pytest.raises(Exception, match="no curve with corpus klingon"):
        Lines(papers(), "schemes").one(corpus="klingon")
