"""The interface of every backend, through which the model, the learner and the sampler compute.

One engine is chosen once, for a device and a kernel (`engines/choice.py`), and computes everything. `engines/torch` is
the truth: plain, for any cell. Every other engine equals it, in outputs and all gradients, and asks it for what it does
not do itself.

Shapes: M runs, T time, B rows, K scored positions, N = K·B, H hidden.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from unroll.corpus.batches import Batch, Batches
from unroll.experiment.experiment import Experiment
from unroll.model.dropout import Dropout
from unroll.model.gradients import Decay, NormLimit
from unroll.model.head import Head
from unroll.model.network import Network, States
from unroll.model.optimisers import Optimiser

if TYPE_CHECKING:  # a model holds its engine, and an engine reads models
    from unroll.model.model import Model
    from unroll.model.steppers import Drawer, Stepper


@dataclass(frozen=True)
class FleetTensors:
    """The tensors that a training step changes, and those that it is judged by. All carry the run axis."""

    optimiser: Optimiser
    parameters: Mapping[str, Tensor]
    moments: Mapping[str, tuple[Tensor, ...]]
    learning_rate_M: Tensor
    precision: str
    weights_MK: Tensor  # the loss's weights
    rows: int
    number: Tensor  # one number on the device: how many batches are done
    last_M: Tensor  # how many batches each run asks for
    stopped_M: Tensor  # the batch that failed, counted from 1; 0: none
    reason_M: Tensor  # 1: the loss was not finite; 2: a gradient was not
    loss_sum_M: Tensor  # the sum of losses since the last evaluation
    loss_count_M: Tensor
    largest_2M: Tensor  # since the last evaluation: the largest loss of a batch, and the largest gradient norm
    decay: Decay | None = None  # how weights decay; None where those of no run do
    norm_limit: NormLimit | None = None  # of all gradients of a run; None where no run has one

    @property
    def progress(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The batch that stopped each run, the reason, and the sum and count of its losses."""
        return self.stopped_M, self.reason_M, self.loss_sum_M, self.loss_count_M


class Update(ABC):
    """Computes gradients, judges which runs take them, and changes the weights."""

    def begin(self, count: int) -> None:
        """Begin the update with this number, counted from 1."""
        return

    @abstractmethod
    def computing(self) -> AbstractContextManager[None]:
        """The context in which NLLs and gradients are computed."""

    @abstractmethod
    def judged(self, nll_MKB: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return which runs take this update, [M], and every parameter's gradient; count the losses.

        A run takes the update if it has not ended, and its loss and its gradients are finite.
        """

    @abstractmethod
    def change(self, gradients: Mapping[str, Tensor], alive_M: Tensor) -> None:
        """Change weights and moments of the runs that are alive."""


class Step(Protocol):
    """A training step that can be recorded. It depends on tensors alone, never on a value that Python looked at."""

    batches: Batches
    update: Update
    counters: Tensor  # the number of the next batch, and a second number that the engine may use

    @property
    def number(self) -> Tensor:
        """The number of the next batch, on the device."""

    def advance(self, batch: Batch) -> None:
        """Train on this batch."""

    def changing(self) -> list[Tensor]:
        """Every tensor that a step changes."""


class Replay(ABC):
    """Repeats a training step. It holds no step: a step's owner holds it."""

    def prepare(self, step: Step, count: int) -> None:
        """Do in advance what is done only once, so that batch `count` does not wait for it."""
        return

    @abstractmethod
    def run(self, step: Step, count: int) -> None:
        """Train on batch `count`, which comes after the one before."""


class Engine(ABC):
    """One backend on one device, with one kernel for the recurrent layers."""

    device: torch.device
    kernel: str

    @abstractmethod
    def refusal(self, network: Network) -> str | None:
        """The reason why these layers cannot be computed here; None if they can."""

    @abstractmethod
    def unknown(self, experiment: Experiment) -> list[str]:
        """The choices of an experiment that have no fast code here, in words: they are computed plainly."""

    @abstractmethod
    def recurrence(self, network: Network, ids_MTB: Tensor, first: States, at_M: Tensor) -> tuple[Tensor, States]:
        """Compute all layers over time: the top layer's h [M, T, B, H], and every layer's state after step at_M."""

    @abstractmethod
    def last_steps(
        self, network: Network, ids_MTB: Tensor, first: States, at_M: Tensor, K: int
    ) -> tuple[Tensor, States]:
        """Do the same, but return h of the last K steps alone; first states are [M, B, H] or [M, 1, H]."""

    @abstractmethod
    def nll(self, head: Head, h_MNH: Tensor, targets_MN: Tensor, precision: str, dropout: Dropout) -> Tensor:
        """The negative log-likelihood of each target: [M, N]."""

    @abstractmethod
    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """A batched product of factors that may have fewer bits; its sums are not rounded."""

    @abstractmethod
    def update(self, fleet: FleetTensors) -> Update:
        """The update of these tensors."""

    @abstractmethod
    def replay(self) -> Replay:
        """The replay of steps, which records them if that pays."""

    @abstractmethod
    def rows(self, model: Model, k2: int, procedure: str, capacity: int) -> Stepper:
        """The fastest rows that read tokens and predict, for a model of one run."""

    @abstractmethod
    def draws(self, model: Model, k2: int, procedure: str) -> Drawer | None:
        """Rows that draw tokens on the device; None if the device has none."""

    @abstractmethod
    def reading(self, precision: str) -> AbstractContextManager[None]:
        """The context of everything that is computed without gradients."""

    @property
    @abstractmethod
    def chunk_bytes(self) -> int:
        """The most bytes of one tensor while a text is read in chunks. Free memory never changes it."""

    @abstractmethod
    def steps_at_once(self, k2: int) -> int:
        """The number of window steps that an evaluation reads in one call."""

    @property
    @abstractmethod
    def looks_cost_nothing(self) -> bool:
        """Whether the host sees a tensor's numbers without waiting for the device."""

    @abstractmethod
    def wait(self) -> None:
        """Wait until the device has finished, so that a clock read after this means something."""
