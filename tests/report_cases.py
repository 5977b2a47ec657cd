"""Invented records of the whole paper, with curves like real ones, the same every time; and pages, read back."""

from __future__ import annotations

import hashlib
import json
import math
import random
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from unroll.studies.paper.figures import ARCHITECTURES, FIGURES, TABLE, Series
from unroll.studies.paper.records import CARRIED, Curve, Record, Time, significant, write

BATCHES = sorted({round(12800 ** (i / 39)) for i in range(40)})
FLOORS = {"english": 3.4, "finnish": 3.6, "linux": 3.3, "music": 8.0}


def curve(one: Series, seed: int = 0, **changes: Any) -> Curve:
    """A curve at one point of the paper's grid."""
    drawn = random.Random(f"{one} {seed}")
    start, floor = drawn.uniform(84, 100), FLOORS.get(one.corpus, 5.0) * drawn.uniform(0.97, 1.06)
    slow = {1: 1.0, 2: 0.7, 3: 0.97, 4: 0.95}[one.scheme]
    wild = one.scheme == 4 and drawn.random() < 0.4
    stops = wild and drawn.random() < 0.25
    values = []
    for batch in BATCHES:
        learnt = (batch / 60) ** slow * (1 + one.hidden / 512)
        value = floor + (start - floor) / (1 + learnt) * drawn.uniform(0.97, 1.03)
        if wild and batch > 300:
            value *= (batch / 300) ** drawn.uniform(0.2, 0.7)
        values.append(value)
    kept = [batch for batch in BATCHES if not (stops and batch > 2000)]
    values = values[: len(kept)]
    scored = [significant(value, 6) for value in values]
    other = [None] * (len(kept) - 1) + [significant(values[-1] * 1.02, 6)]
    sample = one.sample
    points: dict[str, list[Any]] = {
        "batch": kept,
        "sequences": [batch * 64 for batch in kept],
        "loss": [significant(math.log(value * 0.97), 6) for value in values],
        "windowed": scored if sample == "windowed" else other,
        "progressive": scored if sample == "progressive" else other,
        "seconds": [significant(0.002 * batch * one.layers * one.k2 / 100, 4) for batch in kept],
    }
    if one.scheme == 4 and not one.varied:
        points[CARRIED] = [significant(value * 1.01, 6) for value in values]
    facts: dict[str, Any] = {
        "corpus": one.corpus,
        "title": one.corpus if one.corpus == "linux" else f"{one.corpus} (reconstruction)",
        "sha256": hashlib.sha256(one.corpus.encode("utf-8", "surrogatepass")).hexdigest(),
        "scheme": one.scheme, "train": one.train, "sample": sample, "layers": one.layers, "hidden": one.hidden,
        "k1": one.k1, "k2": one.k2, "seed": seed, "batches": 12800, "rows": 64, "variant": one.variant,
        "identity": hashlib.sha256(f"{one.train} {one} {seed}".encode("utf-8", "surrogatepass")).hexdigest(),
        "state": "stopped" if stops else "finished",
        "reason": "At batch 2001 the loss is not finite." if stops else None,
        "stopped_at": 2001 if stops else None,
        "fleet": 28, "kernel": "persistent", "precision": "bfloat16", "device": "NVIDIA H200", "evaluating": 1.2,
        "points": points,
    }  # fmt: skip
    return Curve(**facts | changes)


def records(seeds: int = 1, extras: bool = True, scale: float = 1.0) -> list[Record]:
    """Every figure of the paper, and its table."""
    results = []
    for name, all_series in FIGURES.items():
        if name == "extras" and not extras:
            continue
        several = range(seeds if name in ("schemes", "datasets", "k2") else 1)
        curves = tuple(curve(one, seed) for one in all_series for seed in several)
        times = tuple(_time(one, fleet) for one in TABLE for fleet in (1, 28)) if name == "timing" else ()
        results.append(Record(name, scale, tuple(several), "0.2", curves, times))
    return results


def _time(one: Series, fleet: int) -> Time:
    size = 1 + ARCHITECTURES.index((one.layers, one.hidden))
    samplers = {"windowed_naive": 1.1 * size, "windowed": 0.05 * size, "progressive": 0.04 * size}
    batch = 0.7 * size * (0.8 if one.scheme == 2 else 1)
    return Time(one.scheme, one.layers, one.hidden, fleet, batch / fleet**0.7, samplers, "NVIDIA H200", "bfloat16")


def write_all(folder: Path, made: list[Record]) -> Path:
    """A folder as `unroll reproduce` leaves it."""
    for record in made:
        write(folder, record)
    return folder


def verdicts() -> list[dict[str, Any]]:
    """One of each kind, in the form that the claims have as plain data."""
    kinds = ("holds", "holds in part", "does not hold", "not judged", "cannot be told")
    return [
        {
            "claim": f"C{i + 1}",
            "words": f"What the paper says, {i + 1}",
            "verdict": kind,
            "measured": f"scheme 1 is {1.02 + i:.2f} times the best of the other three",
            "threshold": "at most 1.02 times on each of the four",
            "figures": ["schemes", "timing"],
            "parts": [
                {
                    "says": "one part",
                    "held": None if kind == "cannot be told" else i % 2 == 0,
                    "measured": "3.41",
                    "threshold": "at most 3.5",
                    "intervals": "Intervals: English 3.4 to 3.6.",
                }
            ],
            "evidence": {"columns": ["data set", "best"], "rows": [["english", 3.41], ["music", None]]},
        }
        for i, kind in enumerate(kinds)
    ]


class Elements(HTMLParser):
    """The elements of a page, and the text of its scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {"script": [], "style": [], "title": []}
        self._inside: str | None = None

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))
        self._inside = tag if tag in self.texts else self._inside
        if tag in self.texts:
            self.texts[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = None if tag == self._inside else self._inside

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.texts[self._inside][-1] += data


def parsed(text: str) -> Elements:
    """A page, read as a browser reads it."""
    elements = Elements()
    elements.feed(text)
    return elements


def data_of(text: str) -> Any:
    """The data that a page holds."""
    return json.loads(parsed(text).texts["script"][0])
