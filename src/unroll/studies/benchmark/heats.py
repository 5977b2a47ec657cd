"""Time contestants side by side.

The contestants of a group run in turn, block by block, and every other block reverses the order: a clock that drifts
or a neighbour that wakes up then touches all of them alike.

Contestants meet in heats: as many at a time as fit into memory. A contestant that fails becomes a row that says why,
and the others go on.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from unroll.engines import devices
from unroll.studies.benchmark.contestants import Entry, ReadyContestant
from unroll.studies.benchmark.record import Row
from unroll.training import memory

FULL = 0.5  # of a device's memory taken: the others wait for the next heat
LENGTH = 300  # characters of a reason


@dataclass(frozen=True)
class Timing:
    """How long a block lasts, and how many there are."""

    seconds: float  # a block lasts about this long
    blocks: int
    warm_up: int  # steps before the clock counts: the first ones compile and record


TIMING = {"cuda": Timing(0.12, 5, 5), "cpu": Timing(0.3, 3, 1)}
QUICK_TIMING = {"cuda": Timing(0.03, 3, 5), "cpu": Timing(0.05, 2, 1)}


def run_group(
    group: Sequence[Entry],
    build: Callable[[Entry], ReadyContestant],
    device: torch.device,
    timing: Timing,
    tell: Callable[[Row], None],
) -> list[Row]:
    """Every entry's row, in the group's order; `tell` gets each as soon as it is known."""
    rows: dict[Entry, Row] = {}
    waiting = list(group)
    while waiting:
        heat, waiting = _ready(waiting, build, device, timing, rows, tell)
        _race(heat, device, timing, rows)
        for entry in heat:
            tell(rows[entry])
        heat.clear()
        _free(device)
    return [rows[entry] for entry in group]


def _ready(
    waiting: Sequence[Entry],
    build: Callable[[Entry], ReadyContestant],
    device: torch.device,
    timing: Timing,
    rows: dict[Entry, Row],
    tell: Callable[[Row], None],
) -> tuple[dict[Entry, ReadyContestant], list[Entry]]:
    """Return the entries that fit into memory together, warmed up, and those that wait."""
    heat: dict[Entry, ReadyContestant] = {}
    later: list[Entry] = []
    for entry in waiting:
        if heat and _full(device):
            later.append(entry)
            continue
        prepared, crowded = _prepared(entry, build, device, timing)
        if not isinstance(prepared, str):
            heat[entry], steps = prepared
            kernel = heat[entry].kernel
            rows[entry] = Row(entry.shape, entry.contestant, entry.precision, entry.runs, kernel, steps)
            continue
        _free(device)
        if crowded and heat:
            later.append(entry)
        else:
            rows[entry] = Row(entry.shape, entry.contestant, entry.precision, entry.runs, problem=prepared)
            tell(rows[entry])
    return heat, later


def _prepared(
    entry: Entry, build: Callable[[Entry], ReadyContestant], device: torch.device, timing: Timing
) -> tuple[tuple[ReadyContestant, int] | str, bool]:
    """Return the contestant and the steps of its block; or why not, and whether others in memory may be to blame.

    This is a function of its own so that its return lets go of what a failed contestant held.
    """
    try:
        contestant = build(entry)
        return (contestant, _steps(contestant, device, timing)), False
    except Exception as error:
        return reason(error), memory.ran_out(error)


def _steps(contestant: ReadyContestant, device: torch.device, timing: Timing) -> int:
    """Count the steps of a block, after the warm-up."""
    warm = seconds(contestant.step, timing.warm_up, device)
    if devices.is_host(device) and warm / timing.warm_up >= timing.seconds:
        return 1
    steps = 1
    while (taken := seconds(contestant.step, steps, device)) < timing.seconds / 4:
        steps *= 2
    return max(1, math.ceil(steps * timing.seconds / taken))


def _race(heat: dict[Entry, ReadyContestant], device: torch.device, timing: Timing, rows: dict[Entry, Row]) -> None:
    """Block by block, in alternating order."""
    for block in range(timing.blocks):
        order = list(heat) if block % 2 == 0 else list(reversed(heat))
        for entry in order:
            row = rows[entry]
            if row.problem:
                continue
            try:
                taken = seconds(heat[entry].step, row.steps, device)
                loss = heat[entry].loss()
            except Exception as error:
                rows[entry] = replace(row, problem=reason(error))
                continue
            rows[entry] = replace(row, ms=(*row.ms, taken * 1e3 / row.steps / row.runs), loss=loss)
            if loss is None or not math.isfinite(loss):
                rows[entry] = replace(rows[entry], loss=None, problem="its loss was not finite")


def seconds(step: Callable[[], None], steps: int, device: torch.device) -> float:
    """Time this many steps, from an idle device to an idle device."""
    devices.wait(device)
    began = time.perf_counter()
    for _ in range(steps):
        step()
    devices.wait(device)
    return time.perf_counter() - began


def reason(error: BaseException) -> str:
    """An exception in a line."""
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}"[:LENGTH] if words else type(error).__name__


def _full(device: torch.device) -> bool:
    if devices.is_host(device):
        return False
    devices.give_back()
    left = devices.free_share(device)
    return left is not None and left < 1 - FULL


def _free(device: torch.device) -> None:
    gc.collect()
    if not devices.is_host(device):
        devices.give_back()
