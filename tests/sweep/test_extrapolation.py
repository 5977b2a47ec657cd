"""What a full run will reach: the interval holds it as often as it says, and no curve makes the answer absurd."""

from __future__ import annotations

import json
import math
import sys
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unroll.sweep.advice import power_law
from unroll.sweep.advice.extrapolation import HIGH, LOW, Curve, Expectation, Points, Reach, expected

ROOT = Path(__file__).parent.parent.parent
sys.path.append(str(ROOT / "benchmarks"))

import extrapolation as benchmark  # noqa: E402

GRID = sorted({round(12800 ** (n / 39)) for n in range(40)})
RECORD = json.loads((ROOT / "results" / "advice" / "extrapolation.json").read_text("utf-8"))


def falling(exponent: float, last: int = 1000, level: float = 10.0, floor: float = 0.8) -> Points:
    """A power law to a floor of ln p."""
    return tuple((b, math.exp(floor + level * b**-exponent)) for b in (*GRID, last) if b < last or b == last)


def answer(*curves: Points, batches: int = 3000) -> Expectation:
    full = expected([Curve(points) for points in curves], batches)
    assert full is not None
    return full


wiggles = st.lists(st.floats(-0.1, 0.1), min_size=len(GRID) + 1, max_size=len(GRID) + 1)
pilots = st.lists(
    st.builds(
        lambda exponent, level, floor, wiggle: tuple(
            (b, math.exp(abs(math.log(p) + w)))
            for (b, p), w in zip(falling(exponent, 1000, level, floor), wiggle, strict=False)
        ),
        st.floats(0.01, 1.0), st.floats(0.1, 20.0), st.floats(0.0, 3.0), wiggles,
    ),
    min_size=1, max_size=4,
)  # fmt: skip


@given(pilots, st.integers(1000, 20_000))
def test_the_interval_contains_the_expectation_and_no_perplexity_is_below_one(curves: list[Points], full: int) -> None:
    found = answer(*curves, batches=full)
    assert 1 <= found.low <= found.perplexity <= found.high < math.inf


@given(pilots, st.integers(1000, 10_000), st.floats(1.0, 10.0))
def test_a_longer_run_is_never_expected_to_be_worse(curves: list[Points], full: int, times: float) -> None:
    short, long = answer(*curves, batches=full), answer(*curves, batches=round(full * times))
    assert long.perplexity <= short.perplexity * (1 + 1e-12)


@given(pilots, st.integers(1000, 20_000))
def test_the_gain_is_between_nothing_and_half_of_the_log_perplexity(curves: list[Points], full: int) -> None:
    reached = sum(math.log(min(p for _, p in points)) for points in curves) / len(curves)
    found = math.log(answer(*curves, batches=full).perplexity)
    assert power_law.FLOOR * reached - 1e-9 <= found <= reached + 1e-9


@given(pilots, st.integers(1000, 20_000), st.integers(2, 50))
def test_batches_in_another_unit_change_nothing(curves: list[Points], full: int, times: int) -> None:
    scaled = [tuple((b * times, p) for b, p in points) for points in curves]
    one, other = answer(*curves, batches=full), answer(*scaled, batches=full * times)
    assert (other.perplexity, other.low, other.high) == pytest.approx((one.perplexity, one.low, one.high), rel=1e-6)


@given(pilots)
def test_seeds_in_another_order_change_nothing(curves: list[Points]) -> None:
    one, other = answer(*curves), answer(*reversed(curves))
    assert (other.perplexity, other.low, other.high) == pytest.approx((one.perplexity, one.low, one.high), rel=1e-9)


def test_a_power_law_to_half_of_what_was_reached_is_foretold_exactly() -> None:
    last = 1000
    points = tuple((b, math.exp(1 + (last / b) ** 0.3)) for b in (*(b for b in GRID if b < last), last))
    truth = math.exp(1 + (last / 4000) ** 0.3)
    assert answer(points, batches=4000).perplexity == pytest.approx(truth, rel=0.01)


def test_points_beyond_the_full_run_do_not_count_and_a_run_of_the_pilots_length_gains_nothing() -> None:
    whole, cut = falling(0.3, 1000), tuple(point for point in falling(0.3, 1000) if point[0] <= 500)
    assert answer(whole, batches=500) == answer(cut, batches=500)
    assert answer(whole, batches=1000).perplexity == pytest.approx(whole[-1][1])


def test_more_seeds_and_fewer_batches_to_go_make_the_interval_narrower() -> None:
    points = falling(0.3)
    for narrow, wide in [
        (answer(points, points, points), answer(points)),
        (answer(points, batches=1500), answer(points, batches=3000)),
    ]:
        assert narrow.high / narrow.low < wide.high / wide.low


def test_seeds_that_differ_and_rough_curves_make_it_wider() -> None:
    points = falling(0.3)
    apart = tuple((b, p * 1.3) for b, p in points)
    even = answer(points, points)
    assert answer(points, apart).high / answer(points, apart).low > 1.2 * even.high / even.low
    rough = tuple((b, p * (1.15 if n % 2 and n < len(points) - 1 else 1.0)) for n, (b, p) in enumerate(points))
    of_even, of_rough = (
        power_law.exponent([[(math.log(b), math.log(p)) for b, p in curve]], math.log(points[-1][1])).error
        for curve in (points, rough)
    )
    assert of_rough > 2 * of_even


