"""A run on another machine than it began on. It gets what the user asks for now, or a refusal in words. Where only the
record asks for what this machine lacks, it takes what there is, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from unroll.base.errors import ConfigurationError, RunError
from unroll.engines import devices, kernels, precisions
from unroll.experiment.experiment import Experiment


def here(
    run: Experiment, device: str | None = None, threads: int | None = None, status: Mapping[str, Any] | None = None
) -> tuple[Experiment, list[str]]:
    """The run as it can go on here, and each thing about it that changes, in words.

    run.toml may have been changed by hand: what the run computed with last is in its `status`, once it has begun.
    """
    where = _device(run.device if device is None else device, asked=device is not None)
    wrong = precisions.why_not(run.precision, devices.find(where))
    if wrong:
        raise RunError(f"This run cannot go on here: {wrong}. Resume it on a device that has it, or start a new run.")
    changed = replace(run, device=where, threads=_threads(run.threads, threads))
    changed = replace(changed, kernel=_kernel(changed, moved=devices.kind(where) != devices.kind(run.device)))
    last = {name: value for name, value in (status or {}).items() if name in ("kernel", "threads")}
    before = {name: getattr(run, name) for name in ("device", "kernel", "threads")} | last
    changes = [
        f"{name} was {was}, is {now}"
        for name, was in before.items()
        if (now := getattr(changed, name)) != was and now not in (None, "auto")
    ]
    was, now = str((status or {}).get("device", "")), devices.describe(devices.find(where))
    # Older runs say less of a processor than is known here. Another kind of device is another processor anyway.
    if not now.startswith(was) and devices.kind(where) == devices.kind(run.device):
        changes.append(f"processor was {was}, is {now}")
    return changed, changes


def places(name: str) -> tuple[str, ...]:
    """The devices that a sweep's device names, and this machine has; the best one there is where it has none."""
    with suppress(ConfigurationError):
        return devices.places(name)
    if devices.always_there(name):
        return (name,)  # why it cannot be used is said where it is
    left: list[str] = []
    for part in name.split(","):
        with suppress(ConfigurationError):
            left += devices.places(part if part.startswith("cuda") else f"cuda:{part}")
    return tuple(left) or (devices.best(),)


def _device(name: str, asked: bool) -> str:
    """The device of that name; one that is only recorded, and gone, is replaced by the best there is."""
    if name == "auto":
        return devices.best()
    try:
        devices.find(name)
    except ConfigurationError:
        if asked or devices.always_there(name):
            raise
        return devices.best()
    return name


def _threads(recorded: int | None, asked: int | None) -> int | None:
    """The threads asked for; or the recorded ones, but no more than this machine takes."""
    if asked is not None:
        devices.require_threads(asked)
        return asked
    return devices.cores() if recorded is not None and recorded > devices.most_threads() else recorded


def _kernel(run: Experiment, moved: bool) -> str:
    """The kernel of before where it still runs this; on another kind of device the fastest there."""
    network, device = devices.outline(run), devices.find(run.device)
    wrong = None if run.kernel == "auto" else kernels.load(run.kernel).supports(network, device)
    if run.kernel == "auto" or not (moved or wrong):
        return run.kernel
    try:
        return kernels.choose(network, device)
    except ConfigurationError:
        # Its advice is for a run that has not begun.
        reasons = " ".join(kernels.refusals(network, device))
        raise RunError(
            f"This run cannot go on here: on {run.device} no kernel computes its {run.cell} in {run.precision}. "
            f"{reasons} Resume it where it began, or start a new run."
        ) from None
