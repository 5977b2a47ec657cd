"""One training step of M runs: Algorithms 1, 2 and 3 of the paper, which differ only in weights and in where a state
is from.

Shapes: M runs, B rows, K scored positions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unroll.corpus.batches import Batch, Batches
from unroll.corpus.corpus import Corpus
from unroll.engines import cpu_threads, precisions
from unroll.engines.cpu.replay import Tape
from unroll.engines.cpu.update import Compiled
from unroll.engines.cuda import side_stream
from unroll.engines.cuda.replay import Recorded, unchanged
from unroll.engines.cuda.update import Fused
from unroll.experiment.experiment import Experiment
from unroll.model import optimisers
from unroll.model.model import Model

PIECE = 1 << 16  # elements that the optimiser changes at once on the CPU
REASONS = {1: "the loss was not finite", 2: "a gradient was not finite"}


class Look(NamedTuple):
    """How all runs stand, copied from the device at once."""

    stopped_M: NDArray[np.float64]
    reason_M: NDArray[np.float64]
    loss_sum_M: NDArray[np.float64]
    loss_count_M: NDArray[np.float64]

    def stopped(self, m: int) -> tuple[int, str] | None:
        """The batch at which a run diverged, and why; None if it did not."""
        batch = int(self.stopped_M[m])
        return (batch, REASONS[int(self.reason_M[m])]) if batch else None

    def loss(self, m: int) -> float | None:
        """Nats a token, the mean over the batches since the loss was last taken; None if there were none."""
        count = int(self.loss_count_M[m])
        return float(self.loss_sum_M[m]) / count if count else None


class Learner:
    """The weights, optimiser and states of M runs, advanced together one batch at a time."""

    def __init__(
        self, experiments: Sequence[Experiment], corpora: Sequence[Corpus], device: torch.device, kernel: str
    ) -> None:
        self.experiments = tuple(experiments)
        self.batches = Batches(experiments, corpora, device)
        self.model = Model.initial(experiments, [c.unique for c in corpora], device, kernel)
        self.optimiser = optimisers.load(experiments[0].optimiser)
        self.moments = {
            name: tuple(torch.zeros_like(p, requires_grad=False) for _ in self.optimiser.MOMENTS)
            for name, p in self.model.parameters.items()
        }
        self.carried = self.model.no_state()
        self.count = 0  # batches done; on the device the same number drives a recorded step
        self._counters = torch.zeros(2, dtype=torch.long, device=device)  # that number, and one for the recording
        self._number = self._counters[0]
        self._recorded: Recorded | None = None
        self._taped: _Taped | None = None
        fuses = device.type == "cuda" and self.model.dtype == torch.float32
        self._fused = Fused(self.optimiser, len(experiments), device) if fuses else None
        self._compiled = Compiled(self.optimiser, self.model.dtype) if kernel == "compiled" else None

        def per_run(values: Sequence[object], dtype: torch.dtype) -> Tensor:
            return torch.tensor(values, dtype=dtype, device=device)

        self._carries_M = per_run([e.scheme.carries for e in experiments], torch.bool)
        self._carry = any(e.scheme.carries for e in experiments)
        self.weights_MK = per_run([e.scheme.weights for e in experiments], self.model.dtype)
        self._weight_M = self.weights_MK.double().sum(-1)
        self.learning_rate_M = per_run([e.learning_rate for e in experiments], self.model.dtype)
        self.last_M = per_run([e.batches for e in experiments], torch.long)
        # A run that diverges is frozen on the device, its weights, optimiser and state as before the bad update.
        self.stopped_M = per_run(
            [0] * len(experiments), torch.long
        )  # the batch that went wrong, counted from 1; 0: none
        self.reason_M = per_run([0] * len(experiments), torch.long)
        self.loss_sum_M = per_run([0.0] * len(experiments), torch.float64)  # since the last evaluation
        self.loss_count_M = per_run([0] * len(experiments), torch.long)
        # The loss is a fixed sum of likelihoods, so its gradient is always the same.
        share_MK = self.weights_MK * (1 / experiments[0].rows)
        self._d_nll_MKB = share_MK.unsqueeze(-1).repeat(1, 1, experiments[0].rows)

    def prepare(self) -> None:
        """Make what is made only once, machine code and a recorded step, so that no batch has to wait for it."""
        if self.model.device.type == "cuda":
            self._recording()
        elif self._compiled:
            self._tape()

    def step(self) -> None:
        """Train on one batch: as a replay of one recorded step, on a GPU and where a CPU's code is compiled."""
        if self.model.device.type == "cuda":
            self._recording().replay(self.count)
        else:
            self._on_host()
        self.count += 1

    def _recording(self) -> Recorded:
        if self._recorded is None:
            self._recorded = Recorded(self._advance, self.changing(), self.batches, self._counters, self.count)
        return self._recorded

    def _on_host(self) -> None:
        with cpu_threads.single():
            self._number.fill_(self.count)
            if self._compiled:
                self._compiled.begin(self.count + 1)
                self._tape().replay(*self.batches.at(self.count))
            else:
                self._advance(self.batches[self.count])

    def _tape(self) -> _Taped:
        """The step as so many threads divide it."""
        if self._taped is None or self._taped.threads != cpu_threads.count():
            self._taped = None  # what it holds is room for the next
            with cpu_threads.single(), unchanged(self.changing()):
                self._taped = _Taped(self._advance, self.batches, self._number, self.count)
        return self._taped

    def _advance(self, batch: Batch) -> None:
        whole = side_stream.allowed() if self._fused else nullcontext()
        with precisions.multiplying(self.experiments[0].precision), whole:
            nll_MBK, state = self.model.nll(batch, self.carried)
            if self._fused:
                alive_M, gradients = self._judged_at_once(nll_MBK.transpose(1, 2))
            else:
                alive_M, gradients = self._judged(nll_MBK.transpose(1, 2))
        with torch.no_grad():
            self._update(gradients, alive_M)
            if self._carry:
                moves_M = alive_M & self._carries_M
                for old, new in zip(self.carried, state, strict=True):
                    for o, n in zip(old, new, strict=True):
                        o.copy_(torch.where(_like(moves_M, n), n, o))

    def _judged(self, nll_MKB: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Which runs take this update, and every parameter's gradient; the losses are counted."""
        weighted_MKB = nll_MKB * self._d_nll_MKB
        loss_M = weighted_MKB.detach().sum((1, 2))
        # Of a single number: told a gradient, torch brings in half a second's worth of modules that nothing here needs.
        gradients = self._gradients(weighted_MKB.sum())
        with torch.no_grad():
            alive_M = self._judge(loss_M, gradients)
            self.loss_sum_M += torch.where(alive_M, loss_M / self._weight_M, 0.0)
            self.loss_count_M += alive_M
        return alive_M, gradients

    def _judged_at_once(self, nll_MKB: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The same on an NVIDIA GPU: a launch that looks at the gradients and judges, and one for the losses before."""
        fused = self._fused
        assert fused is not None
        side_stream.later(lambda: fused.weigh(nll_MKB, self.weights_MK))
        gradients = self._gradients(nll_MKB, self._d_nll_MKB)
        changing = (self.stopped_M, self.reason_M, self.loss_sum_M, self.loss_count_M)
        return fused.judge(list(gradients.values()), self.last_M, self._number, changing), gradients

    def _gradients(self, of: Tensor, arriving: Tensor | None = None) -> dict[str, Tensor]:
        parameters = self.model.parameters
        found = torch.autograd.grad(of, list(parameters.values()), arriving)
        side_stream.finish()
        return {name: g.contiguous() for name, g in zip(parameters, found, strict=True)}

    def _judge(self, loss_M: Tensor, gradients: Mapping[str, Tensor]) -> Tensor:
        """Which runs take this update: those not ended, whose loss and gradients are finite."""
        going_M = (self.stopped_M == 0) & (self.last_M > self._number)
        finite_M = loss_M.abs() < torch.inf
        reason_M = torch.where(finite_M, torch.where(self._finite(gradients), 0, 2), 1)
        bad_M = going_M & (reason_M > 0)
        self.stopped_M.copy_(torch.where(bad_M, self._number + 1, self.stopped_M))
        self.reason_M.copy_(torch.where(bad_M, reason_M, self.reason_M))
        return going_M & ~bad_M

    def _finite(self, gradients: Mapping[str, Tensor]) -> Tensor:
        if self._compiled:
            return self._compiled.finite(list(gradients.values()))
        # The extremes are finite only if every element is: a NaN is larger and smaller than everything here.
        flat = [g.flatten(1) for g in gradients.values()]
        return torch.isfinite(torch.stack([extreme for g in flat for extreme in (g.amax(1), g.amin(1))])).all(0)

    def _update(self, gradients: Mapping[str, Tensor], alive_M: Tensor) -> None:
        parameters, moments = self.model.parameters, self.moments
        if self._fused:
            tensors = [(parameters[name].detach(), gradient, moments[name]) for name, gradient in gradients.items()]
            self._fused.update(tensors, self.learning_rate_M, alive_M, self._number)
            return
        if self._compiled:
            tensors = [(parameters[name], gradient, moments[name]) for name, gradient in gradients.items()]
            self._compiled.update(tensors, self.learning_rate_M, alive_M)
            return
        on_host = self.model.device.type == "cpu"
        count = self.count + 1 if on_host else (self._number + 1).double()
        all_alive = on_host and bool(alive_M.all())  # elsewhere, asking would make the host wait
        if not on_host:
            for name, gradient in gradients.items():
                self._change(parameters[name], gradient, moments[name], alive_M, count, False)
            return
        # A piece at a time, so that what the optimiser computes in between stays in the cache.
        pieces = []
        for name, gradient in gradients.items():
            rows = max(1, PIECE // (gradient.numel() // gradient.shape[1]))
            pieces += list(zip(*(x.split(rows, 1) for x in (parameters[name], gradient, *moments[name])), strict=True))

        threads = cpu_threads.count()  # as this thread knows it: those that do parts have only themselves

        def some(part: int) -> None:
            for parameter, gradient, *old in pieces[part::threads]:
                self._change(parameter, gradient, tuple(old), alive_M, count, all_alive)

        cpu_threads.each(threads, some)

    def _change(
        self,
        parameter: Tensor,
        gradient: Tensor,
        old: tuple[Tensor, ...],
        alive_M: Tensor,
        count: int | Tensor,
        all_alive: bool,
    ) -> None:
        rate, alive = _like(self.learning_rate_M, gradient), _like(alive_M, gradient)
        amount, new = self.optimiser.update(gradient, old, rate, count)
        parameter.sub_(amount if all_alive else torch.where(alive, amount, 0.0))
        for o, n in zip(old, new, strict=True):
            o.copy_(n if all_alive else torch.where(alive, n, o))

    def changing(self) -> list[Tensor]:
        """Every tensor that a step changes."""
        moments = [m for own in self.moments.values() for m in own]
        carried = [s for state in self.carried for s in state]
        sums = [self.stopped_M, self.reason_M, self.loss_sum_M, self.loss_count_M]
        return [*(p.detach() for p in self.model.parameters.values()), *moments, *carried, *sums]

    def look(self) -> Look:
        """How all runs stand: one copy from the device."""
        flags = (self.stopped_M, self.reason_M, self.loss_sum_M, self.loss_count_M)
        return Look(*torch.stack([flag.double() for flag in flags]).cpu().numpy())

    def take_losses(self, runs: Sequence[int]) -> list[float | None]:
        """The losses of these runs; their means begin anew."""
        look, slots = self.look(), torch.tensor(runs, device=self.model.device)
        self.loss_sum_M[slots], self.loss_count_M[slots] = 0.0, 0
        return [look.loss(m) for m in runs]

    def weights(self, m: int) -> dict[str, Tensor]:
        """What a finished run stores: its parameters and, where states are carried, the last of them."""
        carried = self._carried(m) if self.experiments[m].scheme.carries else {}
        return self.model.values(m) | carried

    def snapshot(self, m: int) -> dict[str, Tensor]:
        """All that a run needs to go on exactly, without padding: one layout, whatever the kernel or the fleet."""
        held = self.model.values(m) | self._carried(m)
        for place, moment in enumerate(self.optimiser.MOMENTS):
            own = self.model.values(m, {name: moments[place] for name, moments in self.moments.items()})
            held |= {f"optimiser.{moment}.{name}": value for name, value in own.items()}
        held["progress.loss_sum"] = self.loss_sum_M[m].cpu().reshape(1)
        held["progress.loss_count"] = self.loss_count_M[m].cpu().reshape(1)
        held["progress.stopped"] = torch.stack((self.stopped_M[m], self.reason_M[m])).cpu()
        return held

    def restore(self, m: int, held: Mapping[str, Tensor]) -> None:
        """Put a snapshot back into its slot."""
        with torch.no_grad():
            for name, own in self.model.values(m).items():
                place: Any = (m, *(slice(n) for n in own.shape))
                self.model.parameters[name][place] = held[name].to(self.model.device)
                for moment, over_runs in zip(self.optimiser.MOMENTS, self.moments[name], strict=True):
                    over_runs[place] = held[f"optimiser.{moment}.{name}"].to(self.model.device)
            for layer, state in enumerate(self.carried):
                for s, name in zip(state, self.model.cell.STATES, strict=True):
                    s[m] = held[f"carried.{layer}.{name}"].to(self.model.device)
            self.loss_sum_M[m] = held["progress.loss_sum"][0]
            self.loss_count_M[m] = held["progress.loss_count"][0]
            self.stopped_M[m], self.reason_M[m] = held["progress.stopped"].to(self.model.device)

    def _carried(self, m: int) -> dict[str, Tensor]:
        return {
            f"carried.{layer}.{name}": s[m].cpu().contiguous()
            for layer, state in enumerate(self.carried)
            for name, s in zip(self.model.cell.STATES, state, strict=True)
        }


class _Taped:
    """`step(batch)` on a CPU, recorded, as it is divided among the threads there are."""

    def __init__(self, step: Callable[[Batch], None], batches: Batches, number: Tensor, first: int) -> None:
        self.threads, self._tape = cpu_threads.count(), Tape()
        self._at = [x.clone() for x in batches.at(first)]
        with self._tape:
            step(batches.gather(number, *self._at))

    def replay(self, *at: Tensor) -> None:
        """The batch whose windows start there."""
        for own, value in zip(self._at, at, strict=True):
            own.copy_(value)
        self._tape.replay()


def _like(value_M: Tensor, tensor: Tensor) -> Tensor:
    """A value a run, shaped to broadcast over a tensor."""
    return value_M.view(-1, *[1] * (tensor.dim() - 1))
