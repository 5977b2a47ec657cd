"""Every number that may be set, at the ends of what numbers reach: it trains or draws, or is refused in words."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from helpers import CPU, on_the_cpu, tiny, tiny_corpus

from unroll import Decoding
from unroll.base import plugins
from unroll.base.errors import ConfigurationError
from unroll.engines.choice import engine_of
from unroll.experiment.experiment import read_toml
from unroll.sampling.decoding import distribution
from unroll.training.learner import Learner

HUGE = 10**400  # a whole number beyond all that have a fraction
ENDS = [1e308, 1e39, 3.4028235e38, 1e30, 1e-38, 1e-46, 1e-320, 0.0, -0.0, 1 - 2**-53, -1e308, math.inf, -math.inf]
CPU_KERNELS = [name for name in plugins.names("kernels") if on_the_cpu(name, "lstm", "paper")]


def trained(kernel: str, **settings: Any) -> dict[str, torch.Tensor]:
    """The weights after three batches."""
    corpus = tiny_corpus()
    experiment = corpus.described_in(tiny(kernel=kernel, precision="float32", threads=1, **settings))
    learner = Learner([experiment], [corpus], engine_of(CPU, kernel))
    for _ in range(3):
        learner.step()
    return {name: value.clone() for name, value in learner.model.values(0).items()}


@pytest.mark.parametrize("name", ["clip", "forget_bias", "learning_rate", "dropout"])
@pytest.mark.parametrize("kernel", CPU_KERNELS)
def test_a_number_at_its_end_trains_or_is_refused_in_words(kernel: str, name: str) -> None:
    trains = 0
    for value in (*ENDS, math.nan, HUGE, -HUGE):
        refusal = refused(**{name: value})
        if refusal is None:
            trained(kernel, **{name: value})
            trains += 1
        else:
            assert f"{name} must be" in refusal
    assert 3 < trains < len(ENDS)


def refused(**settings: Any) -> str | None:
    """The reason why an experiment with these settings is refused, or None."""
    try:
        tiny(**settings)
    except ConfigurationError as error:
        return str(error)
    return None


@pytest.mark.parametrize("clip", [1e308, 1e39])
def test_a_bound_beyond_what_32_bits_reach_is_refused_in_words(clip: float) -> None:
    assert "clip must be a positive number, at most 1e30, or inf for none" in str(refused(clip=clip))


@pytest.mark.parametrize("kernel", CPU_KERNELS)
def test_no_bound_and_one_that_nothing_reaches_are_the_same_to_the_bit(kernel: str) -> None:
    free, bounded = trained(kernel, clip=math.inf), trained(kernel, clip=1e30)
    assert all(torch.equal(free[name], bounded[name]) for name in free)
    assert any(not torch.equal(free[name], weights) for name, weights in trained(kernel, clip=1e-6).items())


@pytest.mark.parametrize("value", [HUGE, -HUGE, math.inf, -math.inf, math.nan, -1e308], ids=lambda v: str(v)[:6])
def test_a_temperature_that_is_none_is_refused(value: float) -> None:
    with pytest.raises(ConfigurationError, match="temperature must be a number of at least 0"):
        Decoding(temperature=value)


@pytest.mark.parametrize("controls", [{"temperature": t} for t in (1e308, 1e-320, -0.0, 1e39)] + [{"top_p": 1e-320}])
def test_controls_at_their_ends_leave_a_distribution(controls: dict[str, float]) -> None:
    logits = torch.tensor([[0.0, 3.0, -2.0, 88.0], [-1e4, 1e4, 0.0, 1.0]])
    probabilities = distribution(Decoding(**controls), logits)
    assert bool(torch.isfinite(probabilities).all())
    assert torch.allclose(probabilities.sum(-1), torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize("line", ["[optimiser]\nlearning_rate", "[model]\nforget_bias", "[scheme]\nreset"])
def test_a_whole_number_of_400_digits_in_run_toml_is_refused_in_words(line: str) -> None:
    with pytest.raises(ConfigurationError, match=r"learning_rate must be|forget_bias must be|reset must be"):
        read_toml(f"{line} = {HUGE}\n")