def test_a_curve_that_has_turned_is_expected_to_stay_at_its_best() -> None:
    test = tuple((b, math.exp(1.5 + 0.3 * math.log(b / 300) ** 2)) for b in (100, 150, 200, 300, 400, 600, 1000))
    found = answer(test, test, batches=5000)
    assert found.turned
    assert found.batch == 300
    assert found.perplexity == pytest.approx(math.exp(1.5))
    assert found.low > 0.8 * math.exp(1.5)


def test_one_last_point_above_the_best_is_no_turn() -> None:
    points = falling(0.3)
    found = answer((*points[:-1], (points[-1][0], points[-1][1] * 1.2)))
    assert not found.turned
    assert found.perplexity < points[-2][1]


def test_the_validation_set_says_where_the_best_is_and_the_test_set_how_good() -> None:
    test = tuple((b, 10.0 - n) for n, b in enumerate((100, 200, 400, 800)))
    validation = tuple((b, p) for b, p in zip((100, 200, 400, 800), (9.0, 5.0, 6.0, 7.0), strict=True))
    found = expected([Curve(test, validation)], 3000)
    assert found is not None
    assert (found.turned, found.batch, found.perplexity) == (True, 200, pytest.approx(9.0))


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_a_seed_that_diverged_leaves_no_upper_end_and_all_that_did_no_answer(bad: float) -> None:
    points = falling(0.3)
    diverged = (*points[:-1], (points[-1][0], bad))
    found = answer(points, diverged)
    assert found.high == math.inf
    assert found.perplexity == answer(points).perplexity
    assert expected([Curve(diverged), Curve(diverged)], 3000) is None
    assert expected([Curve(())], 3000) is None
    assert expected([], 3000) is None


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_a_point_in_the_middle_that_is_no_number_is_left_out(bad: float) -> None:
    points = falling(0.3)
    holed = tuple((b, bad if n == len(points) - 3 else p) for n, (b, p) in enumerate(points))
    assert answer(holed).perplexity == pytest.approx(answer(points).perplexity, rel=0.01)


def test_a_curve_of_one_point_is_expected_to_fall_as_curves_usually_do_within_a_wide_interval() -> None:
    half = math.log(8) / 2
    known = answer(tuple((b, math.exp(half + half * (1000 / b) ** 0.25)) for b in (*range(200, 1000, 50), 1000)))
    for found in (answer(((1000, 8.0),)), answer(((950, 8.2), (1000, 8.0)))):
        assert 4 < found.perplexity < 8
        assert found.high / found.low > 1.1 * known.high / known.low


def test_a_perplexity_of_one_stays() -> None:
    found = answer(((100, 1.0), (1000, 1.0)))
    assert (found.perplexity, found.low) == (1.0, 1.0)


@cache
def cases() -> list[benchmark.Case]:
    """The cases of two lengths: half of them all."""
    found = benchmark.cases(benchmark.settings(), full=(2400, 12800))
    return [case for case in found if case.is_new_seed]


@pytest.mark.parametrize("ratio", benchmark.RATIOS)
def test_nine_of_ten_runs_of_the_records_end_inside_and_the_interval_says_something(ratio: float) -> None:
    of_ratio = [case for case in cases() if case.is_fitted and case.ratio == ratio]
    of_corpora = [
        benchmark.coverage([case for case in of_ratio if case.corpus == corpus], LOW, HIGH)
        for corpus in sorted({case.corpus for case in of_ratio})
    ]
    inside, width, error = (
        sum(found[name] for found in of_corpora) / len(of_corpora)
        for name in ("inside", "median_width", "median_error")
    )
    assert inside >= 0.88
    assert width <= 0.12 + 0.25 * math.log(ratio)
    assert error < 0.02 + 0.05 * math.log(ratio)


def test_for_corpora_left_out_of_the_fit_it_is_so_as_a_mean_and_in_seven_of_ten_for_the_hardest() -> None:
    fitted = [case for case in cases() if case.is_fitted]
    inside = {}
    for corpus in sorted({case.corpus for case in fitted}):
        low, high = benchmark.calibrated([case for case in fitted if case.corpus != corpus])
        inside[corpus] = benchmark.coverage([case for case in fitted if case.corpus == corpus], low, high)["inside"]
    assert sum(inside.values()) / len(inside) >= 0.85
    assert min(inside.values()) >= 0.7


def test_the_constants_are_those_of_the_record() -> None:
    assert (Reach(**RECORD["low"]), Reach(**RECORD["high"])) == (LOW, HIGH)
    assert RECORD["margin"] == benchmark.MARGIN
    assert RECORD["left_out"]["mean"]["inside"] >= 0.9


def test_small_models_that_no_constant_comes_from_end_inside_too_but_for_single_loss_on_linux() -> None:
    of_settings = {setting: curves for setting, curves in benchmark.settings().items() if setting[0] == "pilots"}
    found = benchmark.cases(of_settings)
    single = [case for case in found if case.corpus == "lin-single-008"]
    others = [case for case in found if case.corpus != "lin-single-008"]
    assert benchmark.coverage(others, LOW, HIGH)["inside"] >= 0.9
    assert benchmark.coverage(single, LOW, HIGH)["above"] <= 0.05  # where it errs, the run ends better than it said


def test_a_pilot_that_gains_nothing_is_not_made_worse_by_more_batches() -> None:
    flat = tuple((b, 5.0) for b in GRID if b <= 1000)
    near, far = answer(flat, batches=1001), answer(flat, batches=12_000)
    assert far.high <= near.high * 1.1
