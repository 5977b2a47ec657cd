"""The update of a fleet's parameters on an NVIDIA GPU, in one launch and one pass over memory: see update.cu."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unroll.engines.cuda import compiler, optimisers, side_stream
from unroll.engines.cuda.products import multiplying
from unroll.engines.judged_update import gradients_of, loss_gradient
from unroll.model.engine import FleetTensors, Update
from unroll.model.optimisers import Optimiser

SOURCE = Path(__file__).parent / "update.cu"
THREADS, CHUNK, MOST = 256, 2048, 64


class _Tensors(ctypes.Structure):
    """The addresses of up to MOST tensors, handed to a launch by value."""

    _fields_ = (
        *((name, ctypes.c_void_p * MOST) for name in ("parameter", "gradient", "first", "second")),
        *((name, ctypes.c_int * MOST) for name in ("size", "chunks")),
    )


class FusedUpdate(Update):
    """Applies one optimiser to all parameters of a fleet."""

    def __init__(self, fleet: FleetTensors) -> None:
        device = fleet.learning_rate_M.device
        optimiser = optimisers.of(fleet.optimiser)
        assert optimiser is not None
        texts = {"UPDATE": optimiser.UPDATE, "BEFORE": optimiser.BEFORE}
        defines = {name: " ".join(text.split()) for name, text in texts.items()}
        self._code = compiler.Module.load((SOURCE,), {"MOMENTS": len(fleet.optimiser.MOMENTS), **defines})
        runs = len(fleet.learning_rate_M)
        self._losses_M2 = torch.zeros(runs, 2, dtype=torch.float64, device=device)
        self._seen_M = torch.zeros(runs, dtype=torch.long, device=device)
        chunks = sum(map(_chunks, fleet.parameters.values()))
        self._squares_MN = torch.empty(runs, chunks, dtype=torch.float64, device=device)  # the sum of each chunk
        self._fleet = fleet
        self._d_nll_MKB = loss_gradient(fleet)

    @staticmethod
    def knows(optimiser: Optimiser) -> bool:
        """Whether an optimiser has a CUDA file, and one or two moments, for which a launch has room."""
        return optimisers.of(optimiser) is not None and len(optimiser.MOMENTS) in (1, 2)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Multiply in the precision's numbers; let the step use the side stream."""
        with multiplying(self._fleet.precision), side_stream.allowed():
            yield

    def judged(self, nll_MKB: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return which runs take this update, and the gradients. One launch weighs the losses, one judges."""
        fleet = self._fleet
        side_stream.later(lambda: self._weigh(nll_MKB))
        gradients = gradients_of(fleet.parameters, nll_MKB, self._d_nll_MKB, side_stream.finish)
        return self._judge(list(gradients.values())), gradients

    def _weigh(self, nll_MKB: Tensor) -> None:
        """Compute every run's loss, which is judged next."""
        M, K, B = nll_MKB.shape
        nll_MKB = nll_MKB.detach().contiguous()
        self._code["weigh"].launch((M,), THREADS, nll_MKB, self._fleet.weights_MK, self._losses_M2, K, B)

    def _judge(self, gradients: Sequence[Tensor]) -> Tensor:
        """Judge which runs take this update: [M]."""
        fleet = self._fleet
        alive_M = torch.empty(len(fleet.last_M), dtype=torch.bool, device=fleet.last_M.device)
        tables = [_table([(g, g, (g,)) for g in group]) for group in _groups(gradients)]
        expected = sum(chunks for _, chunks in tables)
        before_these = 0
        for table, chunks in tables:
            self._code["judge"].launch(
                (chunks, len(alive_M)), THREADS, table, self._seen_M, expected, self._losses_M2, fleet.last_M,
                fleet.number, *fleet.progress, alive_M, self._squares_MN, before_these, fleet.largest_2M,
            )  # fmt: skip
            before_these += chunks
        return alive_M

    def change(self, gradients: Mapping[str, Tensor], alive_M: Tensor) -> None:
        """Change weights and moments of the runs that are alive, in place."""
        fleet = self._fleet
        tensors = [
            (fleet.parameters[name].detach(), gradient, fleet.moments[name]) for name, gradient in gradients.items()
        ]
        for group in _groups(tensors):
            table, chunks = _table(group)
            self._code["update"].launch(
                (chunks, len(alive_M)), THREADS, table, fleet.learning_rate_M, alive_M, fleet.number
            )


class UnfusedUpdate(Update):
    """The plain update, with products in the precision's numbers. It uses no side stream, since nothing would wait."""

    def __init__(self, plain: Update, precision: str) -> None:
        self._plain, self._precision = plain, precision

    def begin(self, count: int) -> None:
        """Begin the update with this number, counted from 1."""
        self._plain.begin(count)

    def computing(self) -> AbstractContextManager[None]:
        """Multiply in the precision's numbers within this block."""
        return multiplying(self._precision)

    def judged(self, nll_MKB: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return which runs take this update, and the gradients."""
        return self._plain.judged(nll_MKB)

    def change(self, gradients: Mapping[str, Tensor], alive_M: Tensor) -> None:
        """Change weights and moments of the runs that are alive."""
        self._plain.change(gradients, alive_M)


def _groups(tensors: Sequence[Any]) -> list[Sequence[Any]]:
    return [tensors[n : n + MOST] for n in range(0, len(tensors), MOST)]


def _chunks(parameter: Tensor) -> int:
    """The blocks of threads that one run of a tensor takes."""
    return -(-parameter[0].numel() // CHUNK)


def _table(tensors: Sequence[tuple[Tensor, Tensor, tuple[Tensor, ...]]]) -> tuple[_Tensors, int]:
    table = _Tensors()
    chunks = 0
    for n, (parameter, gradient, moments) in enumerate(tensors):
        for name, tensor in zip(
            ("parameter", "gradient", "first", "second"), (parameter, gradient, moments[0], moments[-1]), strict=True
        ):
            assert tensor.is_contiguous()
            getattr(table, name)[n] = tensor.data_ptr()
        table.size[n] = parameter[0].numel()
        chunks += _chunks(parameter)
        table.chunks[n] = chunks
    return table, chunks
