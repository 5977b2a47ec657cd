"""The CPU's engine: machine code if it can be made, threads that divide the work, and the plain engine for the rest."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
from torch import Tensor

from unroll.engines import kernels
from unroll.engines.cpu import cells as machine_cells
from unroll.engines.cpu import compiled_direct_head, compiled_head, threaded_head, workers
from unroll.engines.cpu import optimisers as machine_optimisers
from unroll.engines.cpu.compiled_update import CompiledUpdate
from unroll.engines.cpu.replay import RecordedCalls
from unroll.engines.cpu.steppers import compiled, host
from unroll.engines.cpu.threaded_update import ThreadedUpdate
from unroll.engines.restored_tensors import restored
from unroll.experiment import spelled
from unroll.experiment.experiment import Experiment
from unroll.model import cells, optimisers
from unroll.model.dropout import Dropout
from unroll.model.engine import Engine, FleetTensors, Replay, Step, Update
from unroll.model.head import LEAK, Head
from unroll.model.model import Model
from unroll.model.network import Network, States
from unroll.model.steppers import Drawer, Stepper

COMPILED = "compiled"  # the kernel whose steps are machine code from end to end
CHUNK_BYTES = 2**21  # of one tensor while a text is read in chunks: small chunks stay in the caches
STEPS = 8  # window steps that an evaluation reads in one call: caches hold no more


class CpuEngine(Engine):
    """Computes with one kernel for the recurrent layers; `plain` does what nothing here does faster."""

    def __init__(self, device: torch.device, kernel: str, plain: Engine) -> None:
        self.device, self.kernel, self._plain = device, kernel, plain
        self._kernel = kernels.load(kernel)

    def refusal(self, network: Network) -> str | None:
        """The kernel's reason why it cannot compute these layers; None if it can."""
        return self._kernel.supports(network, self.device)

    def unknown(self, experiment: Experiment) -> list[str]:
        """What has no machine code here."""
        known = {
            f"the cell {experiment.cell}": machine_cells.of(cells.load(experiment.cell, experiment.peepholes)),
            f"the optimiser {spelled.name_of(experiment.optimiser)}": machine_optimisers.of(
                optimisers.load(experiment.optimiser)
            ),
            f"the sampling procedure {experiment.scheme.sample}": experiment.scheme.sample in compiled.STEPPERS,
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
        """The negative log-likelihood of each target, by the compiled, the threaded or the plain head."""
        if self.kernel == COMPILED:
            in_bf16 = precision == "bfloat16"
            if head.dense is None:
                return compiled_direct_head.nll(h_MNH, *head.out, targets_MN, dropout, in_bf16)
            return compiled_head.nll(h_MNH, *head.dense, *head.out, targets_MN, LEAK, dropout, in_bf16)
        if head.dense is not None and not dropout.drops:
            return threaded_head.nll(h_MNH, *head.dense, *head.out, targets_MN)
        return self._plain.nll(head, h_MNH, targets_MN, precision, dropout)

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """A batched product whose sums are not rounded."""
        return self._plain.product(a, b)

    def update(self, fleet: FleetTensors) -> Update:
        """The compiled update, if the kernel is compiled and the optimiser has machine code; else the threaded one."""
        if self.kernel == COMPILED and CompiledUpdate.knows(fleet.optimiser):
            return CompiledUpdate(fleet)
        return ThreadedUpdate(fleet)

    def replay(self) -> Replay:
        """Record and replay steps that are compiled from end to end."""
        return CpuReplay()

    def rows(self, model: Model, k2: int, procedure: str, capacity: int) -> Stepper:
        """Compiled rows, rows of NumPy and torch, or plain rows: the first that know the model's cell."""
        if compiled.supports(model, procedure):
            return compiled.prepare(model, k2, procedure, capacity)
        if host.supports(model, procedure):
            return host.prepare(model, k2, procedure, capacity)
        return self._plain.rows(model, k2, procedure, capacity)

    def draws(self, model: Model, k2: int, procedure: str) -> Drawer | None:
        """None: the host chooses every token."""
        return None

    def reading(self, precision: str) -> AbstractContextManager[None]:
        """Keep torch to one thread, since our threads divide the work."""
        return workers.single()

    @property
    def chunk_bytes(self) -> int:
        """The most bytes of one tensor while a text is read in chunks."""
        return CHUNK_BYTES

    def steps_at_once(self, k2: int) -> int:
        """The number of window steps that an evaluation reads in one call."""
        return min(k2, STEPS)

    @property
    def looks_cost_nothing(self) -> bool:
        """The host sees every number at once."""
        return True

    def wait(self) -> None:
        """Do nothing: no work is under way when a call returns."""


class CpuReplay(Replay):
    """Records a compiled step, as the threads divide it, and replays it; computes any other step from its batch."""

    def __init__(self) -> None:
        self._recording: _Recording | None = None

    def prepare(self, step: Step, count: int) -> None:
        """Compile the machine code and record the step."""
        if isinstance(step.update, CompiledUpdate):
            self._recorded(step, count)

    def run(self, step: Step, count: int) -> None:
        """Train on batch `count`."""
        with workers.single():
            step.number.fill_(count)
            step.update.begin(count + 1)
            if isinstance(step.update, CompiledUpdate):
                self._recorded(step, count).replay(*step.batches.at(count))
            else:
                step.advance(step.batches[count])

    def _recorded(self, step: Step, count: int) -> _Recording:
        if self._recording is None or self._recording.threads != workers.count():
            self._recording = None  # the next recording uses its memory
            with workers.single(), restored(step.changing()):
                self._recording = _Recording(step, count)
        return self._recording


class _Recording:
    """A recorded step, and the starts of its batch's windows."""

    def __init__(self, step: Step, first: int) -> None:
        self.threads = workers.count()
        self._calls = RecordedCalls()
        self._starts = [x.clone() for x in step.batches.at(first)]
        with self._calls:
            step.advance(step.batches.gather(step.number, *self._starts))

    def replay(self, *starts: Tensor) -> None:
        """Train on the batch whose windows have these starts."""
        for buffer, values in zip(self._starts, starts, strict=True):
            buffer.copy_(values)
        self._calls.replay()
