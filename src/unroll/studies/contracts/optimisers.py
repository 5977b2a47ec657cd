"""Rules of optimisers.

Shapes: M runs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from unroll.model import optimisers
from unroll.studies.contracts import cases, require

M, STEPS = 3, 7
RATES = torch.tensor([0.1, 0.001, 0.03], dtype=torch.float64)


def it_names_what_it_remembers(name: str) -> None:
    """MOMENTS are names, all different, perhaps none; `update` gives as many moments as there are names."""
    optimiser = optimisers.load(name)
    names = optimiser.MOMENTS
    require(isinstance(names, tuple) and len(set(names)) == len(names), f"MOMENTS is {names!r}.")
    require(all(isinstance(n, str) and n.isidentifier() for n in names), f"MOMENTS is {names!r}.")
    _descend(name, _gradients(), RATES)


def it_changes_nothing_in_place(name: str) -> None:
    """`update` leaves gradient and moments as they were: a run that has ended keeps them."""
    optimiser, gradient = optimisers.load(name), _gradients()[1]
    moments = tuple(cases.tensor(M, 3, 4, seed=50 + n).abs() for n in range(len(optimiser.MOMENTS)))
    before = [x.clone() for x in (gradient, *moments)]
    optimiser.update(gradient, moments, RATES.view(-1, 1, 1), 2)
    same = all(torch.equal(a, b) for a, b in zip(before, (gradient, *moments), strict=True))
    require(same, "update changed what it was given.")


def a_run_moves_the_same_alone_and_in_a_fleet(name: str) -> None:
    """Everything is element by element: each of M runs moves as it does alone, to the last bit."""
    together = _descend(name, _gradients(), RATES)
    for m in range(M):
        alone = _descend(name, [g[m : m + 1] for g in _gradients()], RATES[m : m + 1])
        require(torch.equal(alone[0], together[m]), f"Run {m} moved otherwise among others.")


def a_weight_whose_gradient_is_always_0_stays(name: str) -> None:
    """Where no gradient ever was, nothing moves: the padding of a vocabulary must stay 0."""
    still = _descend(name, [torch.zeros(M, 3, 4, dtype=torch.float64)] * STEPS, RATES)
    require(not still.any(), "A weight without a gradient moved.")


def the_count_may_be_a_number_on_the_device(name: str) -> None:
    """`count` may be a float64 tensor, as it is where a step is recorded, and gives the same."""
    by_number = _descend(name, _gradients(), RATES)
    by_tensor = _descend(name, _gradients(), RATES, on_device=True)
    cases.require_close(by_tensor, by_number, "What is reached with a tensor for the count", 1e-12)


def it_goes_downhill(name: str) -> None:
    """Two hundred steps on x² bring x nearer to 0."""
    optimiser, x = optimisers.load(name), torch.full((1, 1), 3.0, dtype=torch.float64)
    moments = tuple(torch.zeros_like(x) for _ in optimiser.MOMENTS)
    for count in range(1, 201):
        amount, moments = optimiser.update(2 * x, moments, torch.full((1, 1), 0.01, dtype=torch.float64), count)
        x = x - amount
    require(abs(float(x)) < 3.0 and math.isfinite(float(x)), f"From 3 it came to {float(x):.4g}.")


def it_trains_and_goes_on_from_a_snapshot(name: str) -> None:
    """Training that goes on from a snapshot is training that never stopped, to the last bit."""
    one, other = (cases.learner(cases.experiment(optimiser=name), kernel="stacked") for _ in range(2))
    for _ in range(2):
        one.step()
    other.restore(0, {key: value.clone() for key, value in one.snapshot(0).items()})
    other.count = one.count
    for _ in range(2):
        one.step()
        other.step()
    for key, value in one.snapshot(0).items():
        require(bool(value.isfinite().all()), f"{key} is not finite.")
        require(torch.equal(value, other.snapshot(0)[key]), f"{key} is another after going on.")


def _gradients() -> list[Tensor]:
    """Several steps of gradients, large and small."""
    return [cases.tensor(M, 3, 4, seed=n, scale=10.0 ** (n - 3)) for n in range(STEPS)]


def _descend(name: str, steps: list[Tensor], rates: Tensor, on_device: bool = False) -> Tensor:
    """Where a parameter that begins at 0 ends."""
    optimiser, end = optimisers.load(name), torch.zeros_like(steps[0])
    moments = tuple(torch.zeros_like(end) for _ in optimiser.MOMENTS)
    for number, gradient in enumerate(steps, 1):
        count = torch.tensor(number, dtype=torch.float64) if on_device else number
        amount, moments = optimiser.update(gradient, moments, rates.view(-1, 1, 1), count)
        require(amount.shape == gradient.shape, f"The amount is {list(amount.shape)}; it must be {list(end.shape)}.")
        require(len(moments) == len(optimiser.MOMENTS), f"update gave {len(moments)} moments.")
        end = end - amount
    return end
