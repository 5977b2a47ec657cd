"""The whole page: complete in itself, the same bytes for the same input."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from unroll.base.atomic_files import finite
from unroll.base.version import VERSION
from unroll.report import layouts
from unroll.report.curves import Curves
from unroll.report.gathering import Gathered
from unroll.report.sections import Part
from unroll.studies.paper import causes, instability
from unroll.studies.paper.claims.thresholds import WARM_UP
from unroll.studies.paper.figures import ARCHITECTURES, PAPERS_DEVICE, PAPERS_MS, SMALLER
from unroll.studies.paper.records import Record

SCRIPTS = (
    "facts.js", "scales.js", "series.js", "chart.js", "figure.js", "curve_figure.js", "drift.js", "tables.js",
    "runs_table.js", "paper_tables.js", "coloured_text.js", "beside.js", "texts.js", "samples.js", "units.js",
    "blocks.js", "page.js",
)  # fmt: skip
PAPER_TITLE = "Character-level recurrent networks in practice, reproduced"
ENDED = ("finished", "stopped")


def page(gathered: Gathered, verdicts: Sequence[Mapping[str, Any]] = (), parts: Sequence[Part] = ()) -> str:
    """The page's text; `verdicts` are those of `unroll.studies.paper.claims` as plain data."""
    page_curves = Curves()
    figures = layouts.paper(gathered.records, page_curves) + layouts.runs(gathered.runs, page_curves)
    curves, grids = page_curves.facts()
    timing = gathered.records.get("timing")
    smaller = SMALLER if timing and timing.scale < 1 else 1
    data = {
        "figures": figures,
        "curves": curves,
        "grids": grids,
        "verdicts": [dict(verdict) for verdict in verdicts],
        "findings": _findings(gathered.records),
        "times": [asdict(time) for time in timing.times] if timing else [],
        "warm_up": WARM_UP,
        "paper_times": {"device": PAPERS_DEVICE, "shapes": ARCHITECTURES, "ms": PAPERS_MS, "smaller": smaller},
        "notes": _notes(gathered),
        "parts": [asdict(part) for part in parts],
    }
    return _filled(_title(gathered), _subtitle(gathered.records), data)


def _findings(records: Mapping[str, Record]) -> list[dict[str, Any]]:
    """What the records say beyond the claims, as sections of tables; a section without a table is left out."""
    readings = instability.readings(records)
    scored = any(run.apart for run in readings)
    sections = (
        (
            "instability",
            "Why conditional training looks unstable",
            instability.ABOUT,
            instability.every_table(readings) if scored else {},
        ),
        ("causes", "What lies behind unexpected verdicts", causes.ABOUT, causes.every_table(records)),
    )
    return [
        {"id": id, "title": title, "about": about, "tables": [{"title": t, **asdict(tables[t])} for t in tables]}
        for id, title, about, tables in sections
        if tables
    ]


def _filled(title: str, subtitle: str, data: Mapping[str, Any]) -> str:
    script = '"use strict";\n' + "\n".join(_text(name) for name in SCRIPTS)
    style = _text("page.css")
    values = {
        "TITLE": html.escape(title),
        "SUBTITLE": html.escape(subtitle),
        "VERSION": html.escape(VERSION),
        "STYLE": style,
        "STYLE_HASH": _hash(style),
        "SCRIPT": script,
        "SCRIPT_HASH": _hash(script),
        "DATA": embedded(data),
    }
    # Piece by piece, in one pass: a value that is filled in may itself look like a name to replace.
    pieces = _text("page.html").split("@")
    return "".join(values.get(piece, piece) if i % 2 else piece for i, piece in enumerate(pieces))


def embedded(data: Any) -> str:
    """JSON that cannot end its element: no <, > or &, and nothing but ASCII.

    >>> embedded({"name": "</script>"})
    '{"name":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(finite(data), separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _text(name: str) -> str:
    return (files("unroll.report") / name).read_text("utf-8")


def _hash(text: str) -> str:
    """The hash that a browser asks of the element, or it does not use it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _title(gathered: Gathered) -> str:
    if gathered.records:
        return PAPER_TITLE
    names = list(dict.fromkeys(name for name, _ in gathered.runs))
    return names[0] if len(names) == 1 else f"{len(names):,} runs"


def _subtitle(records: Mapping[str, Record]) -> str:
    if not records:
        return "Test perplexity while training, and every run's configuration"
    seeds = sorted({seed for record in records.values() for seed in record.seeds})
    scale = next(iter(records.values())).scale
    versions = sorted({record.unroll for record in records.values()})
    words = "De Boom, Demeester and Dhoedt, Comparing Training and Sampling Schemes"
    scale_and_seeds = f"scale {scale:g}, seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
    return f"{words}: {scale_and_seeds}, unroll {', '.join(versions)}"


def _notes(gathered: Gathered) -> list[str]:
    """What a reader must know before the rest."""
    notes = []
    scale = next((record.scale for record in gathered.records.values()), 1.0)
    if scale < 1:
        notes.append(f"The paper in small (scale {scale:g}): it shows that everything runs, and judges nothing.")
    curves = [curve for record in gathered.records.values() for curve in record.curves]
    curves += [curve for _, curve in gathered.runs]
    rebuilt = sorted({curve.title for curve in curves if "(reconstruction)" in curve.title})
    if rebuilt:
        notes.append(
            f"Not the paper's own files: {', '.join(rebuilt)}. Their perplexities can be compared with each other, "
            "and with the paper's only in kind."
        )
    unfinished = sorted({name for name, curve in gathered.runs if curve.state not in ENDED})
    if unfinished:
        notes.append(f"Not finished: {', '.join(unfinished)}.")
    return [*notes, *gathered.notes, *gathered.left_out]
