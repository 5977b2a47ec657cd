"""Which features of a text hidden units follow, where the truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from unroll.base.errors import ConfigurationError
from unroll.runs.selectivity import FEATURES, _explained, ranked

TEXT = 'def name(a, b):\n    return [a, "b c", (b)]\n\nclass Other:\n    x = 1\n' * 40
SYMBOLS = list(TEXT)


def states(**units: list[float] | np.ndarray) -> np.ndarray:
    """Units side by side in one layer."""
    return np.stack([np.asarray(values, np.float32) for values in units.values()], axis=-1)[:, None, :]


def noise(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=len(SYMBOLS))


@pytest.mark.parametrize("feature", list(FEATURES))
def test_a_unit_that_is_a_feature_is_found_first_and_named(feature: str) -> None:
    categories = FEATURES[feature](SYMBOLS)
    value = {category: number for number, category in enumerate(sorted(set(categories)))}
    exact = np.array([value[category] for category in categories]) + 0.01 * noise(1)
    ranking = ranked(states(noise=noise(), exact=exact), SYMBOLS)
    first = ranking.units[0]
    assert first.unit == 1
    assert first.selectivity > 0.98 > ranking.units[1].selectivity
    # Features that say the same of this text explain as much.
    same = [name for name in FEATURES if len(set(zip(FEATURES[name](SYMBOLS), categories, strict=True))) == len(value)]
    assert first.feature in same
    assert feature in same


def test_the_category_where_a_unit_is_highest_is_named() -> None:
    inside = np.array([category == "inside" for category in FEATURES["double quotes"](SYMBOLS)], float)
    first = ranked(states(quotes=0.02 * noise() + inside), SYMBOLS).units[0]
    assert (first.feature, first.highest, first.lowest) == ("double quotes", "inside", "outside")


def test_noise_is_not_above_what_chance_gives() -> None:
    """The highest of 20 units of noise passes the highest of 19 turns in about 1 of 20 texts."""
    passes = 0
    for seed in range(10):
        units = np.random.default_rng(seed).normal(size=(len(SYMBOLS), 1, 20)).astype(np.float32)
        ranking = ranked(units, SYMBOLS)
        assert ranking.units[0].selectivity < 0.03
        passes += ranking.units[0].selectivity > ranking.chance
    assert passes <= 3


def test_many_categories_alone_explain_nothing() -> None:
    """The share is corrected for their number: that of noise is 0 in the mean, and below 0 as often as above."""
    units = np.random.default_rng(0).normal(size=(len(SYMBOLS), 1, 200)).astype(np.float32)
    categories = np.random.default_rng(1).integers(60, size=len(SYMBOLS))
    shares = _explained(units[:, 0].astype(np.float64), categories)
    assert abs(shares.mean()) < 0.003
    assert 0.3 < (shares > 0).mean() < 0.7


def test_a_unit_that_never_moves_follows_nothing() -> None:
    ranking = ranked(states(still=np.full(len(SYMBOLS), 0.5)), SYMBOLS)
    assert ranking.units[0].selectivity == 0


def test_layers_are_ranked_together() -> None:
    line_ends = np.array([symbol == "\n" for symbol in SYMBOLS], float)
    h_TLH = np.stack([np.stack([noise(1), noise(2)], -1), np.stack([noise(3), line_ends], -1)], 1).astype(np.float32)
    first = ranked(h_TLH, SYMBOLS).units[0]
    assert (first.layer, first.unit) == (1, 1)


def test_tokens_that_are_words_have_the_commonest_as_classes() -> None:
    words = [["the", "cat", "sat", "on", "mat"][i] for i in np.random.default_rng(0).integers(5, size=400)]
    is_cat = np.array([word == "cat" for word in words], float)
    first = ranked(is_cat[:, None, None].astype(np.float32), words).units[0]
    assert (first.feature, first.highest) == ("class of the token", "'cat'")


def test_a_text_without_two_categories_is_refused_in_words() -> None:
    with pytest.raises(ConfigurationError, match="too short or too uniform"):
        ranked(np.zeros((5, 1, 3), np.float32), list("abcde"))
    with pytest.raises(ConfigurationError, match="a symbol for each of the 5 states"):
        ranked(np.zeros((5, 1, 3), np.float32), list("abc"))
