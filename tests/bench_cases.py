"""Tiny shapes and racers that the benchmark's tests share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from unroll import Corpus
from unroll.studies.benchmark.contestants import Entry, ReadyContestant
from unroll.studies.benchmark.floors import Rate
from unroll.studies.benchmark.heats import Timing
from unroll.studies.benchmark.record import Record, Row
from unroll.studies.benchmark.shapes import Shape, random_corpus

CPU = torch.device("cpu")
TIMING = Timing(seconds=0.0001, blocks=3, warm_up=1)


def tiny_shape(**changes: Any) -> Shape:
    return Shape(**{"hidden": 8, "k1": 4, "k2": 6, "rows": 3, "dense": 12, "vocabulary": 16} | changes)


def tiny_corpus(shape: Shape) -> Corpus:
    return random_corpus(shape.vocabulary, 900)


def contestant(step: Callable[[], None] = lambda: None, loss: float | None = 1.0) -> ReadyContestant:
    return ReadyContestant(step, lambda: loss, "some kernel")


def entries(*names: str) -> list[Entry]:
    return [Entry(tiny_shape(), name, "float32") for name in names]


def a_record(**changes: Any) -> Record:
    """Two shapes, a fleet, a peer, and a row that failed."""
    rows = []
    for shape in (Shape(), Shape(layers=2, procedure="conditional")):
        rows += [
            Row(shape, "unroll", "float32", 1, "stacked", 3, (2.0, 1.0, 4.0), 4.4),
            Row(shape, "unroll-fleet", "float32", 21, "stacked", 2, (0.5, 0.5), 4.4),
            Row(shape, "lstm-eager", "float32", 1, "cuDNN", 5, (8.0, 8.0), 4.4),
            Row(shape, "lstm-graphed", "tf32", 1, "cuDNN", 5, (6.0,), 4.4),
            Row(shape, "flashrnn", "bfloat16", 1, problem="ModuleNotFoundError: No module named 'flashrnn'"),
        ]
    content: dict[str, Any] = {
        "mode": "comparison",
        "device": "cuda",
        "machine": {"processor": "A $1 [bold]processor", "torch": "2.11", "unroll": "0.1"},
        "settings": {},
        "rates": {"float32": Rate(1024, (1.0, 2.0)), "tf32": Rate(1024, (0.5,))},
        "rows": tuple(rows),
        "notes": ("a note",),
        "date": "2025-01-01",
    }
    return Record(**content | changes)


def is_picture(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG")
