"""How sure a winner is: what seeds do not tell apart is not told apart, and equal settings rarely have a winner."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import pytest

from unroll.sweep.comparison import paired

SEEDS = 3


def equal(generator: random.Random, schemes: int, seeds: int, uneven: bool) -> dict[str, dict[int, float]]:
    """Perplexities of equal schemes: a part that all share by seed, and a part of each one's own."""
    shared = [generator.gauss(0, 0.1) for _ in range(seeds)]
    spreads = [math.exp(generator.gauss(0, 1)) if uneven else 1.0 for _ in range(schemes)]
    return {
        f"scheme {n}": {s: 5 * math.exp(shared[s] + generator.gauss(0, 0.02 * spreads[n])) for s in range(seeds)}
        for n in range(schemes)
    }


def claims(of_settings: Mapping[str, Mapping[int, float]]) -> bool:
    return paired.has_winner(paired.ranked(of_settings))


@pytest.mark.parametrize("schemes", [2, 4])
def test_over_forty_comparisons_of_equal_schemes_at_most_four_claim_a_winner(schemes: int) -> None:
    generator = random.Random(27)
    assert sum(claims(equal(generator, schemes, SEEDS, uneven=False)) for _ in range(40)) <= 4


@pytest.mark.parametrize("schemes", [2, 3, 4, 8])
@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize("uneven", [False, True])
def test_equal_schemes_have_a_winner_in_no_more_than_one_comparison_of_twenty(
    schemes: int, seeds: int, uneven: bool
) -> None:
    generator, count = random.Random(schemes * seeds), 600
    found = sum(claims(equal(generator, schemes, seeds, uneven)) for _ in range(count))
    assert found <= 0.05 * count + 3 * math.sqrt(0.05 * 0.95 * count)


def test_of_two_equal_schemes_sure_is_any_number_with_the_same_chance() -> None:
    generator = random.Random(5)
    sure = sorted(paired.ranked(equal(generator, 2, SEEDS, uneven=False))[1].sure or 0.0 for _ in range(1000))
    assert all(abs(value - n / 1000) < 0.06 for n, value in enumerate(sure))


def test_a_scheme_that_is_better_at_every_seed_alike_wins() -> None:
    placed = paired.ranked({"worse": {0: 5.3, 1: 6.37, 2: 4.23}, "better": {0: 5.0, 1: 6.0, 2: 4.0}})
    assert [one.name for one in placed] == ["better", "worse"]
    assert paired.has_winner(placed)
    ratio = placed[1].ratio
    assert ratio is not None
    assert ratio.low is not None
    assert 1 < ratio.low < ratio.mean < 1.07


def test_pairing_by_seed_tells_apart_what_seeds_alone_would_hide() -> None:
    by_seed = {0: 3.0, 1: 6.0, 2: 12.0}
    placed = paired.ranked({"a": by_seed, "b": {0: 3.3, 1: 6.66, 2: 13.1}})
    assert placed[0].perplexity is not None
    assert placed[0].perplexity.high is not None
    assert placed[0].perplexity.high > 13.1
    assert placed[1].is_apart


def test_a_scheme_that_lacks_a_seed_stands_behind_those_that_have_every_one() -> None:
    placed = paired.ranked({"low": {0: 2.0, 1: math.inf}, "high": {0: 9.0, 1: 9.1}})
    assert [(one.name, one.missing) for one in placed] == [("high", 0), ("low", 1)]
    assert placed[1].sure is None


@pytest.mark.parametrize("settings", [{"a": {0: 5.0}, "b": {0: 6.0}}, {"a": {0: math.inf}, "b": {0: math.inf}}])
def test_one_seed_or_none_says_nothing(settings: dict[str, dict[int, float]]) -> None:
    placed = paired.ranked(settings)
    assert placed[1].sure is None
    assert not paired.has_winner(placed)
