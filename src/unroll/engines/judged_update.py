"""Judges which runs take an update, in torch's own operations. The plain update and the CPU's share all of it.

The GPU's update shares its gradients.

Shapes: M runs, K scored positions, B rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from unroll.model import gradients as norms
from unroll.model.engine import FleetTensors, Update


class JudgedUpdate(Update):
    """An update that looks at losses and gradients before it changes anything."""

    def __init__(self, fleet: FleetTensors) -> None:
        self.fleet = fleet
        self._d_nll_MKB = loss_gradient(fleet)
        self._weight_M = fleet.weights_MK.double().sum(-1)

    def computing(self) -> AbstractContextManager[None]:
        """A context that changes nothing."""
        return nullcontext()

    def judged(self, nll_MKB: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return which runs take this update, and every parameter's gradient; count the losses."""
        weighted_MKB = nll_MKB * self._d_nll_MKB
        loss_M = weighted_MKB.detach().sum((1, 2))
        # The gradient of one number: given a gradient, torch imports modules for half a second that nothing here needs.
        gradients = gradients_of(self.fleet.parameters, weighted_MKB.sum())
        with torch.no_grad():
            alive_M = self._alive(loss_M, gradients)
            loss_M = loss_M / self._weight_M
            self.fleet.loss_sum_M.add_(torch.where(alive_M, loss_M, 0.0))
            self.fleet.loss_count_M.add_(alive_M)
            self._keep_largest(loss_M, gradients, alive_M)
        return alive_M, gradients

    def _keep_largest(self, loss_M: Tensor, gradients: Mapping[str, Tensor], alive_M: Tensor) -> None:
        """Keep the largest loss and gradient norm. A batch that ends a run is in none of them."""
        largest_2M = self.fleet.largest_2M
        seen_2M = torch.stack((loss_M.double(), self.norm_M(gradients).double()))
        largest_2M.copy_(torch.maximum(largest_2M, torch.where(alive_M, seen_2M, 0.0)))

    def _alive(self, loss_M: Tensor, gradients: Mapping[str, Tensor]) -> Tensor:
        """Select the runs that have not ended and have a finite loss and finite gradients."""
        fleet = self.fleet
        going_M = (fleet.stopped_M == 0) & (fleet.last_M > fleet.number)
        finite_M = loss_M.abs() < torch.inf
        reason_M = torch.where(finite_M, torch.where(self.finite(gradients), 0, 2), 1)
        bad_M = going_M & (reason_M > 0)
        fleet.stopped_M.copy_(torch.where(bad_M, fleet.number + 1, fleet.stopped_M))
        fleet.reason_M.copy_(torch.where(bad_M, reason_M, fleet.reason_M))
        return going_M & ~bad_M

    def norm_M(self, gradients: Mapping[str, Tensor]) -> Tensor:
        """The norm of all gradients of each run, before clipping by norm: [M].

        It is in float64, so that padding reaches no digit that is shown.
        """
        return norms.norm_M(gradients, torch.float64)

    def scale_M(self, gradients: Mapping[str, Tensor]) -> Tensor | None:
        """What clipping by norm multiplies each run's gradients by: [M]; None where no run has a limit."""
        limit = self.fleet.norm_limit
        return None if limit is None else norms.scale_M(gradients, limit)

    def finite(self, gradients: Mapping[str, Tensor]) -> Tensor:
        """Whether every gradient of each run is finite: [M]."""
        # The extremes are finite only if every element is: a NaN is larger and smaller than everything here.
        flat = [g.flatten(1) for g in gradients.values()]
        return torch.isfinite(torch.stack([extreme for g in flat for extreme in (g.amax(1), g.amin(1))])).all(0)


def loss_gradient(fleet: FleetTensors) -> Tensor:
    """The gradient of a fleet's loss with respect to each NLL, [M, K, B]: the loss is their sum with fixed weights."""
    weight_MK = fleet.weights_MK * (1 / fleet.rows)
    return weight_MK.unsqueeze(-1).repeat(1, 1, fleet.rows)


def gradients_of(
    parameters: Mapping[str, Tensor],
    loss: Tensor,
    arriving: Tensor | None = None,
    finish: Callable[[], None] = lambda: None,
) -> dict[str, Tensor]:
    """Every parameter's gradient. `finish` waits for work that the backward pass began on another stream."""
    # A parameter that a cell does not use, as minimal recurrent cells leave out h·W_h, has a gradient of 0.
    gradients = torch.autograd.grad(loss, list(parameters.values()), arriving, allow_unused=True)
    finish()
    return {
        name: torch.zeros_like(parameters[name]) if gradient is None else gradient.contiguous()
        for name, gradient in zip(parameters, gradients, strict=True)
    }


def per_run(value_M: Tensor, tensor: Tensor) -> Tensor:
    """Reshape a value for each run, so that it broadcasts over a tensor."""
    return value_M.view(-1, *[1] * (tensor.dim() - 1))


def change(
    fleet: FleetTensors,
    parameter: Tensor,
    gradient: Tensor,
    moments: tuple[Tensor, ...],
    alive_M: Tensor,
    count: int | Tensor,
    all_alive: bool = False,
    scale_M: Tensor | None = None,
) -> None:
    """Change one parameter and its moments in place, for the runs that are alive.

    `scale_M` is what clipping by norm multiplies each run's gradients by.
    """
    rate = per_run(fleet.learning_rate_M, gradient)
    alive = per_run(alive_M, gradient)
    if scale_M is not None:
        gradient = gradient * per_run(scale_M, gradient)
    decay = fleet.decay
    if decay is not None and not decay.decoupled:
        gradient = torch.addcmul(gradient, parameter, per_run(decay.share_M, gradient))
    amount, new_moments = fleet.optimiser.update(gradient, moments, rate, count)
    if decay is not None and decay.decoupled:
        kept = 1 - rate * per_run(decay.share_M, gradient)
        parameter.mul_(kept if all_alive else torch.where(alive, kept, 1.0))
    parameter.sub_(amount if all_alive else torch.where(alive, amount, 0.0))
    for old, new in zip(moments, new_moments, strict=True):
        old.copy_(new if all_alive else torch.where(alive, new, old))
