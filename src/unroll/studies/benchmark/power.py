"""What an NVIDIA GPU draws, and how fast it clocks, while it works on and on.

A GPU at its power limit lowers its clock. A step then takes as long as its energy lasts, and work moved to idle
multiprocessors gains nothing. A profile of a few steps cannot show that. The GPU's own counters can: NVML, which comes
with the driver and is called through ctypes.
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

# Seconds of steps before the counters are read, and while: an idle GPU is cool and clocks higher at first.
WARM = 2.0
SECONDS = 3.0
READING = 0.05  # seconds between two readings of the clock
KEYS = ("steps", "ms", "joules", "watts", "limit_watts", "mhz", "most_mhz", "capped")  # the fields of a record
_MULTIPROCESSORS = 1  # NVML_CLOCK_SM
_POWER_CAP = 0x4  # nvmlClocksEventReasonSwPowerCap


class Gauge:
    """One GPU's counters."""

    def __init__(self, library: Any, uuid: str) -> None:
        self._library = library
        self._device = ctypes.c_void_p()
        self._call("nvmlInit_v2")
        self._call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(self._device))

    def _call(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._library, name)(*arguments):
            raise OSError(f"{name} failed with code {code}")

    def _read(self, name: str, kind: type[Any], *which: int) -> int:
        value = kind()
        self._call(name, self._device, *which, ctypes.byref(value))
        return int(value.value)

    def joules(self) -> float:
        """The energy drawn since the driver was loaded."""
        return self._read("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong) / 1e3

    def clock(self) -> int:
        """The multiprocessors' clock now, in MHz."""
        return self._read("nvmlDeviceGetClockInfo", ctypes.c_uint, _MULTIPROCESSORS)

    def capped(self) -> bool:
        """Whether the power limit holds the clock down now."""
        return bool(self._read("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong) & _POWER_CAP)

    def limits(self) -> tuple[float, int]:
        """The watts that it may draw, and its highest clock in MHz."""
        milliwatts = self._read("nvmlDeviceGetEnforcedPowerLimit", ctypes.c_uint)
        return milliwatts / 1e3, self._read("nvmlDeviceGetMaxClockInfo", ctypes.c_uint, _MULTIPROCESSORS)


def gauge(device: torch.device) -> Gauge | None:
    """The counters of a device, or None where none can be read."""
    if devices.is_host(device):
        return None
    try:
        counters = Gauge(_library(), f"GPU-{torch.cuda.get_device_properties(device).uuid}")
        counters.joules(), counters.clock(), counters.capped(), counters.limits()
    except (OSError, AttributeError):
        return None
    return counters


@cache
def _library() -> Any:
    return ctypes.CDLL("libnvidia-ml.so.1")


def sustained(step: Callable[[], None], device: torch.device, counters: Gauge) -> dict[str, float]:
    """Run step after step for a while; record the time and the energy of a step, and the clock."""
    _repeat(step, device, counters, WARM)
    joules = counters.joules()
    start = time.perf_counter()
    steps, readings = _repeat(step, device, counters, SECONDS)
    spent = counters.joules() - joules
    seconds = time.perf_counter() - start
    watts, most = counters.limits()
    return {
        "steps": steps,
        "ms": 1e3 * seconds / steps,
        "joules": spent / steps,
        "watts": spent / seconds,
        "limit_watts": watts,
        "mhz": statistics.median(clock for clock, _ in readings),
        "most_mhz": most,
        "capped": statistics.mean(capped for _, capped in readings),
    }


def _repeat(
    step: Callable[[], None], device: torch.device, counters: Gauge, seconds: float
) -> tuple[int, list[tuple[int, bool]]]:
    """Repeat steps; return how many, and readings of the clock among them."""
    steps, chunk = 0, 1
    readings = []
    began = time.perf_counter()
    while (now := time.perf_counter()) - began < seconds:
        for _ in range(chunk):
            step()
        readings.append((counters.clock(), counters.capped()))
        devices.wait(device)
        steps += chunk
        chunk = max(1, round(chunk * READING / (time.perf_counter() - now)))
    return steps, readings


def in_words(record: Mapping[str, float], runs: int) -> str:
    """Say a record in words."""
    clock = f"{record['mhz']:.0f} of {record['most_mhz']:.0f} MHz"
    cause = ", held back by the power limit" if record["capped"] > 0.5 else ""
    return (
        f"step after step: {record['ms'] / runs:.4g} ms and {record['joules'] / runs:.3g} J a run-batch, "
        f"{record['watts']:.0f} of {record['limit_watts']:.0f} W at {clock}{cause}"
    )
