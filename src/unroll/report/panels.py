"""Curves -> a figure: each has a panel, a colour (its group) and a line, and the seeds of one line stand together."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from unroll.report.curves import Curves
from unroll.studies.paper.records import Curve

# What sorts a label, and the label.
Label = tuple[Any, str]
Labelled = Callable[[Curve], Label]


@dataclass(frozen=True)
class Layout:
    """How curves become a figure."""

    name: str
    title: str
    about: str
    panel: Labelled
    group: Labelled
    line: Labelled
    group_by: str
    line_by: str
    x: str = "sequences"
    top: float | None = None  # where the first view of the perplexity axis ends


def figure(layout: Layout, curves: Sequence[Curve], page_curves: Curves) -> dict[str, Any]:
    """The figure as the page's data; curves stand there by their numbers in `page_curves`."""
    groups = _labels(curves, layout.group)
    lines = _labels(curves, layout.line)
    panels = []
    for title in _labels(curves, layout.panel):
        inside = [curve for curve in curves if layout.panel(curve) == title]
        together: dict[tuple[int, int], list[Curve]] = {}
        for curve in inside:
            key = groups.index(layout.group(curve)), lines.index(layout.line(curve))
            together.setdefault(key, []).append(curve)
        series = [
            {"group": group, "line": line, "curves": [page_curves.number(curve) for curve in seeds]}
            for (group, line), several in sorted(together.items())
            for seeds in _seeds(several)
        ]
        panels.append({"title": title[1], "series": series})
    return {
        "name": layout.name,
        "id": "figure-" + re.sub(r"[^a-z0-9]+", "-", layout.name.lower()).strip("-"),
        "title": layout.title,
        "about": layout.about,
        "x": layout.x,
        "top": layout.top,
        "group_by": layout.group_by,
        "line_by": layout.line_by,
        "groups": [label for _, label in groups],
        "lines": [label for _, label in lines],
        "panels": panels,
    }


def _labels(curves: Sequence[Curve], labelled: Labelled) -> list[Label]:
    return sorted({labelled(curve) for curve in curves})


def _seeds(curves: Sequence[Curve]) -> list[list[Curve]]:
    """Gather several seeds into one band; curves of one seed are not seeds of each other, and stay apart."""
    several = sorted(curves, key=lambda curve: curve.seed)
    if len({curve.seed for curve in several}) == len(several):
        return [several]
    return [[curve] for curve in several]
