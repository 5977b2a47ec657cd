"""The precisions that a device computes in. A CPU has bfloat16 as well: see `cpu/bf16.py`."""

from __future__ import annotations

import torch

from unroll.engines.cpu import bf16, builder


def why_not(name: str, device: torch.device) -> str | None:
    """The reason why a device cannot compute in a precision; None if it can."""
    if name in ("float32", "float64") or (name, device.type) == ("bfloat16", "cpu"):
        return None
    if device.type != "cuda":
        return f"precision {name} needs an NVIDIA GPU; on {device.type} there are float32, float64 and bfloat16"
    capability = torch.cuda.get_device_capability(device)
    if capability[0] < 8:
        version = ".".join(map(str, capability))
        return f"precision {name} needs a GPU of compute capability 8 or newer; this one has {version}"
    return None


def described(name: str, device: str) -> str:
    """A precision in words, for a person who waits for it."""
    if (name, device) == ("bfloat16", "cpu") and builder.available() and not bf16.fast():
        return f"{name} (which this processor multiplies no faster than float32)"
    return name
