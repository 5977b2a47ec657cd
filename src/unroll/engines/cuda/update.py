"""The update of a fleet's parameters on an NVIDIA GPU, in one launch and one pass over memory: see update.cu."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unroll.engines.cuda import compiler
from unroll.model.optimisers import Optimiser

SOURCE = Path(__file__).parent / "update.cu"
THREADS, CHUNK, MOST = 256, 2048, 64


class _Tensors(ctypes.Structure):
    """The addresses of up to MOST tensors, handed to a launch by value."""

    _fields_ = (
        *((name, ctypes.c_void_p * MOST) for name in ("parameter", "gradient", "first", "second")),
        *((name, ctypes.c_int * MOST) for name in ("size", "chunks")),
    )


class Fused:
    """One optimiser, for all parameters of a fleet."""

    def __init__(self, optimiser: Optimiser, runs: int, device: torch.device) -> None:
        texts = {"UPDATE": optimiser.CUDA, "BEFORE": optimiser.CUDA_BEFORE}
        defines = {name: " ".join(text.split()) for name, text in texts.items()}
        self._code = compiler.Module.load((SOURCE,), {"MOMENTS": len(optimiser.MOMENTS), **defines})
        self._losses_M2 = torch.zeros(runs, 2, dtype=torch.float64, device=device)
        self._seen_M = torch.zeros(runs, dtype=torch.long, device=device)

    def weigh(self, nll_MKB: Tensor, weights_MK: Tensor) -> None:
        """Every run's loss, which `judge` judges."""
        M, K, B = nll_MKB.shape
        nll_MKB = nll_MKB.detach().contiguous()
        self._code["weigh"].launch((M,), THREADS, nll_MKB, weights_MK, self._losses_M2, K, B)

    def judge(self, gradients: Sequence[Tensor], last_M: Tensor, done: Tensor, changing: Sequence[Tensor]) -> Tensor:
        """Which runs take this update: [M]. `changing`: which batch stopped a run, why, its losses' sum and count."""
        alive_M = torch.empty(len(last_M), dtype=torch.bool, device=last_M.device)
        tables = [_table([(g, g, (g,)) for g in some]) for some in _groups(gradients)]
        expected = sum(chunks for _, chunks in tables)
        for held, chunks in tables:
            self._code["judge"].launch(
                (chunks, len(alive_M)), THREADS, held, self._seen_M, expected, self._losses_M2, last_M, done,
                *changing, alive_M,
            )  # fmt: skip
        return alive_M

    def update(
        self,
        tensors: Sequence[tuple[Tensor, Tensor, tuple[Tensor, ...]]],
        learning_rate_M: Tensor,
        alive_M: Tensor,
        done: Tensor,
    ) -> None:
        """Change each (parameter, gradient, moments) in place where a run is alive; `done` counts updates before."""
        for some in _groups(tensors):
            held, chunks = _table(some)
            self._code["update"].launch((chunks, len(alive_M)), THREADS, held, learning_rate_M, alive_M, done)


def _groups(tensors: Sequence[Any]) -> list[Sequence[Any]]:
    return [tensors[n : n + MOST] for n in range(0, len(tensors), MOST)]


def _table(tensors: Sequence[tuple[Tensor, Tensor, tuple[Tensor, ...]]]) -> tuple[_Tensors, int]:
    held, chunks = _Tensors(), 0
    for n, (parameter, gradient, moments) in enumerate(tensors):
        for name, tensor in zip(
            ("parameter", "gradient", "first", "second"), (parameter, gradient, moments[0], moments[-1]), strict=True
        ):
            assert tensor.is_contiguous()
            getattr(held, name)[n] = tensor.data_ptr()
        held.size[n] = parameter[0].numel()
        chunks += -(-held.size[n] // CHUNK)
        held.chunks[n] = chunks
    return held, chunks
