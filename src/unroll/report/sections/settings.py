"""In what the runs' configurations differ, and only in that; what is the same in all is folded away."""

from __future__ import annotations

from typing import Any

from unroll.report import blocks
from unroll.report.gathering import Gathered
from unroll.report.labels import differing, in_order, settings, value_words
from unroll.report.sections import Part

MOST_SEEDS = 12  # named in a cell


def section(gathered: Gathered) -> list[Part]:
    """Show nothing for one run: its row in the table of runs says it all."""
    experiments = {name: experiment for name, _, experiment in gathered.folders}
    if len(experiments) < 2:
        return []
    names = [name for name in differing(list(experiments.values())) if name != "seed"]
    groups: dict[tuple[str, ...], list[str]] = {}
    for run in in_order(experiments):
        every = settings(experiments[run])
        groups.setdefault(tuple(value_words(every.get(name)) for name in names), []).append(run)
    every = settings(next(iter(experiments.values())))
    same = {name: value for name, value in every.items() if name not in (*names, "seed")}
    rows = []
    for values, runs in groups.items():
        first = settings(experiments[runs[0]])
        named = zip(names, values, strict=True)
        shown = [first.get(name) if _is_number(first.get(name)) else value for name, value in named]
        rows.append([*shown, len(runs), _seeds([experiments[run].seed for run in runs]), _examples(runs)])
    columns = [*(name.replace("_", " ") for name in names), "runs", "seeds", "folder"]
    words = (
        f"The {len(experiments):,} runs have {len(groups):,} settings. A row is a setting, with the seeds that were "
        "trained with it."
    )
    if not names:
        words = f"All {len(experiments):,} runs have one configuration; at most their seeds differ."
    summary = f"{len(same)} settings are the same in all runs"
    text = "; ".join(f"{name.replace('_', ' ')} {value_words(value)}" for name, value in same.items())
    return [
        Part(
            "settings",
            "settings",
            "In what the runs differ",
            words,
            [blocks.table("In what the runs differ", columns, rows), blocks.folded(summary, text)],
        )
    ]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _seeds(seeds: list[int]) -> str:
    different = sorted(set(seeds))
    if len(different) > 2 and different == list(range(different[0], different[-1] + 1)):
        return f"{different[0]} to {different[-1]}"
    more = f" and {len(different) - MOST_SEEDS} more" if len(different) > MOST_SEEDS else ""
    return ", ".join(map(str, different[:MOST_SEEDS])) + more


def _examples(runs: list[str]) -> str:
    return runs[0] if len(runs) == 1 else f"{runs[0]} and {len(runs) - 1} more"
