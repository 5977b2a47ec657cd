"""The README's table of schemes says what the paper's records say."""

from __future__ import annotations

import json
from statistics import geometric_mean

from paths import ROOT

CORPORA = ("english", "finnish", "linux", "music")


def over_seeds(scheme: int, corpus: str) -> list[list[float]]:
    """A line for each k1: the perplexity at each evaluation, under the scheme's own reading."""
    curves = json.loads((ROOT / "results/paper/records/schemes.json").read_text("utf-8"))["curves"]
    chosen = [curve for curve in curves if (curve["scheme"], curve["corpus"]) == (scheme, corpus)]
    by_k1: dict[int, list[list[float]]] = {}
    for curve in chosen:
        by_k1.setdefault(curve["k1"], []).append(curve["points"][curve["sample"]])
    return [[geometric_mean(point) for point in zip(*seeds, strict=True)] for seeds in by_k1.values()]


def row(scheme: int) -> list[str]:
    """The numbers of a scheme: its best on each corpus, and its last on Finnish where the table says that."""
    best = [geometric_mean(min(line) for line in over_seeds(scheme, corpus)) for corpus in CORPORA]
    last = geometric_mean(line[-1] for line in over_seeds(scheme, "finnish"))
    return [f"{value:.3f}" for value in (*best, last)]


def test_the_table_of_schemes_has_the_numbers_of_the_records() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    for scheme in (1, 2, 3, 4):
        line = next(line for line in text.splitlines() if line.startswith(f"| {scheme} |"))
        assert [cell.strip() for cell in line.split("|")[4:-1]] == row(scheme)
