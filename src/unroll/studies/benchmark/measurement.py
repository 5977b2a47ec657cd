"""A whole measurement: groups one after the other, with the record so far handed over after each."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch

from unroll.engines import devices
from unroll.studies.benchmark import machine
from unroll.studies.benchmark.contestants import Entry, ReadyContestant
from unroll.studies.benchmark.floors import measure_rate
from unroll.studies.benchmark.heats import Timing, run_group
from unroll.studies.benchmark.numerics import DTYPES
from unroll.studies.benchmark.plan import Group
from unroll.studies.benchmark.record import Record, Row


def measure(
    mode: str,
    groups: Sequence[Group],
    build: Callable[[Entry], ReadyContestant],
    device: torch.device,
    timing: Timing,
    settings: dict[str, Any],
    notes: Sequence[str] = (),
    tell: Callable[[Row], None] = lambda row: None,
    keep: Callable[[Record], None] = lambda record: None,
) -> Record:
    """Measure all groups. `keep` gets the record after each, so that a later failure loses nothing."""
    wanted = {entry.precision for group in groups for entry in group} | (
        set() if devices.is_host(device) else {"bfloat16"}
    )
    rates = {p: measure_rate(p, device) for p in DTYPES if p in wanted}
    before = machine.clocks(device)
    facts = machine.facts(device)
    record = Record(
        mode=mode,
        device=devices.kind(device),
        machine=facts | {"clocks": {"before": before}},
        settings=settings | {"care": asdict(timing)},
        rates=rates,
        rows=(),
        notes=tuple(notes),
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )
    for group in groups:
        rows = run_group(group, build, device, timing, tell)
        # Read the clock while the device is still warm: the clock under load is the one that counts.
        clocks = {"before": before, "after": machine.clocks(device)}
        record = replace(record, rows=(*record.rows, *rows), machine=facts | {"clocks": clocks})
        keep(record)
    return record
