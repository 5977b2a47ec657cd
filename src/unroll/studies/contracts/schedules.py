"""Rules of schedules."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from unroll.base import plugins
from unroll.experiment import spelled
from unroll.experiment.spelled import Key
from unroll.model import schedules
from unroll.studies.contracts import cases, require

LENGTHS = (1, 2, 7, 1000)
# Evaluations that get better, that get worse, that stay, and that cannot be told.
CURVES: tuple[tuple[float, ...], ...] = (
    (),
    (9.0, 8.0, 7.0, 6.0, 5.0, 4.0),
    (4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0),
    (5.0,) * 12,
    (math.inf,) * 12,
)


def it_says_in_two_words_what_it_looks_at(name: str) -> None:
    """DEPENDS_ON_LENGTH and WATCHES are True or False."""
    for word in ("DEPENDS_ON_LENGTH", "WATCHES"):
        value = getattr(schedules.load(name), word)
        require(type(value) is bool, f"{word} is {value!r}.")


def its_keys_have_defaults_that_are_allowed(name: str) -> None:
    """Each of its KEYS, if it has any, is an identifier and a `Key` whose default passes its own check."""
    for word, key in getattr(schedules.load(name), "KEYS", {}).items():
        require(isinstance(word, str) and word.isidentifier(), f"The key {word!r} is no identifier.")
        require(isinstance(key, Key) and type(key.default) in (int, float), f"{word} is {key!r}: it must be a Key.")
        require(key.check is None or bool(key.check[0](key.default)), f"{word} is {key.default!r} by default.")


def a_factor_is_a_number_that_is_not_below_0(name: str) -> None:
    """A factor is a finite number, at least 0, at every batch from 1 to the last, whatever evaluations came before."""
    for batches, batch, history in _moments():
        got = _factor(name, batch, batches, history)
        right = isinstance(got, float | int) and math.isfinite(got) and got >= 0
        require(right, f"At batch {batch} of {batches} the factor is {got!r}.")


def equal_arguments_give_equal_factors(name: str) -> None:
    """It is a pure function: asked again, in another order, it gives the same; it leaves the history as it was."""
    moments = [(batch, batches, list(history)) for batches, batch, history in _moments()]
    first = [_factor(name, *moment) for moment in moments]
    again = [_factor(name, *moment) for moment in reversed(moments)][::-1]
    require(first == again, "Asked again, it gave another factor.")
    before = [history for _, _, history in _moments()]
    require([history for *_, history in moments] == [list(h) for h in before], "It changed the history.")


def the_length_of_a_run_matters_only_where_it_says_so(name: str) -> None:
    """Without DEPENDS_ON_LENGTH a longer run has the factors of a shorter one: a run may be made longer."""
    if schedules.load(name).DEPENDS_ON_LENGTH:
        return
    for batches, batch, history in _moments():
        same = _factor(name, batch, batches, history) == _factor(name, batch, 3 * batches, history)
        require(same, f"Batch {batch} has another factor in a run of {3 * batches} batches than in one of {batches}.")


def evaluations_matter_only_where_it_says_so(name: str) -> None:
    """Without WATCHES no evaluation changes a factor."""
    if schedules.load(name).WATCHES:
        return
    for batches, batch, history in _moments():
        same = _factor(name, batch, batches, history) == _factor(name, batch, batches, ())
        require(same, f"The evaluations before batch {batch} change its factor, and WATCHES is False.")


def it_trains(name: str) -> None:
    """Five batches of training leave finite weights, and a warm-up before them too."""
    for warm_up in (0, 3):
        learner = cases.learner(cases.experiment(schedule=name, warm_up=warm_up))
        for _ in range(5):
            learner.step()
        for key, value in learner.weights(0).items():
            require(bool(value.isfinite().all()), f"{key} is not finite.")


def _factor(name: str, batch: int, batches: int, history: Sequence[tuple[int, float]]) -> float:
    keys = spelled.values("schedules", name)
    return float(plugins.load("schedules", name).factor(batch, batches, history, **keys))


def _moments() -> Iterator[tuple[int, int, tuple[tuple[int, float], ...]]]:
    """Lengths of a run, its batches, and evaluations before these."""
    for batches in LENGTHS:
        for batch in sorted({1, 2, 3, batches // 2, batches - 1, batches} & set(range(1, batches + 1))):
            for curve in CURVES:
                yield batches, batch, tuple(enumerate(curve[: batch - 1], 1))
