"""The truth: everything in torch's own operations, for any cell, optimiser and device."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from unroll.engines import kernels
from unroll.engines.torch.one_by_one import Rows
from unroll.engines.torch.update import PlainUpdate
from unroll.experiment.experiment import Experiment
from unroll.model import head as heads
from unroll.model.dropout import Dropout
from unroll.model.engine import Engine, FleetTensors, Replay, Step, Update
from unroll.model.head import Head
from unroll.model.model import Model
from unroll.model.network import Network, States
from unroll.model.steppers import Drawer, Stepper

CHUNK_BYTES = 2**21  # of one tensor where a text is read in chunks; a kernel may hold a dozen as large


class TorchEngine(Engine):
    """Plain operations on one device, with one kernel for the recurrent layers."""

    def __init__(self, device: torch.device, kernel: str) -> None:
        self.device, self.kernel = device, kernel
        self._kernel = kernels.load(kernel)

    def refusal(self, network: Network) -> str | None:
        """Why the kernel cannot compute these layers, in its own words; None where it can."""
        return self._kernel.supports(network, self.device)

    def unknown(self, experiment: Experiment) -> list[str]:
        """None: everything here is plain."""
        return []

    def recurrence(self, network: Network, ids_MTB: Tensor, first: States, at_M: Tensor) -> tuple[Tensor, States]:
        """All layers over all time steps, by the kernel."""
        return self._kernel.run(network, ids_MTB, first, at_M)

    def last_steps(
        self, network: Network, ids_MTB: Tensor, first: States, at_M: Tensor, K: int
    ) -> tuple[Tensor, States]:
        """The same, but h of the last K steps alone."""
        return kernels.run_last(self._kernel, network, ids_MTB, first, at_M, K)

    def nll(self, head: Head, h_MNH: Tensor, targets_MN: Tensor, precision: str, dropout: Dropout) -> Tensor:
        """The negative log-likelihood of each target, from the logits of all."""
        return heads.nll(head.logits(h_MNH, precision, self.product, dropout), targets_MN)

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """A batched product whose sums are not rounded: products of two bfloat16 are exact in float32."""
        return torch.bmm(a.float(), b.float()) if a.dtype == torch.bfloat16 else torch.bmm(a, b)

    def update(self, fleet: FleetTensors) -> Update:
        """The plain update."""
        return PlainUpdate(fleet)

    def replay(self) -> Replay:
        """No recording: every step is computed from its batch."""
        return PlainReplay()

    def rows(self, model: Model, k2: int, procedure: str, capacity: int) -> Stepper:
        """Rows that read and predict, one after the other."""
        return Rows(model, k2, procedure)

    def draws(self, model: Model, k2: int, procedure: str) -> Drawer | None:
        """None: the host chooses every token."""
        return None

    def reading(self, precision: str) -> AbstractContextManager[None]:
        """Nothing surrounds what is computed without gradients."""
        return nullcontext()

    @property
    def chunk_bytes(self) -> int:
        """How much one tensor may take where a text is read in chunks."""
        return CHUNK_BYTES

    def steps_at_once(self, k2: int) -> int:
        """How many steps of its windows an evaluation reads in one call: all."""
        return k2

    @property
    def looks_cost_nothing(self) -> bool:
        """Whether the host sees a tensor's numbers without waiting for the device."""
        return self.device.type == "cpu"

    def wait(self) -> None:
        """Nothing is known here of how a device finishes; its next number is waited for."""


class PlainReplay(Replay):
    """Every step computed anew."""

    def run(self, step: Step, count: int) -> None:
        """Train on batch `count`."""
        step.number.fill_(count)
        step.update.begin(count + 1)
        step.advance(step.batches[count])
