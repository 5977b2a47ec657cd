"""What a pilot tries, and which of it is taken: rules that hold for any results."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unroll.experiment.experiment import Experiment
from unroll.sweep.advice import asked as asking
from unroll.sweep.advice import candidates, verdict
from unroll.sweep.advice.asked import Asked
from unroll.sweep.advice.candidates import Result
from unroll.sweep.advice.pilot import Finalist

FULL = 6000
LARGE = 100_000_000  # tokens: nothing is read twice


def question(tokens: int = LARGE, **settings: Any) -> Asked:
    found = asking.asked("book.txt", 300.0, "quality", settings)
    return replace(found, base=replace(found.base, tokens=tokens, unique=60))


def changed(one: Experiment, base: Experiment) -> set[str]:
    """The settings in which two differ; k1 and rows follow k2, and the sampling procedure follows the state."""
    names = {f.name for f in dataclasses.fields(one) if getattr(one, f.name) != getattr(base, f.name)} - {"scheme"}
    fields = dataclasses.fields(one.scheme)
    names |= {f.name for f in fields if getattr(one.scheme, f.name) != getattr(base.scheme, f.name)}
    if "k2" in names:
        names -= {"k1", "rows"}
    if "state" in names:
        names -= {"sample", "reset"}
    return names


def test_alone_each_setting_is_changed_by_itself() -> None:
    for tokens in (LARGE, 50_000):
        asked = question(tokens)
        made = candidates.alone(asked, FULL)
        assert made[0] == asked.base
        assert all(len(changed(one, asked.base)) == 1 for one in made[1:])
        tried = set().union(*(changed(one, asked.base) for one in made))
        assert tried == {"state", "hidden", "learning_rate", "k1", "k2", "loss"} | (
            {"dropout"} if tokens < LARGE else set()
        )
        assert len(made) == len(set(made))


@pytest.mark.parametrize("name", ["k1", "k2", "hidden", "learning_rate", "dropout"])
def test_what_is_said_holds_for_every_run(name: str) -> None:
    value = {"k1": 30, "k2": 60, "hidden": 96, "learning_rate": 0.003, "dropout": 0.1}[name]
    asked = question(50_000, **{name: value})

    def of(e: Experiment) -> Any:
        return getattr(e.scheme, name) if name in ("k1", "k2") else getattr(e, name)

    made = candidates.alone(asked, FULL)
    assert {of(e) for e in made} == {value}
    results = [Result(e, 2.0 + 0.01 * n) for n, e in enumerate(made)]
    assert {of(e) for e in candidates.together(asked, results, FULL)} == {value}


@given(k2=st.integers(1, 400), rows=st.integers(1, 64), other=st.integers(1, 400))
def test_every_batch_reads_about_as_many_tokens_whatever_its_windows(k2: int, rows: int, other: int) -> None:
    base = Experiment(rows=rows, scheme=replace(Experiment().scheme, k1=k2, k2=k2))
    made = candidates.with_k2(base, other)
    tokens = rows * k2
    assert abs(made.rows * other - tokens) <= max(other / 2, 0 if made.rows > 1 else abs(other - tokens))
    assert made.scheme.k1 == other


def nats_of(asked: Asked) -> st.SearchStrategy[list[float]]:
    return st.lists(st.floats(0.1, 5.0), min_size=20, max_size=20)


@given(data=st.data())
def test_together_every_origin_meets_every_window_and_the_last_ones_hold_the_best(data: st.DataObject) -> None:
    asked = question(data.draw(st.sampled_from([LARGE, 50_000])))
    made = candidates.alone(asked, FULL)
    nats = data.draw(nats_of(asked))
    results = [Result(e, n, turned=n > 4) for e, n in zip(made, nats, strict=False)]
    both = candidates.together(asked, results, FULL)
    pairs = {(e.scheme.state, e.scheme.k2) for e in both}
    assert pairs >= {(state, k2) for state in ("learned", "carried") for k2 in (50, 100, 200)}
    after = [Result(e, n) for e, n in zip(both, reversed(nats), strict=False)]
    last = candidates.finalists(asked, after)
    best = min(after, key=lambda r: r.nats)
    assert 2 <= len(last) <= candidates.FINALISTS
    assert last[0] == best.experiment
    assert len({e.scheme.carries for e in last}) == 2  # both origins get their seeds
    equal = [r.experiment for r in after if candidates.alike(r.nats, best.nats)]
    assert min(equal, key=candidates.cost) in last


def finalist(nats: float, spread: float = 0.0, **settings: Any) -> Finalist:
    scheme = settings.pop("scheme", Experiment().scheme)
    e = Experiment(scheme=scheme, unique=60, **{"hidden": 128, "batches": FULL, **settings})
    by_seed = {0: nats - spread, 1: nats, 2: nats + spread}
    return Finalist(e, ("a", "b", "c"), by_seed, by_seed, (), 1000, 1000, False)


CARRIED = replace(Experiment().scheme, state="carried", sample="progressive", reset=0.01)


def test_of_equals_the_cheapest_is_taken_and_what_is_told_apart_is_no_equal() -> None:
    large, small = finalist(1.5, hidden=256), finalist(1.503, hidden=64)
    assert verdict.decide(([large, small], FULL), "quality").taken is small
    worse = finalist(1.53, hidden=64)
    assert verdict.decide(([large, worse], FULL), "quality").taken is large
    noisy = finalist(1.52, 0.1, hidden=64)
    assert verdict.decide(([large, noisy], FULL), "quality").taken is noisy


def test_progressive_sampling_is_cheaper_where_perplexities_are_equal() -> None:
    windowed, progressive = finalist(1.5), finalist(1.501, scheme=CARRIED)
    assert verdict.decide(([windowed, progressive], FULL), "quality").taken is progressive


def test_speed_and_memory_pay_with_perplexity() -> None:
    large, small = finalist(1.5, hidden=256), finalist(1.56, hidden=64)
    assert verdict.decide(([large, small], FULL), "quality").taken is large
    assert verdict.decide(([large, small], FULL), "speed").taken is small
    assert verdict.decide(([large, small], FULL), "memory").taken is small
    poor = finalist(1.7, hidden=16)
    assert verdict.decide(([large, small, poor], FULL), "memory").taken is small


def test_a_setting_that_diverged_in_a_seed_is_not_taken_for_its_price() -> None:
    large = finalist(1.5, hidden=256)
    broken = replace(
        finalist(1.5, hidden=64), nats={0: 1.5, 1: math.inf, 2: 1.5}, expected={0: 1.5, 1: math.inf, 2: 1.5}
    )
    assert verdict.decide(([large, broken], FULL), "memory").taken is large


def test_the_order_of_the_settings_decides_nothing() -> None:
    three = [finalist(1.5, 0.01, hidden=256), finalist(1.502, 0.01), finalist(1.6, 0.01, hidden=64)]
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        decided = verdict.decide(([three[n] for n in order], FULL), "quality")
        assert decided.taken is three[1]
        assert decided.finalists[0] is three[0]


def test_how_often_a_run_reads_its_text_is_by_its_own_rows_and_updates() -> None:
    base = question(1_000_000).base
    assert candidates.epochs(base, 1000) == pytest.approx(1.6)
    assert candidates.epochs(candidates.with_k1(base, 20), 1000) == pytest.approx(0.32)
