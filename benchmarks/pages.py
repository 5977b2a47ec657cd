"""Renew the measured tables of docs/performance.md and docs/sampling.md from the records in results/, and the pictures.

python benchmarks/pages.py
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import advice_tables
import comparisons
import parity
import preset_small
import time_to_loss

from unroll.studies.benchmark import picture, power, record
from unroll.studies.benchmark.contestants import TITLES
from unroll.studies.benchmark.record import Record, Row
from unroll.studies.benchmark.table import fastest_precision
from unroll.studies.paper.page import fill

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
DOCS = ROOT / "docs"
COMPARISON, SCALING = "h200.json", "h200_scaling.json"
PROFILES = ("h200_profile_1x512.json", "h200_profile_1x128.json")
FLEET = (("fleet_ms", 1), ("fleet_ratio", 2))  # of a CPU's record, and the decimals shown
FIRST = 12  # launches of a profile that are listed


def blocks() -> dict[str, dict[str, str]]:
    """Every marked part, by page."""
    return {
        "performance.md": {
            "bench": comparison(opened(COMPARISON)),
            "profiles": "\n\n".join(profile(loaded(name)) for name in PROFILES),
            "cpu": cpus(_processors()),
            "cpu-narrow": cpus_in_bfloat16(_processors()),
            "time-to-loss": times_to_loss(),
            "cpu-cells": cpus_of_cells({cell: _processors(cell) for cell in ("gru", "rnn")}),
            "parity": "\n".join(parity.verdict(parity.GPU)),
            "parity-cpu": "\n".join(parity.verdict(parity.CPU)),
        },
        "compare.md": {f"compare-{name}": comparisons.block(name) for name in comparisons.names()},
        "advise.md": {f"advise-{name}": comparisons.block(name, "advise") for name in comparisons.names("advise")}
        | advice_tables.blocks(),
        "training.md": {
            "preset-small": candidates(),
            "fine-tuning": fine_tuned(json.loads((RESULTS / "training" / "fine_tuning.json").read_text())),
        },
        "sampling.md": {
            f"{device}-{what}": made(loaded(record_of))
            for device, record_of in (("gpu", "sampling_h200.json"), ("cpu", "sampling_cpu.json"))
            for what, made in (("stream", one_stream), ("streams", many_streams))
        },
    }


def loaded(name: str) -> Any:
    return json.loads((RESULTS / "bench" / name).read_text())


def opened(name: str) -> Record:
    path = RESULTS / "bench" / name
    return record.read(record.load(path), path)


def comparison(measured: Record) -> str:
    """One row a contestant, one column a shape: ms a run-batch; then ours against the best peer and the floor."""
    shapes = list(dict.fromkeys(row.shape for row in measured.rows))
    names: dict[str, dict[Any, Row]] = {}
    for row in measured.rows:
        names.setdefault(_name(row), {})[row.shape] = row
    procedures = list(dict.fromkeys(shape.procedure for shape in shapes))
    parts = []
    for procedure in procedures:
        shapes_here = [shape for shape in shapes if shape.procedure == procedure]
        head = [f"r={shape.layers} γ={shape.hidden}" for shape in shapes_here]
        lines = [f"| {procedure} | " + " | ".join(head) + " |", "|---" * (len(shapes_here) + 1) + "|"]
        for name, rows in names.items():
            lines.append(f"| {name} | " + " | ".join(_ms(rows.get(shape)) for shape in shapes_here) + " |")
        best = [(_fastest(measured, shape, ours=True), _fastest(measured, shape, ours=False)) for shape in shapes_here]
        lines.append(
            "| **best of ours against the best peer** | " + " | ".join(f"{b / a:.1f}×" for a, b in best) + " |"
        )
        floors = [_floor(measured, shape) for shape in shapes_here]
        lines.append("| arithmetic floor, bfloat16 | " + " | ".join(f"{floor:.3g}" for floor in floors) + " |")
        shares = [f"{floor / a:.0%}" for floor, (a, _) in zip(floors, best, strict=True)]
        lines.append("| share of the floor | " + " | ".join(shares) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _name(row: Row) -> str:
    if row.contestant == "unroll-fleet":
        return f"Unroll, side by side, {row.precision}"
    return f"Unroll, one run, {row.precision}" if row.contestant == "unroll" else TITLES[row.contestant]


def _ms(row: Row | None) -> str:
    if row is None or row.median is None:
        return "–"
    return f"{row.median:.3g}" + (f" ({row.runs})" if row.runs > 1 else "")


def _fastest(measured: Record, shape: Any, ours: bool) -> float:
    return min(
        row.median
        for row in measured.rows
        if row.shape == shape and row.median is not None and row.contestant.startswith("unroll") == ours
    )


def _floor(measured: Record, shape: Any) -> float:
    row = next(row for row in measured.rows if row.shape == shape)
    return measured.floor(row, fastest_precision(measured)) or float("nan")


def profile(content: Mapping[str, Any]) -> str:
    """List the launches that take most of a step."""
    steps = content["steps"]
    runs = content["runs"]
    lines = [f"| {content['what']} | launches | µs a step | share |", "|---|---|---|---|"]
    for event in content["events"][:FIRST]:
        name = event["name"] if len(event["name"]) < 60 else event["name"].split("<")[0].removeprefix("void ") + "<…>"
        lines.append(
            f"| `{name}` | {event['count'] / steps:g} | {1000 * event['ms'] / steps:.0f} | {event['share']:.1%} |"
        )
    rest = content["events"][FIRST:]
    lines.append(
        f"| {len(rest)} others | {sum(e['count'] for e in rest) / steps:g} | "
        f"{1000 * sum(e['ms'] for e in rest) / steps:.0f} | {sum(e['share'] for e in rest):.1%} |"
    )
    lines.append(f"| sum, {runs} runs side by side | | {1000 * content['ms'] / steps:.0f} | |")
    words = power.in_words(content["sustained"], runs)
    return "\n".join([*lines, "", f"{words[0].upper()}{words[1:]}."])


def fine_tuned(content: Mapping[str, Any]) -> str:
    """The test perplexity of a run from weights and of one from nothing at the same batches, and the lowest of each."""
    seeds = content["runs"]
    batches = [point["batch"] for point in seeds[0]["fine_tuned"]]
    columns = ("batches", *(f"{name}, seed {run['seed']}" for name in ("fine-tuned", "from nothing") for run in seeds))
    rows = [
        (
            f"{batch:,}",
            *(f"{run[kind][n]['perplexity']:.2f}" for kind in ("fine_tuned", "from_nothing") for run in seeds),
        )
        for n, batch in enumerate(batches)
        if batch in (batches[0], batches[-1]) or batch >= batches[-1] / 16
    ]
    return table(columns, rows)


def _processors(kind: str = "training") -> dict[str, Any]:
    """Records of training on a CPU, by processor as LLVM calls it."""
    paths = sorted((RESULTS / "bench").glob(f"cpu_{kind}_*.json"))
    return {path.stem.split("_")[-1]: loaded(path.name) for path in paths}


def cpus(records: Mapping[str, Any]) -> str:
    """Ours, the fastest peer and the products alone; where measured, the peak and the peer that keeps its memory."""
    columns = ("processor", "r", "γ", "loss", "ours, ms", "side by side", "nn.LSTM, ms", "times faster", "side by side")
    columns += ("the products, ms", "the peak, ms", "times, at the peak", "nn.LSTM, memory kept, ms", "times faster")
    rows = []
    for name, case in _cases(records):
        peak = case.get("peak_ms")
        most = (f"{peak:.1f}", f"{case['peer_ms'] / peak:.2f}") if peak else ("–", "–")
        fleet, times = (f"{case[key]:.{decimals}f}" if key in case else "–" for key, decimals in FLEET)
        peer = (f"{case['peer_ms']:.1f}", f"{case['ratio']:.2f}", times, f"{case['floor_ms']:.1f}")
        rows.append((name, *_what(case), f"{case['ours_ms']:.1f}", fleet, *peer, *most, *_kept(case)))
    return table(columns, rows)


def cpus_of_cells(records: Mapping[str, Mapping[str, Any]]) -> str:
    """Ours against torch's own layers of other cells."""
    columns = ("processor", "cell", "r", "γ", "loss", "ours, ms", "torch's, ms", "times faster")
    columns += ("torch's, memory kept, ms", "times faster", "ours in bfloat16, ms")
    rows = []
    for cell, by_processor in records.items():
        for name, case in _cases(by_processor):
            times = (f"{case['ours_ms']:.1f}", f"{case['peer_ms']:.1f}", f"{case['ratio']:.2f}")
            rows.append((name, cell, *_what(case), *times, *_kept(case), f"{case['bfloat16_ms']:.1f}"))
    return table(columns, rows)


