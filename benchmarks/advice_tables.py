"""The tables of docs/advise.md, from the records in results/advice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "results" / "advice"
NONE = "Not measured yet."


def blocks() -> dict[str, str]:
    """Every marked part that a record fills."""
    return {"known": known(_loaded("known")), "corpora": corpora(_loaded("corpora")), "reach": reach()}


def known(lines: list[dict[str, Any]]) -> str:
    """How often the right answer was given."""
    if not lines:
        return NONE
    rows = ["| source | right answer | given in | budget, s | batches of the last stage |", "|---|---|---|---|---|"]
    for name in dict.fromkeys(line["source"] for line in lines):
        own = [line for line in lines if line["source"] == name]
        batches = sorted(line["batches"] for line in own)
        budgets = sorted({f"{line['budget']:g}" for line in own})
        right = sum(line["right"] for line in own)
        spread = f"{batches[0]:,} to {batches[-1]:,}" if len(batches) > 1 else f"{batches[0]:,}"
        rows.append(f"| {name} | {own[0]['answer']} | {right} of {len(own)} | {', '.join(budgets)} | {spread} |")
    return "\n".join(rows)


def corpora(lines: list[dict[str, Any]]) -> str:
    """Whether full runs ended inside their intervals."""
    if not lines:
        return NONE
    rows = [
        "| corpus | pilot: batches, perplexity | expected of the full run | it reached | inside |",
        "|---|---|---|---|---|",
    ]
    for line in lines:
        pilot, expected, ended = line["pilot"], line["expected"], line["ended"]
        rows.append(
            f"| {line['corpus']} | {pilot['batches']:,}, {pilot['perplexity']:.3f} | {expected['perplexity']:.3f} "
            f"({expected['low']:.3f} to {expected['high']:.3f}) | {ended['perplexity']:.3f}, best at batch "
            f"{ended['best_batch']:,} | {'yes' if line['inside'] else 'no'} |"
        )
    inside = sum(line["inside"] for line in lines)
    return "\n".join([*rows, "", f"{inside} of {len(lines)} ended inside."])


def reach() -> str:
    """How often intervals held on the curves of the paper's reproduction, for a corpus left out of the fit."""
    left_out = json.loads((RESULTS / "extrapolation.json").read_text("utf-8"))["left_out"]
    rows = [
        "| full run, in lengths of the pilot | inside the interval | median error | median width |",
        "|---|---|---|---|",
    ]
    for ratio, found in (*left_out["ratios"].items(), ("all", left_out["mean"])):
        rows.append(f"| {ratio} | {found['inside']:.0%} | {found['median_error']:.1%} | {found['median_width']:.0%} |")
    corpora = left_out["corpora"]
    each = ", ".join(f"{name.capitalize()} {found['inside']:.0%}" for name, found in corpora.items())
    return "\n".join([*rows, "", f"By the text that was left out: {each}."])


def _loaded(name: str) -> list[dict[str, Any]]:
    path = RESULTS / f"{name}.json"
    lines: list[dict[str, Any]] = json.loads(path.read_text("utf-8")) if path.is_file() else []
    return lines
