"""What a sweep answers: means and intervals over seeds, and what the seeds do not tell apart."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from unroll.cli.sweep_display import print_answers
from unroll.sweep import student
from unroll.sweep.answers import Answer, answers

Row = dict[str, Any]


def row(scheme: int, seed: int, perplexity: float | None, state: str = "finished", corpus: str = "book") -> Row:
    words = {"run": f"{corpus}-{scheme}-{seed}", "corpus": corpus, "scheme": scheme, "k1": 20, "seed": seed}
    return words | {"state": state, "batch": 9, "loss": 1.0, "perplexity": perplexity, "lowest": perplexity,
                    "lowest_batch": 9, "reason": None}  # fmt: skip


def answer(*of_schemes: list[float]) -> Answer:
    (only,) = answers(row(s, seed, p) for s, of in enumerate(of_schemes, 1) for seed, p in enumerate(of))
    return only


@pytest.mark.parametrize(
    ("share", "freedom", "t"),
    # From printed tables.
    [
        (0.975, 1, 12.706),
        (0.975, 2, 4.303),
        (0.95, 3, 2.353),
        (0.995, 4, 4.604),
        (0.9995, 5, 6.869),
        (0.975, 120, 1.980),
    ],
)
def test_quantiles_are_those_of_printed_tables(share: float, freedom: int, t: float) -> None:
    assert student.quantile(share, freedom) == pytest.approx(t, abs=6e-4)
    assert student.quantile(1 - share, freedom) == -student.quantile(share, freedom)
    assert student.distribution(student.quantile(share, freedom), freedom) == pytest.approx(share, abs=1e-12)


def test_with_one_degree_of_freedom_the_distribution_is_cauchys() -> None:
    for t in (-30.0, -1.0, 0.0, 0.3, 2.0, 500.0):
        assert student.distribution(t, 1) == pytest.approx(0.5 + math.atan(t) / math.pi, abs=1e-13)


def test_a_mean_is_geometric_and_its_interval_is_students_in_the_logarithm() -> None:
    best = answer([4.0, 5.0, 6.0], [40.0, 50.0, 60.0]).best.perplexity
    assert best is not None
    logs = [math.log(4), math.log(5), math.log(6)]
    mean = sum(logs) / 3
    reach = 4.302653 * math.sqrt(sum((v - mean) ** 2 for v in logs) / 2 / 3)
    assert best.mean == pytest.approx(math.exp(mean))
    assert best.low == pytest.approx(math.exp(mean - reach), rel=1e-6)
    assert best.high == pytest.approx(math.exp(mean + reach), rel=1e-6)


def test_settings_are_compared_seed_by_seed() -> None:
    # Seeds differ by a factor of two, the settings by 5 % in every seed.
    paired = answer([10.0, 14.0, 20.0], [10.5, 14.7, 21.0001])
    assert paired.best.setting == {"scheme": 1}
    assert paired.standings[1].is_apart is True
    assert paired.standings[1].ratio is not None
    assert paired.standings[1].ratio.mean == pytest.approx(1.05, abs=1e-4)
    assert "scheme 1 is best" in paired.in_words()
    # The same numbers of other seeds tell nothing.
    mixed = answer([10.0, 14.0, 20.0], [21.0001, 10.5, 14.7])
    assert mixed.standings[1].is_apart is False
    assert "scheme 1 has the lowest mean, and cannot be told apart from: scheme 2" in mixed.in_words()


def test_one_seed_tells_nothing_apart() -> None:
    one = answer([5.0], [50.0])
    assert one.standings[1].is_apart is None
    assert "one seed" in one.in_words()
    assert "--seeds 3" in one.in_words()


def test_equal_runs_are_no_difference() -> None:
    assert answer([5.0, 6.0, 7.0], [5.0, 6.0, 7.0]).standings[1].is_apart is False


def test_a_setting_with_a_run_that_diverged_is_never_best() -> None:
    (only,) = answers([
        row(1, 0, 3.0), row(1, 1, None, "stopped"), row(1, 2, math.inf),
        row(2, 0, 9.0), row(2, 1, 9.1), row(2, 2, 9.2),
    ])  # fmt: skip
    assert [(s.setting["scheme"], s.seeds, s.unfinished) for s in only.standings] == [(2, 3, 0), (1, 1, 2)]
    (nothing,) = answers([row(1, 0, None, "stopped"), row(2, 0, None, "failed")])
    assert "No setting has a run" in nothing.in_words()


def test_corpora_are_answered_apart_and_one_setting_needs_no_answer() -> None:
    rows = [row(s, 0, 5.0 + s, corpus=c) for c in ("a", "b") for s in (1, 2)]
    assert [a.corpus for a in answers(rows)] == ["a", "b"]
    assert answers([row(1, seed, 5.0) for seed in range(3)]) == []
    assert answers([]) == []


def claims(settings: int, seeds: int, times: int) -> tuple[float, float]:
    """The share of comparisons of equal settings in which a winner, and in which any difference, is claimed."""
    draw, winners, differences = random.Random(7), 0, 0
    for _ in range(times):
        of_seed = [draw.gauss(1.5, 0.1) for _ in range(seeds)]
        one = answer(*([math.exp(value + draw.gauss(0, 0.03)) for value in of_seed] for _ in range(settings)))
        apart = [standing.is_apart for standing in one.standings[1:]]
        winners += all(apart)
        differences += any(apart)
    return winners / times, differences / times


@pytest.mark.parametrize(("settings", "seeds"), [(2, 3), (2, 5), (4, 3), (8, 5)])
def test_among_equal_settings_a_winner_is_claimed_in_at_most_one_of_twenty(settings: int, seeds: int) -> None:
    winners, differences = claims(settings, seeds, 400)
    assert winners <= 0.08  # 0.05, with room for 400 draws
    assert differences <= 0.15
    if settings == 2:
        assert differences > 0.01  # an interval that never claims anything would pass as well


def test_what_is_printed_names_means_intervals_and_ties(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row(s, seed, p) for s, of in enumerate(([5.0, 6.0], [5.1, 5.9]), 1) for seed, p in enumerate(of)]
    print_answers(rows)
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["scheme", "seeds", "mean", "95", "%", "interval", "to", "the", "best"]
    assert "best" in lines[3]
    assert "not told apart" in lines[4]
    assert "cannot be told apart from" in lines[5]


def test_answers_are_the_same_whatever_the_order_of_rows() -> None:
    rows = [row(s, seed, 5 + s + seed / 7) for s in (1, 2, 3) for seed in range(3)]
    shuffled: Callable[[int], list[Row]] = lambda n: random.Random(n).sample(rows, len(rows))  # noqa: E731
    assert all(answers(shuffled(n)) == answers(rows) for n in range(5))
