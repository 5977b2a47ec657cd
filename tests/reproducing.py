"""Reproductions of a small part of the grid on four small texts, and processes that are killed in the midst of them."""

from __future__ import annotations

import json
import os
import random
import signal
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from unroll.studies.paper import reproduction
from unroll.studies.paper.figures import BEST, CORPORA, FIGURES, K1_OF_K2, Series, series
from unroll.studies.paper.records import Time
from unroll.studies.paper.reproduction import Reproduction
from unroll.sweep.launchers import Begun, Report

SCALE = 0.00125  # 16 batches
# Two figures that share a training, one whose times must mean something, and what differs in more than k1.
PART: dict[str, tuple[Series, ...]] = {
    **dict.fromkeys(FIGURES, ()),
    "schemes": (
        *series(["english"], [1, 3], BEST, [20], 20),
        *series(["music"], [1, 4], BEST, [20], 20),
        *series(["english"], [4], BEST, [20]),
    ),
    "k2": series(["music"], [1, 2, 3, 4], BEST, K1_OF_K2[20], 20),
    "extras": (*series(["english"], [4], BEST, [20]), *series(["english"], [4], BEST, [20], variant={"reset": 0.1})),
}


def texts(folder: Path) -> Path:
    """Four texts with vocabularies of their own; music is notes."""
    folder.mkdir()
    drawn = random.Random(0)
    for name, letters in zip(CORPORA, ("abcdefgh ", "abcdäöå ", "{}();= \n"), strict=False):
        (folder / f"{name}.txt").write_text("".join(drawn.choices(letters, k=12_000)))
    pieces = (" ".join(drawn.choices(["C4", "E4", "G4", "A#3"], k=400)) for _ in range(30))
    (folder / "music.txt").write_text("\n".join(pieces) + "\n")
    return folder


def partly() -> ExitStack:
    """A part of the grid, one fleet after the other in this process."""
    stack = ExitStack()
    stack.enter_context(mock.patch.dict(FIGURES, PART))
    stack.enter_context(mock.patch.object(Reproduction, "_launcher", return_value="local"))
    return stack


def drive(data: Path, out: Path, figures: list[str] | None = None, **options: Any) -> list[Report]:
    """To the end, in this process."""
    times: list[Time] = []
    with partly():
        asked = Reproduction(figures or ["schemes", "k2", "extras"], data, out, **{"scale": SCALE, **options})
        return list(asked.run(times.append, save_every=5))


def begun(reports: list[Report]) -> list[str]:
    """The fleets that trained."""
    return [report.fleet for report in reports if isinstance(report, Begun)]


def result(out: Path) -> dict[str, Any]:
    """The records without clocks, and what else is in the folder."""
    results: dict[str, Any] = {"files": sorted(str(p.relative_to(out)) for p in out.rglob("*"))}
    for path in sorted((out / "records").iterdir()):
        content = json.loads(path.read_text())
        for curve in content["curves"]:
            del curve["points"]["seconds"], curve["evaluating"]
        results[path.name] = content
    return results


@dataclass(frozen=True)
class Job:
    """A process that reproduces, and dies at the n-th moment on disk."""

    data: str
    out: str
    at: int


def live(job: Job, report: Connection) -> None:
    """Every rename and every deletion is a moment, counted before it and after."""
    torch.set_num_threads(1)
    count = 0
    replace, rmtree = os.replace, reproduction.shutil.rmtree

    def moment(name: str) -> None:
        nonlocal count
        count += 1
        if count == job.at:
            report.send(("moment", (name, count)))
            os.kill(os.getpid(), signal.SIGKILL)

    def renamed(source: Any, target: Any) -> None:
        moment(f"before {target}")
        replace(source, target)
        moment(f"after {target}")

    def removed(path: Path, **options: Any) -> None:
        moment(f"before deleting {path}")
        (path / "status.json").unlink(missing_ok=True)
        moment(f"deleting {path}")
        rmtree(path, **options)
        moment(f"after deleting {path}")

    with mock.patch.object(os, "replace", renamed), mock.patch.object(reproduction.shutil, "rmtree", removed):
        drive(Path(job.data), Path(job.out))
