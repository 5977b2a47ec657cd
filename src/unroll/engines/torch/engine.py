"""The plain engine: everything in torch's own operations, for any cell, optimiser and device."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from unroll.engines import kernels
from unroll.engines.torch.stepper import Rows
from unroll.engines.torch.update import PlainUpdate
from unroll.experiment.experiment import Experiment
from unroll.model import head as heads
from unroll.model.dropout import Dropout
from unroll.model.engine import Engine, FleetTensors, Replay, Step, Update
from unroll.model.head import Head
from unroll.model.model import Model
from unroll.model.network import Network, States
from unroll.model.steppers import Drawer, Stepper

CHUNK_BYTES = 2**21  # of one tensor while a text is read in chunks; a kernel may hold a dozen tensors as large


class TorchEngine(Engine):
    """Plain operations on one device, with one kernel for the recurrent layers."""

    def __init__(self, device: torch.device, kernel: str) -> None:
        self.device, self.kernel = device, kernel
        self._kernel = kernels.load(kernel)

    def refusal(self, network: Network) -> str | None:
        """The kernel's reason why it cannot compute these layers; None if it can."""
        return self._kernel.supports(network, self.device)

    def unknown(self, experiment: Experiment) -> list[str]:
        """None: everything here is plain."""
        return []

    def recurrence(self, network: Network, ids_MTB: Tensor, first: States, at_M: Tensor) -> tuple[Tensor, States]:
        """Run the kernel over all layers and all time steps."""
        return self._kernel.run(network, ids_MTB, first, at_M)

    def last_steps(
        self, network: Network, ids_MTB: Tensor, first: States, at_M: Tensor, K: int
    ) -> tuple[Tensor, States]:
        """Do the same, but return h of the last K steps alone."""
        return kernels.run_last(self._kernel, network, ids_MTB, first, at_M, K)

    def nll(self, head: Head, h_MNH: Tensor, targets_MN: Tensor, precision: str, dropout: Dropout) -> Tensor:
        """The negative log-likelihood of each target, from the logits of all rows."""
        return heads.nll(head.logits(h_MNH, precision, self.product, dropout), targets_MN)

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """A batched product whose sums are not rounded: the product of two bfloat16 numbers is exact in float32."""
        return torch.bmm(a.float(), b.float()) if a.dtype == torch.bfloat16 else torch.bmm(a, b)

    def update(self, fleet: FleetTensors) -> Update:
        """The plain update."""
        return PlainUpdate(fleet)

    def replay(self) -> Replay:
        """Compute every step from its batch; record nothing."""
        return PlainReplay()

    def rows(self, model: Model, k2: int, procedure: str, capacity: int) -> Stepper:
        """Rows that read and predict, one after another."""
        return Rows(model, k2, procedure)

    def draws(self, model: Model, k2: int, procedure: str) -> Drawer | None:
        """None: the host chooses every token."""
        return None

    def reading(self, precision: str) -> AbstractContextManager[None]:
        """A context that changes nothing."""
        return nullcontext()

    @property
    def chunk_bytes(self) -> int:
        """The most bytes of one tensor while a text is read in chunks."""
        return CHUNK_BYTES

    def steps_at_once(self, k2: int) -> int:
        """The number of window steps that an evaluation reads in one call: all."""
        return k2

    @property
    def looks_cost_nothing(self) -> bool:
        """Whether the host sees a tensor's numbers without waiting for the device."""
        return self.device.type == "cpu"

    def wait(self) -> None:
        """Do nothing: the plain engine does not know how a device finishes. Its next number is waited for."""


class PlainReplay(Replay):
    """Computes every step anew."""

    def run(self, step: Step, count: int) -> None:
        """Train on batch `count`."""
        step.number.fill_(count)
        step.update.begin(count + 1)
        step.advance(step.batches[count])
