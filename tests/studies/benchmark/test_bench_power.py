"""What a GPU draws: NVML's counters, here of a driver that only pretends."""

from __future__ import annotations

import ctypes
import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import unroll

from unroll.studies.benchmark import power

CPU = torch.device("cpu")
FOUND = {
    "steps": 100, "ms": 5.6, "joules": 3.92, "watts": 700.0, "limit_watts": 700.0, "mhz": 1800, "most_mhz": 1980,
    "capped": 1.0,
}  # fmt: skip


class Driver:
    """NVML of a GPU that draws 5 J between two looks at its energy, and clocks at 1,500 MHz of 2,000."""

    def __init__(self, capped: bool = True, missing: str = "") -> None:
        self._energy, self._capped, self._missing = count(1_000_000, 5_000), capped, missing

    def __getattr__(self, name: str) -> Any:
        if name == self._missing:
            return lambda *arguments: 3  # not supported
        if name in ("nvmlInit_v2", "nvmlDeviceGetHandleByUUID"):
            return lambda *arguments: 0
        kind, value = {
            "nvmlDeviceGetTotalEnergyConsumption": (ctypes.c_ulonglong, lambda: next(self._energy)),
            "nvmlDeviceGetClockInfo": (ctypes.c_uint, lambda: 1500),
            "nvmlDeviceGetMaxClockInfo": (ctypes.c_uint, lambda: 2000),
            "nvmlDeviceGetCurrentClocksThrottleReasons": (ctypes.c_ulonglong, lambda: 0x25 if self._capped else 0x21),
            "nvmlDeviceGetEnforcedPowerLimit": (ctypes.c_uint, lambda: 650_000),
        }[name]

        def read(*arguments: Any) -> int:
            ctypes.cast(arguments[-1], ctypes.POINTER(kind))[0] = value()
            return 0

        return read


@pytest.mark.parametrize("capped", [True, False])
def test_sustained_steps_are_counted_with_what_they_cost(monkeypatch: pytest.MonkeyPatch, capped: bool) -> None:
    monkeypatch.setattr(power, "WARM", 0.01)
    monkeypatch.setattr(power, "SECONDS", 0.05)
    monkeypatch.setattr(power, "READING", 0.01)
    done: list[None] = []
    record = power.sustained(lambda: done.append(None), CPU, power.Gauge(Driver(capped), "GPU-1"))
    assert tuple(record) == power.KEYS
    assert 0 < record["steps"] < len(done)  # those that warm it up do not count
    assert record["steps"] * record["joules"] == pytest.approx(5.0)
    assert record["steps"] * record["ms"] >= 50
    assert record["watts"] == pytest.approx(1e3 * record["joules"] / record["ms"])
    assert (record["limit_watts"], record["mhz"], record["most_mhz"], record["capped"]) == (650, 1500, 2000, capped)


def test_a_device_whose_counters_cannot_be_read_has_no_gauge(monkeypatch: pytest.MonkeyPatch) -> None:
    class Properties:
        uuid = "1"

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)
    monkeypatch.setattr(power, "_library", Driver)
    assert power.gauge(torch.device("cuda")) is not None
    assert power.gauge(CPU) is None
    for missing in ("nvmlInit_v2", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetTotalEnergyConsumption"):
        monkeypatch.setattr(power, "_library", lambda missing=missing: Driver(missing=missing))
        assert power.gauge(torch.device("cuda")) is None

    def absent() -> None:
        raise OSError("libnvidia-ml.so.1: cannot open shared object file")

    monkeypatch.setattr(power, "_library", absent)
    assert power.gauge(torch.device("cuda")) is None


def test_a_profile_says_what_holds_the_gpu_back(tmp_path: Path) -> None:
    made, event = tmp_path / "a.json", {"name": "forward", "count": 3, "ms": 15.0, "share": 1.0}
    content = {
        "format": 1, "mode": "profile", "what": "a fleet", "kernel": "persistent", "steps": 3, "runs": 28, "ms": 15.0,
        "events": [event], "sustained": FOUND,
    }  # fmt: skip
    made.write_text(json.dumps(content))
    shown = " ".join(unroll("bench", "--from", made).out.split())
    assert "0.2 ms and 0.14 J a run-batch, 700 of 700 W at 1800 of 1980 MHz, held back by the power limit" in shown
    made.write_text(json.dumps(content | {"sustained": FOUND | {"capped": 0.0}}))
    assert "held back" not in unroll("bench", "--from", made).out
    del content["sustained"]  # as records were before
    made.write_text(json.dumps(content))
    assert "step after step" not in unroll("bench", "--from", made).out
    made.write_text(json.dumps(content | {"sustained": {"steps": 3}}))
    refused = unroll("bench", "--from", made)
    assert (refused.code, "damaged profile" in refused.err) == (2, True)
