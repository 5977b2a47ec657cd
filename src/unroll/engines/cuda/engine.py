"""The engine of an NVIDIA GPU: CUDA C++ for layers, head, update and batches, and steps recorded as graphs."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from unroll.engines import kernels
from unroll.engines.cuda import cells as cuda_cells
from unroll.engines.cuda import head as cuda_head
from unroll.engines.cuda import products
from unroll.engines.cuda.dropout_masks import Dropout as Masks
from unroll.engines.cuda.replay import GraphReplay
from unroll.engines.cuda.steppers import device_steps
from unroll.engines.cuda.update import FusedUpdate, UnfusedUpdate
from unroll.experiment import spelled
from unroll.experiment.experiment import Experiment
from unroll.model import cells, optimisers
from unroll.model.dropout import Dropout
from unroll.model.engine import Engine, FleetTensors, Replay, Update
from unroll.model.head import LEAK, Head
from unroll.model.model import Model
from unroll.model.network import Network, States
from unroll.model.steppers import Drawer, Stepper

CHUNKS = 128  # one tensor may take the memory's 128th part while a text is read in chunks


class CudaEngine(Engine):
    """Computes with one kernel for the recurrent layers; `plain` does what nothing here does faster."""

    def __init__(self, device: torch.device, kernel: str, plain: Engine) -> None:
        self.device, self.kernel, self._plain = device, kernel, plain
        self._kernel = kernels.load(kernel)

    def refusal(self, network: Network) -> str | None:
        """The kernel's reason why it cannot compute these layers; None if it can."""
        return self._kernel.supports(network, self.device)

    def unknown(self, experiment: Experiment) -> list[str]:
        """What has no CUDA code here; a cell may have it for training alone, or for sampling alone."""
        cell = cells.load(experiment.cell, experiment.peepholes)
        trains, samples = cuda_cells.number(cell) is not None, device_steps.knows(cell)
        only = " in sampling" if trains else " in training" if samples else ""
        known = {
            f"the cell {experiment.cell}{only}": trains and samples,
            f"the optimiser {spelled.name_of(experiment.optimiser)}": FusedUpdate.knows(
                optimisers.load(experiment.optimiser)
            ),
            "weight decay": not experiment.weight_decay,
            "clipping by norm": experiment.clip_norm == math.inf,
            f"the sampling procedure {experiment.scheme.sample}": experiment.scheme.sample in device_steps.PROCEDURES,
            "softmax directly on h (dense 0)": experiment.dense > 0,
        }
        return [words for words, code in known.items() if not code]

    def recurrence(self, network: Network, ids_MTB: Tensor, first: States, at_M: Tensor) -> tuple[Tensor, States]:
        """Run the kernel over all layers and all time steps."""
        return self._kernel.run(network, ids_MTB, first, at_M)

    def last_steps(
        self, network: Network, ids_MTB: Tensor, first: States, at_M: Tensor, K: int
    ) -> tuple[Tensor, States]:
        """Do the same, but return h of the last K steps alone."""
        return kernels.run_last(self._kernel, network, ids_MTB, first, at_M, K)

    def nll(self, head: Head, h_MNH: Tensor, targets_MN: Tensor, precision: str, dropout: Dropout) -> Tensor:
        """The negative log-likelihood of each target; the plain head computes it in float64, or without dense layer."""
        if head.dense is None or head.out.W.dtype != torch.float32:
            return self._plain.nll(head, h_MNH, targets_MN, precision, dropout)
        masks = Masks(dropout.rates_M, dropout.keys_M2, dropout.batch, dropout.drops)
        return cuda_head.nll(h_MNH, *head.dense, *head.out, targets_MN, masks, precision, LEAK)

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """A batched product whose sums are not rounded."""
        return products.product(a, b)

    def update(self, fleet: FleetTensors) -> Update:
        """The fused update, if it knows all that is asked; if not, and in float64, the plain update."""
        known = FusedUpdate.knows(fleet.optimiser) and fleet.decay is None and fleet.norm_limit is None
        if fleet.learning_rate_M.dtype == torch.float32 and known:
            return FusedUpdate(fleet)
        return UnfusedUpdate(self._plain.update(fleet), fleet.precision)

    def replay(self) -> Replay:
        """Record steps as graphs and replay them."""
        return GraphReplay()

    def rows(self, model: Model, k2: int, procedure: str, capacity: int) -> Stepper:
        """Rows that read many tokens a launch, if the model's cell is known; else plain rows."""
        if device_steps.supports(model, procedure):
            return device_steps.prepare(model, k2, procedure)
        return self._plain.rows(model, k2, procedure, capacity)

    def draws(self, model: Model, k2: int, procedure: str) -> Drawer | None:
        """Rows that draw tokens on the device, if the model's cell is known; else None."""
        return device_steps.drawer(model, k2, procedure) if device_steps.supports(model, procedure) else None

    def reading(self, precision: str) -> AbstractContextManager[None]:
        """Multiply in the precision's numbers within this block."""
        return products.multiplying(precision)

    @property
    def chunk_bytes(self) -> int:
        """The most bytes of one tensor while a text is read in chunks; a GPU needs many rows to be busy."""
        return int(torch.cuda.get_device_properties(self.device).total_memory) // CHUNKS

    def steps_at_once(self, k2: int) -> int:
        """The number of window steps that an evaluation reads in one call: a whole window."""
        return k2

    @property
    def looks_cost_nothing(self) -> bool:
        """False: the host waits for every number that it looks at."""
        return False

    def wait(self) -> None:
        """Wait until the device has finished."""
        torch.cuda.synchronize(self.device)