def cpus_in_bfloat16(records: Mapping[str, Any]) -> str:
    """Ours in bfloat16, against nn.LSTM in float32, and under autocast."""
    columns = ("processor", "r", "γ", "loss", "ours, ms", "nn.LSTM, float32, ms", "times faster")
    columns += ("nn.LSTM, autocast, ms", "times faster")
    rows = []
    for name, case in _cases(records):
        peer = (f"{case['peer_ms']:.1f}", f"{case['bfloat16_ratio']:.2f}")
        cast = (f"{case['autocast_ms']:.1f}", f"{case['autocast_ratio']:.2f}")
        rows.append((name, *_what(case), f"{case['bfloat16_ms']:.1f}", *peer, *cast))
    return table(columns, rows)


def times_to_loss() -> str:
    """CPU seconds of the preset and of every rate of the plain script, mean over seeds, by processor and loss."""
    rows = []
    for path in sorted(time_to_loss.RECORDS.glob("time_to_loss_*.json")):
        content = json.loads(path.read_text())
        names = [name for name in content["curves"] if name != time_to_loss.OURS]
        for level in content["levels"]:
            seconds = level["seconds"]
            rates = sorted(names, key=lambda name: float(name.split()[-1]))
            cells = (f"{seconds[name]:.1f}" if name in seconds else "–" for name in (time_to_loss.OURS, *rates))
            rows.append((content["processor"], f"{level['nats']:.2f}", *cells, f"{level['times_faster']:.2f}"))
    columns = ("processor", "nats a character", time_to_loss.OURS)
    columns += (*(f"the script, {rate:g}" for rate in time_to_loss.RATES), "times faster than its best")
    return table(columns, rows)


