"""What an NVIDIA GPU draws, and how fast it clocks, while it works on and on.

A GPU that draws all it may lowers its clock: then a step takes as long as its energy lasts, and work moved to idle
multiprocessors gains nothing. A profile of a few steps cannot show that; the GPU's own counters do (NVML, which comes
with the driver, called through ctypes).
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch

from unroll.engines import devices

WARM, SECONDS = 2.0, 3.0  # of steps, of which the first do not count: a GPU that was idle is cool and clocks higher
LOOK = 0.05  # between two looks at the clock
KEYS = ("steps", "ms", "joules", "watts", "limit_watts", "mhz", "most_mhz", "capped")  # of a record
_MULTIPROCESSORS = 1  # NVML_CLOCK_SM
_POWER_CAP = 0x4  # nvmlClocksEventReasonSwPowerCap


class Gauge:
    """One GPU's counters."""

    def __init__(self, library: Any, uuid: str) -> None:
        self._library, self._device = library, ctypes.c_void_p()
        self._call("nvmlInit_v2")
        self._call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(self._device))

    def _call(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._library, name)(*arguments):
            raise OSError(f"{name} failed with code {code}")

    def _read(self, name: str, kind: type[Any], *which: int) -> int:
        found = kind()
        self._call(name, self._device, *which, ctypes.byref(found))
        return int(found.value)

    def joules(self) -> float:
        """Since the driver was loaded."""
        return self._read("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong) / 1e3

    def clock(self) -> int:
        """Of the multiprocessors, now: MHz."""
        return self._read("nvmlDeviceGetClockInfo", ctypes.c_uint, _MULTIPROCESSORS)

    def capped(self) -> bool:
        """Whether the clock is lower now because of what the GPU draws."""
        return bool(self._read("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong) & _POWER_CAP)

    def limits(self) -> tuple[float, int]:
        """The watts that it may draw, and its highest clock."""
        milliwatts = self._read("nvmlDeviceGetEnforcedPowerLimit", ctypes.c_uint)
        return milliwatts / 1e3, self._read("nvmlDeviceGetMaxClockInfo", ctypes.c_uint, _MULTIPROCESSORS)


def gauge(device: torch.device) -> Gauge | None:
    """The counters of a device; None where it has none that can be read."""
    if devices.is_host(device):
        return None
    try:
        found = Gauge(_library(), f"GPU-{torch.cuda.get_device_properties(device).uuid}")
        found.joules(), found.clock(), found.capped(), found.limits()
    except (OSError, AttributeError):
        return None
    return found


@cache
def _library() -> Any:
    return ctypes.CDLL("libnvidia-ml.so.1")


def sustained(step: Callable[[], None], device: torch.device, counters: Gauge) -> dict[str, float]:
    """Step after step for a while, as a record: how long each took, what it cost, and what the clock was."""
    _repeat(step, device, counters, WARM)
    joules, start = counters.joules(), time.perf_counter()
    steps, looks = _repeat(step, device, counters, SECONDS)
    spent, seconds = counters.joules() - joules, time.perf_counter() - start
    watts, most = counters.limits()
    return {
        "steps": steps,
        "ms": 1e3 * seconds / steps,
        "joules": spent / steps,
        "watts": spent / seconds,
        "limit_watts": watts,
        "mhz": statistics.median(clock for clock, _ in looks),
        "most_mhz": most,
        "capped": statistics.mean(capped for _, capped in looks),
    }


def _repeat(
    step: Callable[[], None], device: torch.device, counters: Gauge, seconds: float
) -> tuple[int, list[tuple[int, bool]]]:
    """How many steps that were, and looks at the clock in the midst of them."""
    steps, looks, chunk, began = 0, [], 1, time.perf_counter()
    while (now := time.perf_counter()) - began < seconds:
        for _ in range(chunk):
            step()
        looks.append((counters.clock(), counters.capped()))
        devices.wait(device)
        steps, chunk = steps + chunk, max(1, round(chunk * LOOK / (time.perf_counter() - now)))
    return steps, looks


def told(found: Mapping[str, float], runs: int) -> str:
    """A record in words."""
    clock = f"{found['mhz']:.0f} of {found['most_mhz']:.0f} MHz"
    cause = ", held back by the power limit" if found["capped"] > 0.5 else ""
    return (
        f"step after step: {found['ms'] / runs:.4g} ms and {found['joules'] / runs:.3g} J a run-batch, "
        f"{found['watts']:.0f} of {found['limit_watts']:.0f} W at {clock}{cause}"
    )
