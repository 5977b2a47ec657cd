"""Where one contestant's time goes: the device's kernels, or on a CPU torch's operations, over a few steps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from unroll.base.errors import InputError
from unroll.engines import devices
from unroll.studies.benchmark import power
from unroll.studies.benchmark.contestants import Entry, ReadyContestant
from unroll.studies.benchmark.record import FORMAT

if TYPE_CHECKING:
    from rich.table import Table

WARM_UP = {"cuda": 5, "cpu": 1}
STEPS = 3
NAME = 60  # columns
LINES = 25


def run(entry: Entry, contestant: ReadyContestant, device: torch.device, machine: dict[str, Any]) -> dict[str, Any]:
    """A few steps under torch's profiler, as a record."""
    for _ in range(WARM_UP[devices.kind(device)]):
        contestant.step()
    devices.wait(device)
    on_gpu = not devices.is_host(device)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as profiler:
        for _ in range(STEPS):
            contestant.step()
        devices.wait(device)
    events = [
        {"name": e.key, "count": e.count, "ms": (e.self_device_time_total if on_gpu else e.self_cpu_time_total) / 1e3}
        for e in profiler.key_averages()
        # On a GPU, keep only what ran there. The host's calls and the spans that the optimiser marks would count the
        # kernels in them a second time.
        if not on_gpu or (e.device_type == DeviceType.CUDA and not e.is_user_annotation)
    ]
    total = sum(e["ms"] for e in events)
    counters = power.gauge(device)
    return {
        "format": FORMAT,
        "mode": "profile",
        "device": devices.kind(device),
        "machine": machine,
        "what": entry.label,
        "kernel": contestant.kernel,
        "steps": STEPS,
        "runs": entry.runs,
        "ms": total,
        "sustained": power.sustained(contestant.step, device, counters) if counters else None,
        "events": [e | {"share": e["ms"] / total if total else 0.0} for e in sorted(events, key=lambda e: -e["ms"])],
    }


def read(content: dict[str, Any], path: Path) -> dict[str, Any]:
    """Read a profile's content, and check what the table needs."""
    try:
        events = [
            {"name": str(e["name"]), "count": int(e["count"]), "ms": float(e["ms"]), "share": float(e["share"])}
            for e in content["events"]
        ]
        numbers = {"ms": float(content["ms"]), "steps": int(content["steps"]), "runs": int(content["runs"])}
        if min(numbers.values()) < 0 or not numbers["steps"] or not numbers["runs"]:
            raise ValueError("a number below its least")
        sustained = content.get("sustained") and {key: float(content["sustained"][key]) for key in power.KEYS}
        texts = {key: str(content[key]) for key in ("what", "kernel")}
        return {**content, **numbers, **texts, "events": events, "sustained": sustained}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"{path} is a damaged profile: {error!r}. Profile again with --json.") from None


def table(record: dict[str, Any]) -> Table:
    """The events that take the most time."""
    from rich.table import Table
    from rich.text import Text

    ms = record["ms"] / record["steps"] / record["runs"]
    shown = Table(
        title=Text(
            f"{record['what']} (kernel {record['kernel']}): {ms:.4g} ms a run-batch over {record['steps']} steps, "
            "overlapping work counted in full"
        ),
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    # Template names are very long; numbers must not give way to them.
    for name in ("count", "total ms", "share"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("name", no_wrap=True, overflow="ellipsis", max_width=NAME)
    for event in record["events"][:LINES]:
        shown.add_row(f"{event['count']:,}", f"{event['ms']:.3f}", f"{event['share']:.1%}", Text(event["name"]))
    rest = record["events"][LINES:]
    if rest:
        rest_ms = sum(e["ms"] for e in rest)
        share = sum(e["share"] for e in rest)
        shown.add_row("", f"{rest_ms:.3f}", f"{share:.1%}", Text(f"{len(rest)} others", style="dim"))
    if record["sustained"]:
        shown.caption = Text(power.in_words(record["sustained"], record["runs"]))
        shown.caption_justify = "left"
    return shown
