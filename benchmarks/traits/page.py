"""The records as the marked tables of docs/schemes.md.

The same records give the same bytes. Numbers are means over seeds, ± their standard deviation where there are several.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from traits import picture
from traits.plan import OF_SCHEMES
from traits.records import (
    QUARTERS,
    SCHEMES,
    Records,
    at_position,
    half_copied,
    read,
    share_by_quarter,
    windowed_nats,
)
from unroll.base import atomic_files
from unroll.studies.paper.page import fill

ABSENT = "There are no records yet: `python benchmarks/scheme_traits.py train --data FOLDER` writes them."
EARLY = (10, 20, 50, 100, 200)  # batches, or the last evaluation before
FIRST = (1, 2, 5)  # positions
EDGES = (1, 2, 6, 11, 21, 51, 101, 201)  # where bins of distances begin


def judge(results: Path, docs: Path) -> str:
    """Renew the blocks of docs/schemes.md and the picture; return the blocks as one text."""
    records = read(results)
    if records.text or records.copy:
        picture.save(records, docs / picture.NAME)
    contents = blocks(records)
    page = docs / "schemes.md"
    atomic_files.write(page, fill(page.read_text("utf-8"), contents).encode())
    return "\n\n".join(contents.values())


def blocks(records: Records) -> dict[str, str]:
    """Every marked block that these records fill."""
    return {
        "traits": _provenance(records),
        "traits-position": _positions(records) if records.text else ABSENT,
        "traits-copy": _copies(records) if records.copy else ABSENT,
        "traits-start": _starts(records) if records.text else ABSENT,
        "traits-recovery": _recoveries(records) if records.text else ABSENT,
    }


def _provenance(records: Records) -> str:
    if not records.heads:
        return ABSENT
    lines = []
    for kind, hidden in (("text", "hidden"), ("copy", "copy_hidden")):
        heads = [head for head in records.heads if head["kind"] == kind]
        runs = getattr(records, kind)
        if not heads:
            continue
        s = heads[0]["settings"]
        seconds = sum(sum(head["seconds"].values()) for head in heads)
        titles = ", ".join(dict.fromkeys(run["title"] for run in runs))
        stopped = sum(run["state"] == "stopped" for run in runs)
        lines.append(
            f"- {titles}: {len(runs)} trainings of {s['batches']:,} batches, r = 1, γ = {s[hidden]}, k1 = 2/5 of k2, "
            f"{len(s['seeds'])} seeds, {s['precision']}, {heads[0]['device']}, {seconds:.0f} s in all"
            + (f"; {stopped} stopped" if stopped else "")
        )
    return "\n".join([*lines, "", f"![What the paper says of the schemes, measured]({picture.NAME})"])


def _positions(records: Records) -> str:
    rows: list[list[str]] = []
    contests: list[list[str]] = []
    k2 = records.heads[0]["settings"]["k2"]
    reach = len(records.text[0]["positions"])
    near = max(1, k2 // 5)
    shown = [p for p in dict.fromkeys((1, 2, 5, 10, near, k2 // 2, k2, 2 * k2, reach)) if 1 <= p <= reach]
    shown.sort()
    for corpus in records.corpora:
        for training in OF_SCHEMES:
            runs = records.seeds("text", corpus=corpus, training=training)
            if runs:
                gains = [at_position(run, near) - at_position(run, k2) for run in runs]
                cells = [_spread([at_position(run, p) for run in runs], 3, p == k2) for p in shown]
                rows.append([runs[0]["title"], training, *cells, _spread(gains, 3)])
        contests += _contest(records, corpus, k2)
    parts = [_table(["text", "training", *(f"p = {p}" for p in shown), f"gain from {near} to {k2}"], rows)]
    if contests:
        ratio = records.pace["single-loss"]["milliseconds"] / records.pace["multi-loss"]["milliseconds"]  # type: ignore[index]
        runs = records.pace["multi-loss"]["runs"]  # type: ignore[index]
        columns = ["text", "compared", "batches of multi-loss", "multi-loss", "single-loss", "multi-loss better by"]
        parts.append(
            f"At p = k2 = {k2}, in nats. A batch of single-loss takes {ratio:.2f} of the time of one of multi-loss "
            f"({runs} runs side by side in both); multi-loss after fewer batches is read off its curve."
        )
        parts.append(_table(columns, contests))
    return "\n\n".join(parts)


def _contest(records: Records, corpus: str, k2: int) -> list[list[str]]:
    """Multi-loss against single-loss at the last position: after as many batches, and after as long."""
    multi, single = (records.seeds("text", corpus=corpus, training=t) for t in ("multi-loss", "single-loss"))
    if not records.pace or not multi or [r["seed"] for r in multi] != [r["seed"] for r in single]:
        return []
    paces = [records.pace[t]["milliseconds"] for t in ("single-loss", "multi-loss")]
    rows = []
    for words, share in (("equal batches", 1.0), ("equal time", paces[0] / paces[1])):
        batches = [share * run["batch"] for run in single]
        ours = [windowed_nats(run, batch) for run, batch in zip(multi, batches, strict=True)]
        theirs = [windowed_nats(run, run["batch"]) for run in single]
        better = [t - o for o, t in zip(ours, theirs, strict=True)]
        mean_batch = f"{statistics.mean(batches):,.0f}"
        rows.append([multi[0]["title"], words, mean_batch, _spread(ours, 3), _spread(theirs, 3), _spread(better, 3)])
    return rows


def _copies(records: Records) -> str:
    rows = []
    names = [f"to {q / 4:g} k2" for q in range(1, QUARTERS + 1)]
    for k2 in sorted({run["k2"] for run in records.copy}):
        for scheme, (training, procedure) in SCHEMES.items():
            runs = records.seeds("copy", k2=k2, training=training)
            if runs:
                shares = [share_by_quarter(run, procedure) for run in runs]
                cells = [_spread([share[q] for share in shares], 2) for q in range(QUARTERS)]
                rows.append([str(k2), f"{scheme}", *cells, ", ".join(half_copied(run, procedure) for run in runs)])
    return _table(["k2", "scheme", *names, "half is copied from batch"], rows)


def _starts(records: Records) -> str:
    rows = []
    every = [run for run in records.text if run["training"] == "multi-loss"] or [*records.text]
    points = [point[0] for point in every[0]["curve"]]
    positions = FIRST
    shown = sorted({max([p for p in points if p <= early], default=points[0]) for early in EARLY} | {points[-1]})
    for corpus in records.corpora:
        learned, zero = (records.seeds("text", corpus=corpus, training=t) for t in ("multi-loss", "zero start"))
        if not learned or [r["seed"] for r in learned] != [r["seed"] for r in zero]:
            continue
        one, other = (
            [[windowed_nats(run, b) for b in shown] + [at_position(run, p) for p in positions] for run in runs]
            for runs in (learned, zero)
        )
        apart = [[z - w for w, z in zip(*pair, strict=True)] for pair in zip(one, other, strict=True)]
        for words, each in (("learned", one), ("zeros", other), ("zeros less learned", apart)):
            rows.append([learned[0]["title"], words, *(_spread(values, 3) for values in zip(*each, strict=True))])
    columns = [*(f"batch {batch:,}" for batch in shown), *(f"p = {p}, at the end" for p in positions)]
    return _table(["text", "first state", *columns], rows)


def _recoveries(records: Records) -> str:
    rows = []
    reach = len(records.text[0]["excess"]["progressive"])
    edges = [edge for edge in EDGES if edge <= reach]
    bins = list(zip(edges, [*(edge - 1 for edge in edges[1:]), reach], strict=True))
    for corpus in records.corpora:
        for training in OF_SCHEMES:
            runs = records.seeds("text", corpus=corpus, training=training)
            for procedure in ("progressive", "windowed") if runs else ():
                each = [_filled(run["excess"][procedure], reach) for run in runs]
                cells = [_spread([statistics.mean(e[a - 1 : b]) for e in each], 3) for a, b in bins]
                rows.append([runs[0]["title"], training, procedure, *cells, _spread([sum(e) for e in each], 2)])
    names = [f"{a}" if a == b else f"{a}–{b}" for a, b in bins]
    errors = [max(run["error_of_sum"].values()) for run in records.text]
    note = (
        f"Over the {records.text[0]['places']} places of a text, which are the same for all, the standard error of the "
        f"nats in all is at most {max(errors):.2f}."
    )
    return f"{_table(['text', 'training', 'conditioning', *names, 'nats in all'], rows)}\n\n{note}"


def _filled(excess: Sequence[float | None], reach: int) -> list[float]:
    """A window's excess over all distances: beyond the window nothing is left of a wrong token."""
    return [math.nan if x is None else x for x in excess] + [0.0] * (reach - len(excess))


def _spread(values: Sequence[float], digits: int, deviation: bool = True) -> str:
    """The mean over seeds ± the standard deviation; a dash where a seed has no number."""
    if not values or any(math.isnan(value) for value in values):
        return "–"
    if not any(values):
        return "0"
    mean = f"{statistics.mean(values):.{digits}f}"
    mean = mean.removeprefix("-") if float(mean) == 0 else mean.replace("-", "−")
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if deviation and len(values) > 1 else mean


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(columns)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))
