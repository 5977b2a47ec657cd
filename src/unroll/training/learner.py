"""One training step of M runs: Algorithms 1, 2 and 3 of the paper, which differ only in weights and in where a state
is from.

Shapes: M runs, B rows, K scored positions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unroll.corpus.batches import Batch, Batches
from unroll.corpus.corpus import Corpus
from unroll.experiment.experiment import Experiment
from unroll.model import optimisers
from unroll.model.continued import continued
from unroll.model.engine import Engine, FleetTensors
from unroll.model.gradients import Decay, NormLimit
from unroll.model.model import Model
from unroll.model.network import States
from unroll.training.learning_rates import LearningRates

REASONS = {1: "the loss was not finite", 2: "a gradient was not finite"}


LARGEST = "progress.largest"  # of a checkpoint, which older versions did not have
DIGITS = 6  # of the largest loss and norm: further ones depend on how they are summed


class Since(NamedTuple):
    """What the batches since the last evaluation were like; None where there were none, or it is not known."""

    loss: float | None  # nats per token, their mean
    largest_loss: float | None  # of one batch
    largest_gradient_norm: float | None  # of all gradients of one batch, before clipping by norm


class Look(NamedTuple):
    """How all runs stand, copied from the device at once."""

    stopped_M: NDArray[np.float64]
    reason_M: NDArray[np.float64]
    loss_sum_M: NDArray[np.float64]
    loss_count_M: NDArray[np.float64]
    largest_loss_M: NDArray[np.float64]
    largest_norm_M: NDArray[np.float64]

    def stopped(self, m: int) -> tuple[int, str] | None:
        """The batch at which a run diverged, and why; None if it did not."""
        batch = int(self.stopped_M[m])
        return (batch, REASONS[int(self.reason_M[m])]) if batch else None

    def loss(self, m: int) -> float | None:
        """Nats per token, the mean over the batches since the loss was last taken; None if there were none."""
        count = int(self.loss_count_M[m])
        return float(self.loss_sum_M[m]) / count if count else None

    def since(self, m: int) -> Since:
        """The loss with the largest loss and gradient norm of the same batches."""
        loss = self.loss(m)
        if loss is None:
            return Since(None, None, None)
        return Since(loss, _known(self.largest_loss_M[m]), _known(self.largest_norm_M[m]))


def _known(value: float) -> float | None:
    """A number; none where it is too large for one, or where a checkpoint of before it was kept said nothing."""
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


class Learner:
    """The weights, optimiser and states of M runs, advanced together one batch at a time."""

    def __init__(self, experiments: Sequence[Experiment], corpora: Sequence[Corpus], engine: Engine) -> None:
        self.experiments, self.engine = tuple(experiments), engine
        self.batches = Batches(experiments, corpora, engine.device)
        self.model = Model.initial(experiments, [c.unique for c in corpora], engine)
        self.optimiser = continued(optimisers.load(experiments[0].optimiser), experiments[0].updates_before)
        self.moments = {
            name: tuple(torch.zeros_like(p, requires_grad=False) for _ in self.optimiser.MOMENTS)
            for name, p in self.model.parameters.items()
        }
        self.carried = self.model.no_state()
        self.count = 0  # batches done; on the device the same number drives a recorded step
        self.counters = torch.zeros(2, dtype=torch.long, device=engine.device)  # that number, and one for the engine
        self.number = self.counters[0]
        self._carries_M = self._per_run([e.scheme.carries for e in experiments], torch.bool)
        self._carry = any(e.scheme.carries for e in experiments)
        self.fleet = FleetTensors(
            optimiser=self.optimiser,
            parameters=self.model.parameters,
            moments=self.moments,
            learning_rate_M=self._per_run([e.learning_rate for e in experiments], self.model.dtype),
            precision=experiments[0].precision,
            weights_MK=self._per_run([e.scheme.weights for e in experiments], self.model.dtype),
            rows=experiments[0].rows,
            number=self.number,
            last_M=self._per_run([e.batches for e in experiments], torch.long),
            # A run that diverges is frozen on the device: weights, optimiser and state stay as before the bad update.
            stopped_M=self._per_run([0] * len(experiments), torch.long),
            reason_M=self._per_run([0] * len(experiments), torch.long),
            loss_sum_M=self._per_run([0.0] * len(experiments), torch.float64),
            loss_count_M=self._per_run([0] * len(experiments), torch.long),
            largest_2M=self._per_run([[0.0] * len(experiments)] * 2, torch.float64),
            decay=self._decay(),
            norm_limit=self._norm_limit(),
        )
        self.rates = LearningRates(experiments, self.fleet.learning_rate_M)
        self.update = engine.update(self.fleet)
        self._replay = engine.replay()

    def _per_run(self, values: Sequence[object], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=self.engine.device)

    def _decay(self) -> Decay | None:
        shares = [e.weight_decay for e in self.experiments]
        decoupled = self.experiments[0].decay == "decoupled"
        return Decay(self._per_run(shares, self.model.dtype), decoupled) if any(shares) else None

    def _norm_limit(self) -> NormLimit | None:
        limits = [e.clip_norm for e in self.experiments]
        if all(limit == math.inf for limit in limits):
            return None
        return NormLimit(self._per_run(limits, self.model.dtype), [*map(self.model.shapes, range(len(limits)))])

    def prepare(self) -> None:
        """Make what is made only once, machine code and a recorded step, so that no batch has to wait for it."""
        self._replay.prepare(self, self.count)

    def step(self) -> None:
        """Train on one batch."""
        if self.rates.move:
            self.rates.set_for(self.count + 1)
        self._replay.run(self, self.count)
        self.count += 1

    def advance(self, batch: Batch) -> None:
        """NLLs, their gradients, the update, and the states that the next windows start from."""
        with self.update.computing():
            nll_MBK, state = self.model.nll(batch, self.carried)
            alive_M, gradients = self.update.judged(nll_MBK.transpose(1, 2))
        with torch.no_grad():
            self.update.change(gradients, alive_M)
            if self._carry:
                self._carry_on(state, alive_M & self._carries_M)

    def _carry_on(self, state: States, moves_M: Tensor) -> None:
        for old_layer, new_layer in zip(self.carried, state, strict=True):
            for old, new in zip(old_layer, new_layer, strict=True):
                old.copy_(torch.where(moves_M.view(-1, 1, 1), new, old))

    def changing(self) -> list[Tensor]:
        """Every tensor that a step changes."""
        parameters = [p.detach() for p in self.model.parameters.values()]
        moments = [m for of_parameter in self.moments.values() for m in of_parameter]
        carried = [s for state in self.carried for s in state]
        return [*parameters, *moments, *carried, *self.fleet.progress, self.fleet.largest_2M]

    def look(self) -> Look:
        """How all runs stand: one copy from the device."""
        progress = [tensor_M.double() for tensor_M in (*self.fleet.progress, *self.fleet.largest_2M)]
        return Look(*torch.stack(progress).cpu().numpy())

    def take_losses(self, runs: Sequence[int]) -> list[float | None]:
        """The losses of these runs; their means begin anew."""
        return [since.loss for since in self.take(runs)]

    def take(self, runs: Sequence[int]) -> list[Since]:
        """What the batches of these runs were like; means and maxima begin anew."""
        look = self.look()
        slots = torch.tensor(runs, device=self.engine.device)
        self.fleet.loss_sum_M[slots] = 0.0
        self.fleet.loss_count_M[slots] = 0
        self.fleet.largest_2M[:, slots] = 0.0
        return [look.since(m) for m in runs]

    def end(self, m: int, batch: int | None = None) -> None:
        """Train a run no further than it is, or than to a batch: its slot stays, masked."""
        self.fleet.last_M[m] = self.count if batch is None else batch

    def weights(self, m: int) -> dict[str, Tensor]:
        """What a finished run stores: its parameters and, where states are carried, the last of them."""
        carried = self._carried(m) if self.experiments[m].scheme.carries else {}
        return self.model.values(m) | carried

    def snapshot(self, m: int) -> dict[str, Tensor]:
        """All that a run needs to go on exactly, without padding: one layout, whatever the kernel or the fleet."""
        held = self.model.values(m) | self._carried(m)
        for n, moment in enumerate(self.optimiser.MOMENTS):
            kept = self.model.values(m, {name: moments[n] for name, moments in self.moments.items()})
            held |= {f"optimiser.{moment}.{name}": value for name, value in kept.items()}
        held["progress.loss_sum"] = self.fleet.loss_sum_M[m].cpu().reshape(1)
        held["progress.loss_count"] = self.fleet.loss_count_M[m].cpu().reshape(1)
        held[LARGEST] = self.fleet.largest_2M[:, m].cpu().contiguous()
        held["progress.stopped"] = torch.stack((self.fleet.stopped_M[m], self.fleet.reason_M[m])).cpu()
        return held

    def restore(self, m: int, held: Mapping[str, Tensor]) -> None:
        """Put a snapshot back into its slot."""
        with torch.no_grad():
            for name, value in self.model.values(m).items():
                slot: Any = (m, *(slice(n) for n in value.shape))  # without the padding
                self.model.parameters[name][slot] = held[name].to(self.model.device)
                for moment, over_runs in zip(self.optimiser.MOMENTS, self.moments[name], strict=True):
                    over_runs[slot] = held[f"optimiser.{moment}.{name}"].to(self.model.device)
            for layer, state in enumerate(self.carried):
                for s, name in zip(state, self.model.cell.STATES, strict=True):
                    s[m] = held[f"carried.{layer}.{name}"].to(self.model.device)
            self.fleet.loss_sum_M[m] = held["progress.loss_sum"][0]
            self.fleet.loss_count_M[m] = held["progress.loss_count"][0]
            self.fleet.largest_2M[:, m] = held[LARGEST].to(self.model.device) if LARGEST in held else math.nan
            self.fleet.stopped_M[m], self.fleet.reason_M[m] = held["progress.stopped"].to(self.model.device)

    def _carried(self, m: int) -> dict[str, Tensor]:
        return {
            f"carried.{layer}.{name}": s[m].cpu().contiguous()
            for layer, state in enumerate(self.carried)
            for name, s in zip(self.model.cell.STATES, state, strict=True)
        }
