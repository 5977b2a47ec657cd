"""Every optimiser: runs are independent, frozen runs untouched, and the known ones equal plain NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from helpers import CPU, check_close, check_identical, every_plugin, random_tensor, snapshot, tiny, tiny_corpus

from unroll.engines.choice import engine_of
from unroll.engines.cpu.compiled_update import CompiledUpdate
from unroll.engines.cpu.threaded_update import ThreadedUpdate
from unroll.model import optimisers
from unroll.model.engine import FleetTensors
from unroll.training.learner import Learner

M, SHAPE, STEPS = 3, (4, 5), 7
RATES = np.array([0.001, 0.01, 0.1])


def gradients(m: int | slice = slice(None)) -> list[torch.Tensor]:
    """One gradient a step, over ten orders of magnitude, with exact zeros among them."""
    scales = 10.0 ** torch.arange(-6, 4).double().repeat(6).view(M, *SHAPE)
    steps = [random_tensor(M, *SHAPE, seed=s) * scales for s in range(STEPS)]
    for step in steps:
        step[:, 0, 0] = 0.0
    return [step[m] for step in steps]


def descend(name: str, steps: list[torch.Tensor], rates: np.ndarray) -> torch.Tensor:
    """Where a parameter that began at 0 ends."""
    optimiser = optimisers.load(name)
    place = torch.zeros_like(steps[0])
    moments = tuple(torch.zeros_like(place) for _ in optimiser.MOMENTS)
    rate = torch.from_numpy(rates).view(-1, *[1] * (place.dim() - 1))
    for count, gradient in enumerate(steps, 1):
        before = gradient.clone(), tuple(m.clone() for m in moments)
        old = moments
        amount, moments = optimiser.update(gradient, moments, rate, count)
        assert torch.equal(gradient, before[0])
        assert all(torch.equal(a, b) for a, b in zip(old, before[1], strict=True)), "moments are values"
        assert len(moments) == len(optimiser.MOMENTS)
        place = place - amount
    return place


def adam(steps: list[np.ndarray], rates: np.ndarray) -> np.ndarray:
    """Kingma and Ba, Algorithm 1."""
    place, m, v = (np.zeros_like(steps[0]) for _ in range(3))
    for t, g in enumerate(steps, 1):
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g * g
        place = place - rates * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return place


def rmsprop(steps: list[np.ndarray], rates: np.ndarray) -> np.ndarray:
    """ρ = 0.9, ε = 1e-6 inside the root."""
    place, square = np.zeros_like(steps[0]), np.zeros_like(steps[0])
    for g in steps:
        square = 0.9 * square + 0.1 * g * g
        place = place - rates * g / np.sqrt(square + 1e-6)
    return place


@pytest.mark.parametrize("plain", [adam, rmsprop])
def test_several_steps_equal_a_plain_transcription(plain: Callable[..., np.ndarray]) -> None:
    steps = gradients()
    expected = plain([g.numpy() for g in steps], RATES.reshape(-1, 1, 1))
    got = descend(plain.__name__, steps, RATES).numpy()
    moved = expected != 0
    assert np.abs(got[moved] / expected[moved] - 1).max() < 1e-12
    assert (got[~moved] == 0).all()


@every_plugin("optimisers")
def test_a_run_moves_the_same_alone_and_in_a_fleet(name: str) -> None:
    together = descend(name, gradients(), RATES)
    for m in range(M):
        alone = descend(name, gradients(slice(m, m + 1)), RATES[m : m + 1])
        assert torch.equal(alone[0], together[m])


@pytest.mark.parametrize("name", ["adam", "rmsprop"])  # their own: another may warm up, or decay
def test_the_first_step_goes_against_the_gradient_and_no_gradient_moves_nothing(name: str) -> None:
    (gradient, *_) = gradients()
    end = descend(name, [gradient], RATES)
    assert torch.equal(end.sign(), -gradient.sign())
    assert (gradient == 0).any()


@pytest.mark.parametrize("name", ["adam", "rmsprop"])  # their own: another may warm up, or decay
def test_the_amount_is_proportional_to_the_learning_rate(name: str) -> None:
    check_close(descend(name, gradients(), 3 * RATES), 3 * descend(name, gradients(), RATES), 1e-12)


@every_plugin("optimisers")
def test_an_ended_run_keeps_every_bit_while_the_others_go_on(name: str) -> None:
    runs = [tiny(optimiser=name, batches=2, state="carried"), tiny(optimiser=name, batches=6, seed=1)]
    learner = Learner(runs, [tiny_corpus()] * 2, engine_of(CPU, "stacked"))
    held = []
    for _ in range(6):
        learner.step()
        held.append([snapshot(learner, 0), snapshot(learner, 1)])
    check_identical(held[-1][0], held[1][0])
    assert not torch.equal(held[-1][1]["out.b"], held[1][1]["out.b"])


@every_plugin("optimisers")
def test_a_diverged_run_is_frozen_as_before_the_bad_update(name: str) -> None:
    runs = [tiny(optimiser=name, state="carried"), tiny(optimiser=name, seed=1)]
    learner = Learner(runs, [tiny_corpus()] * 2, engine_of(CPU, "stacked"))
    learner.step()
    with torch.no_grad():
        learner.model.parameters["out.b"][0, 0] = torch.nan
    before = snapshot(learner, 0)
    learner.step()
    learner.step()
    look = learner.look()
    assert look.stopped(0) == (2, "the loss was not finite")
    assert look.stopped(1) is None
    after = snapshot(learner, 0)
    for key in before:
        if key not in ("out.b", "progress.stopped"):
            assert torch.equal(after[key], before[key]), key


def a_fleet(optimiser: optimisers.Optimiser, parameter: torch.Tensor, rates: torch.Tensor) -> FleetTensors:
    """M runs of one parameter, none of which has ended."""
    nothing_M = torch.zeros(M, dtype=torch.long)
    return FleetTensors(
        optimiser=optimiser,
        parameters={"W": parameter},
        moments={"W": tuple(torch.zeros_like(parameter) for _ in optimiser.MOMENTS)},
        learning_rate_M=rates,
        precision="float64",
        weights_MK=torch.ones(M, 1, dtype=rates.dtype),
        rows=1,
        number=torch.zeros((), dtype=torch.long),
        last_M=nothing_M + STEPS,
        stopped_M=nothing_M.clone(),
        reason_M=nothing_M.clone(),
        loss_sum_M=torch.zeros(M, dtype=torch.float64),
        loss_count_M=nothing_M.clone(),
        largest_2M=torch.zeros(2, M, dtype=torch.float64),
    )


@every_plugin("optimisers")
def test_the_update_of_the_cpu_equals_the_plain_one_and_leaves_frozen_runs_alone(name: str) -> None:
    optimiser, rates = optimisers.load(name), torch.from_numpy(RATES)
    shape = (M, 7, 11)  # not a whole number of vectors
    place = random_tensor(*shape, seed=1)
    fleet = a_fleet(optimiser, place, rates)
    moments = fleet.moments["W"]
    expected, plain = place.clone(), tuple(m.clone() for m in moments)
    frozen, kind = place[1].clone(), CompiledUpdate if CompiledUpdate.knows(optimiser) else ThreadedUpdate
    update = kind(fleet)
    for count in range(1, STEPS):
        gradient = random_tensor(*shape, seed=10 + count)
        update.begin(count)
        update.change({"W": gradient}, torch.tensor([True, False, True]))
        amount, plain = optimiser.update(gradient, plain, rates.view(-1, 1, 1), count)
        expected -= amount
    assert torch.equal(place[1], frozen)
    assert all((m[1] == 0).all() for m in moments)
    for m in (0, 2):
        check_close(place[m], expected[m], 1e-12)
        for own, other in zip(moments, plain, strict=True):
            check_close(own[m], other[m], 1e-12)


def test_the_compiled_look_finds_the_one_run_whose_gradients_are_not_finite_wherever_that_is() -> None:
    shapes = [(M, 7, 11), (M, 3), (M, 300, 300)]  # less than a vector, no whole number of them, more than a piece
    for dtype in (torch.float32, torch.float64):
        compiled = CompiledUpdate(
            a_fleet(optimisers.load("adam"), torch.zeros(M, 1, dtype=dtype), torch.ones(M, dtype=dtype))
        )
        gradients = [random_tensor(*shape, seed=n).to(dtype) for n, shape in enumerate(shapes)]
        gradients[0][0, 0, 0] = torch.finfo(dtype).max  # large, and finite
        assert compiled.finite(dict(enumerate(gradients))).tolist() == [True] * M
        for gradient in gradients:
            for place in (0, 1, gradient[1].numel() // 2, gradient[1].numel() - 1):
                for value in (torch.nan, torch.inf, -torch.inf):
                    flat = gradient[1].view(-1)
                    before, flat[place] = flat[place].clone(), value
                    assert compiled.finite(dict(enumerate(gradients))).tolist() == [True, False, True]
                    flat[place] = before