def candidates() -> str:
    """Perplexities of the candidates for the small preset at the last mark, and their mean ranks."""
    content = json.loads(preset_small.RECORD.read_text())
    rows = []
    for name, perplexity in content["perplexity_at_the_last_mark"].items():
        title = f"**{name}**" if name == content["choice"] else name
        cells = (f"{perplexity[text]:.3f}" for text in preset_small.TEXTS)
        rows.append((title, *cells, f"{content['mean_rank'][name]:.2f}"))
    return table(("settings", *(text.capitalize() for text in preset_small.TEXTS), "mean rank"), rows)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table in Markdown."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (columns, *rows)]
    return "\n".join([lines[0], "|---" * len(columns) + "|", *lines[1:]])


def _cases(records: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Each case of each processor."""
    return [(name, case) for name, record_of_processor in records.items() for case in record_of_processor["cases"]]


def _what(case: Mapping[str, Any]) -> tuple[str, str, str]:
    return str(case["layers"]), str(case["hidden"]), case["loss"]


def _kept(case: Mapping[str, Any]) -> tuple[str, str]:
    """The peer that keeps its memory, and how many times faster ours is."""
    kept = case.get("kept")
    return (f"{kept['peer_ms']:.1f}", f"{kept['ratio']:.2f}") if kept else ("–", "–")


def one_stream(content: Mapping[str, Any]) -> str:
    """µs a token, by procedure."""
    ways = ("progressive", "windowed", "windowed-naive", "nn.LSTM progressive", "nn.LSTM windowed")
    names = ("progressive", "windowed", "windowed, k2 read again", "nn.LSTM, progressive", "nn.LSTM, windowed")
    lines = ["| | " + " | ".join(names) + " | windowed : progressive |", "|---" * (len(names) + 2) + "|"]
    most = max(case["threads"] for case in content["one_stream"])
    for case in content["one_stream"]:
        if case["threads"] == most:
            us = case["us_a_token"]
            ratio = us["windowed"] / us["progressive"]
            cells = (f"{us[way]:,.1f}" if us[way] < 100 else f"{us[way]:,.0f}" for way in ways)
            lines.append(f"| r={case['layers']} γ={case['hidden']} | " + " | ".join(cells) + f" | {ratio:.2f} |")
    return "\n".join(lines)


def many_streams(content: Mapping[str, Any]) -> str:
    """Tokens a second, by streams."""
    by = content["tokens_a_second_by_streams"]
    counts = sorted({int(count) for line in by.values() for count in line})
    lines = ["| streams | " + " | ".join(f"{count:,}" for count in counts) + " |", "|---" * (len(counts) + 1) + "|"]
    for name, line in by.items():
        cells = (f"{line[str(count)]:,.0f}" if str(count) in line else "–" for count in counts)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Write the pages and their pictures."""
    for name, made in blocks().items():
        page = DOCS / name
        page.write_text(fill(page.read_text("utf-8"), made), "utf-8")
    for name, source in (("bench", COMPARISON), ("scaling", SCALING)):
        picture.save(opened(source), DOCS / f"{name}.png")
    parity.draw(DOCS / "parity.png")


if __name__ == "__main__":
    main()
