"""The records, read back: which runs there are, and what each run's line says."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from traits.measures import share_copied

# How each of the paper's four is trained and conditioned.
SCHEMES = {
    1: ("multi-loss", "windowed"),
    2: ("single-loss", "windowed"),
    3: ("multi-loss", "progressive"),
    4: ("conditional", "progressive"),
}
QUARTERS = 6  # of a window: the farthest symbol stands one and a half windows back
Run = dict[str, Any]


@dataclass(frozen=True)
class Records:
    """What was measured: every run's line, by kind, and the pace of training."""

    text: tuple[Run, ...] = ()
    copy: tuple[Run, ...] = ()
    pace: dict[str, Any] | None = None
    heads: tuple[dict[str, Any], ...] = ()  # settings and machine of each record

    def seeds(self, kind: str, **wanted: Any) -> list[Run]:
        """The runs that differ in their seed alone."""
        runs = [run for run in getattr(self, kind) if all(run[k] == v for k, v in wanted.items())]
        return sorted(runs, key=lambda run: run["seed"])

    @property
    def corpora(self) -> list[str]:
        """The texts, in the order in which they were asked for."""
        asked = [c for head in self.heads for c in head["settings"]["corpora"]]
        return [c for c in dict.fromkeys(asked) if self.seeds("text", corpus=c)]


def read(folder: Path) -> Records:
    """Read all records of a folder."""
    contents = [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]
    runs = {kind: tuple(run for r in contents if r["kind"] == kind for run in r["runs"]) for kind in ("text", "copy")}
    runs["copy"] = tuple(sorted(runs["copy"], key=lambda run: int(run["k2"])))
    pace = next((r["pace"] for r in contents if r["kind"] == "pace"), None)
    heads = [{name: value for name, value in r.items() if name != "runs"} for r in contents if r["kind"] != "pace"]
    return Records(**runs, pace=pace, heads=tuple(heads))


def windowed_nats(run: Run, batch: float) -> float:
    """The nll at position k2 after this many batches: between evaluations, a straight line over log(batch)."""
    points = [(b, math.log(windowed)) for b, windowed, _ in run["curve"] if windowed]
    for (b0, nats0), (b1, nats1) in pairwise(points):
        if b0 <= batch <= b1:
            return nats0 + (nats1 - nats0) * math.log(batch / b0) / math.log(b1 / b0)
    return math.nan


def share_by_quarter(run: Run, procedure: str) -> list[float]:
    """The share of copied answers, by how many quarters of a window back the symbol stands at most."""
    sums = [0.0] * QUARTERS
    counts = [0] * QUARTERS
    for distance, nats in run["nll"][procedure].items():
        quarter = min(QUARTERS - 1, math.ceil(4 * int(distance) / run["k2"]) - 1)
        answers = run["answers"][distance]
        sums[quarter] += answers * (math.nan if nats is None else nats)
        counts[quarter] += answers
    return [
        float(share_copied(total / count, run["symbols"])) if count else math.nan
        for total, count in zip(sums, counts, strict=True)
    ]


def half_copied(run: Run, procedure: str) -> str:
    """The first batch at which half of the answers within the window were copied."""
    for line in run["learning"]:
        nats = line["nll"][procedure]["within"]
        if nats is not None and share_copied(nats, run["symbols"]) >= 0.5:
            return f"{line['batch']:,}"
    return "never"


def at_position(run: Run, position: int) -> float:
    """The mean nll after this many tokens."""
    value = run["positions"][position - 1]
    return math.nan if value is None else float(value)
