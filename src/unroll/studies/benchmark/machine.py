"""The machine that measured, and its clocks."""

from __future__ import annotations

import platform
import shutil
import subprocess
from typing import Any

import torch

from unroll.base.version import VERSION
from unroll.engines import devices

QUERY = ("clocks.sm", "clocks.max.sm", "clocks.mem", "power.draw", "temperature.gpu", "driver_version")
TIMEOUT_SECONDS = 10


def facts(device: torch.device) -> dict[str, Any]:
    """The processor and the versions on which a time depends."""
    details = {
        "processor": devices.describe(device),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "unroll": VERSION,
    }
    return details | devices.versions(device)


def clocks(device: torch.device) -> dict[str, str]:
    """What the driver's own tool reports now; empty where there is no tool."""
    tool = shutil.which("nvidia-smi")
    if devices.is_host(device) or not tool:
        return {}
    command = [tool, f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader", f"--id={device.index or 0}"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_SECONDS).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(zip(QUERY, (value.strip() for value in answer.split(",")), strict=False))
