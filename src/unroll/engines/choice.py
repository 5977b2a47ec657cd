"""Chooses the engine, once, for a device and a kernel. The plain engine does what a backend does not."""

from __future__ import annotations

import torch

from unroll.engines.torch.engine import TorchEngine
from unroll.model.engine import Engine


def engine_of(device: torch.device, kernel: str) -> Engine:
    """The engine of a device, with this kernel for the recurrent layers."""
    plain = TorchEngine(device, kernel)
    if device.type == "cpu":
        from unroll.engines.cpu.engine import CpuEngine

        return CpuEngine(device, kernel, plain)
    if device.type == "cuda":
        from unroll.engines.cuda.engine import CudaEngine

        return CudaEngine(device, kernel, plain)
    return plain
