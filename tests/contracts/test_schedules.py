"""Schedules: factors are those of torch's own schedulers; words behind a name mean something, or are refused."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import every_plugin, tiny
from torch.optim import lr_scheduler

from unroll import Experiment
from unroll.base.errors import ConfigurationError
from unroll.experiment import spelled
from unroll.experiment.experiment import read_toml, write_toml
from unroll.model import schedules

BATCHES = 90


def factors(schedule: str, batches: int = BATCHES, **settings: Any) -> list[float]:
    """The learning rate of every batch of a run whose highest rate is 1."""
    rates = schedules.of(tiny(schedule=schedule, batches=batches, learning_rate=1.0, **settings))
    assert rates is not None
    return [rates.at(batch, ()) for batch in range(1, batches + 1)]


def torchs(make: Callable[..., Any], **settings: Any) -> list[float]:
    """The same by a scheduler of torch."""
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler, rates = make(optimiser, **settings), []
    for _ in range(BATCHES):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize(
    ("schedule", "make", "settings"),
    [
        ("step,every=20,by=0.3", lr_scheduler.StepLR, {"step_size": 20, "gamma": 0.3}),
        ("exponential,final=0.02", lr_scheduler.ExponentialLR, {"gamma": 0.02 ** (1 / BATCHES)}),
        ("linear,final=0.1", lr_scheduler.LinearLR, {"start_factor": 1, "end_factor": 0.1, "total_iters": BATCHES}),
        ("linear", lr_scheduler.LinearLR, {"start_factor": 1, "end_factor": 0, "total_iters": BATCHES}),
        ("cosine", lr_scheduler.CosineAnnealingLR, {"T_max": BATCHES}),
        ("cosine,final=0.25", lr_scheduler.CosineAnnealingLR, {"T_max": BATCHES, "eta_min": 0.25}),
    ],
)
def test_a_schedule_has_the_rates_of_torchs_scheduler(
    schedule: str, make: Callable[..., Any], settings: dict[str, Any]
) -> None:
    assert factors(schedule) == pytest.approx(torchs(make, **settings), abs=1e-12)


@pytest.mark.parametrize("patience", [1, 2, 5])
def test_plateau_falls_where_torchs_scheduler_does(patience: int) -> None:
    drawn = random.Random(patience)
    curve = [8 / (n + 1) + drawn.uniform(0, 1.5) for n in range(60)]
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    # torch counts the evaluations that it lets pass, this one those that it waits for.
    scheduler = lr_scheduler.ReduceLROnPlateau(
        optimiser, factor=0.4, patience=patience - 1, threshold=0.0, min_lr=0.01, eps=0.0
    )
    words = f"plateau,by=0.4,patience={patience},final=0.01"
    rates = schedules.of(tiny(schedule=words, batches=10_000, learning_rate=1.0))
    assert rates is not None
    fell = set()
    for n, perplexity in enumerate(curve, 1):
        scheduler.step(perplexity)
        history = list(enumerate(curve[:n], 1))
        assert rates.at(n + 1, history) == pytest.approx(optimiser.param_groups[0]["lr"], abs=1e-12)
        assert rates.at(n, history) == rates.at(n, history[:-1]), "an evaluation counts from the next batch on"
        fell.add(rates.at(n + 1, history))
    assert len(fell) > 2


def test_an_evaluation_without_a_number_is_no_new_lowest() -> None:
    rates = schedules.of(tiny(schedule="plateau,patience=2,by=0.5", batches=99, learning_rate=1.0))
    assert rates is not None
    assert rates.at(9, [(1, math.inf), (2, math.inf)]) == 0.5
    assert rates.at(9, [(1, math.inf), (2, 7.0), (3, math.inf)]) == 1.0


@every_plugin("schedules")
def test_a_warm_up_multiplies_a_schedules_first_factors(name: str) -> None:
    plain = factors(name) if name != "constant" else [1.0] * BATCHES
    warm = factors(name, warm_up=10)
    assert warm[:10] == pytest.approx([factor * (i + 1) / 10 for i, factor in enumerate(plain[:10])], abs=1e-15)
    assert warm[9:] == plain[9:]


def test_a_constant_rate_without_a_warm_up_is_no_schedule_at_all() -> None:
    assert schedules.of(tiny()) is None
    assert schedules.of(tiny(warm_up=1)) is None


def test_spellings_that_mean_one_thing_are_one_experiment() -> None:
    plain = tiny(schedule="step", optimiser="sgd")
    for words in ("step,every=1000", "step, by=0.5 ,every=1000", "step,by=.5"):
        assert tiny(schedule=words, optimiser="sgd,momentum=0") == plain
    other = tiny(schedule="step,by=1e-1,every=7")
    assert other.schedule == "step,every=7,by=0.1"
    assert read_toml(write_toml(other)) == other
    assert len({e.identity for e in (plain, other, tiny(), tiny(warm_up=3), tiny(optimiser="sgd"))}) == 5


def test_settings_at_their_defaults_leave_identities_as_they_were() -> None:
    assert Experiment(corpus="x").identity.startswith("1fdb5d71")  # as it was before any of them existed
    neutral = Experiment(corpus="x", schedule="constant", warm_up=0, weight_decay=0.0, clip_norm=math.inf)
    assert neutral.identity == Experiment(corpus="x", decay="decoupled").identity == Experiment(corpus="x").identity


def test_what_a_schedule_watches_is_part_of_the_identity() -> None:
    for change in ({"evaluations": 7}, {"test_tokens": 50}, {"sample": "progressive"}):
        assert tiny(**change).identity == tiny().identity
        assert tiny(**change, schedule="plateau").identity != tiny(schedule="plateau").identity


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("stpe", "Did you mean step?"),
        ("step,evry=3", "schedule = step knows the keys every, by. Got 'evry=3'. Did you mean every?"),
        ("step,every=0", "every of schedule = step must be at least 1. Got '0'. Write it as in step,every=1000."),
        ("step,every=1.5", "must be an integer"),
        ("step,by=nan", "must be a finite number"),
        ("cosine,final=2", "must be between 0 and 1"),
        ("exponential,final=0", "above 0 and at most 1"),
        ("constant,by=2", "knows no keys"),
        ("cosine,", "has a comma with no key behind it"),
        ("step,by=0.1,by=0.2", "has by more than once"),
    ],
)
def test_words_that_mean_nothing_are_refused_with_what_would_do(words: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        tiny(schedule=words)
    assert said in str(refused.value)


def test_a_list_keeps_keys_with_their_name() -> None:
    assert spelled.listed("adam,sgd,momentum=0.9,sgd,rmsprop") == ["adam", "sgd,momentum=0.9", "sgd", "rmsprop"]
    assert spelled.listed("constant, step, every=3,by=0.1") == ["constant", " step, every=3,by=0.1"]
