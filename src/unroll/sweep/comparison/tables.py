"""The answer as tables of words, the same for a terminal, a notebook and a page."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unroll.model.conditioning import PROCEDURES
from unroll.sweep.comparison.numbers import between, brief, number, percent

NONE = "–"

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """Rows of words under columns; the first column names the row."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables(facts: Facts) -> list[Table]:
    """All of them, the ranking first."""
    every = [_ranking(facts), *_settings(facts), _costs(facts), _stability(facts), _copied(facts)]
    return [table for table in every if table.rows]


def _ranking(facts: Facts) -> Table:
    title = (
        f"After {facts['batches']:,} batches of every run ({facts['sequences']:,} train sequences). Test perplexity; "
        f"the best of a run is chosen on the {facts['chosen_on']}"
    )
    columns = ("scheme", "k1", "best", "95 % interval", "at batch", "final", "to the first", "sure")
    rows = tuple(
        (
            one["scheme"] + _missing(one),
            str(one["k1"]),
            *_with_ends(one["best"]),
            f"{one['best_batch']:,}" if one["best_batch"] else NONE,
            _with_ends(one["final"])[0],
            _ratio(one["ratio"]),
            _sure(one),
        )
        for one in facts["schemes"]
    )
    return Table(title, columns, rows)


def _settings(facts: Facts) -> Iterator[Table]:
    seconds = facts["clocks"]["equal_seconds"]
    rows = tuple(
        (
            one["scheme"] + _missing(one),
            str(one["k1"]),
            *_with_ends(one["best"]),
            *_with_ends(one["final"]),
            "".join((_with_ends(one["clocks"]["at_seconds"])[0],)),
        )
        for one in facts["settings"]
    )
    about = f"Every k1, after the same train sequences and after {brief(seconds)} of training each"
    columns = ("scheme", "k1", "best", "95 % interval", "final", "95 % interval", f"at {brief(seconds)}")
    yield Table(about, columns, rows)


def _costs(facts: Facts) -> Table:
    columns = ("scheme", "ms a batch", *(f"µs a token, {procedure}" for procedure in PROCEDURES))
    rows = []
    for one in facts["schemes"]:
        clocks = one["clocks"]
        micro = clocks["microseconds"]
        batch = f"{clocks['batch_ms']:.3g}" if clocks["batch_ms"] else NONE
        words = [f"{micro[p]:,.0f}{' *' if p == one['sample'] else ''}" if p in micro else NONE for p in PROCEDURES]
        rows.append((one["scheme"], batch, *words))
    return Table("Costs, measured here (a run's share of its fleet; * the scheme's own sampling)", columns, tuple(rows))


def _stability(facts: Facts) -> Table:
    columns = ("scheme", "worst rise", "zero / carried start", "k1 changes the best by", "old states")
    rows = tuple(
        (
            one["scheme"],
            "diverged" if one["rise"] is None else percent(one["rise"]),
            f"{one['zero_over_carried']:.3f}" if one["zero_over_carried"] else NONE,
            _k1(one),
            _drift(one),
        )
        for one in facts["schemes"]
    )
    about = "Stability: the rise above a run's own minimum, the start of a carried state, and k1"
    return Table(about, columns, rows)


def _copied(facts: Facts) -> Table:
    columns = ("scheme", "tokens drawn", "longest copied", "held-out text")
    rows = tuple(
        (one["scheme"], f"{copied['tokens']:,}", f"{copied['longest']:,}", f"{copied['held_out']:,}")
        for one in facts["schemes"]
        if (copied := one["copied"]) and copied["longest"] is not None
    )
    return Table("Memorisation: the longest stretch of a sample that stands in the training data", columns, rows)


def _missing(one: Facts) -> str:
    return f" ({one['missing']} of {one['seeds'] + one['missing']} failed)" if one["missing"] else ""


def _with_ends(interval: Facts | None) -> tuple[str, str]:
    if interval is None:
        return NONE, NONE
    return number(interval["mean"]), between(interval).strip(" ()") or NONE


def _ratio(interval: Facts | None) -> str:
    return NONE if interval is None else f"× {interval['mean']:.3f}"


def _sure(one: Facts) -> str:
    if one["sure"] is None:
        return NONE
    return f"{min(one['sure'], 0.999):.1%}" if one["sure"] >= 0.99 else f"{one['sure']:.0%}"


def _k1(one: Facts) -> str:
    if one["k1_spread"] is None:
        return NONE
    surely = "" if one["k1_sure"] is None else f" ({'sure' if one['k1_sure'] >= 0.95 else 'not sure'})"
    return f"{percent(one['k1_spread'])}{surely}"


def _drift(one: Facts) -> str:
    drift = one["drift"]
    return NONE if not drift or drift["drift"] is None else f"× {drift['drift']:.3f} at {drift['age']:,} tokens"


def in_lines(table: Table, width: int) -> list[str]:
    """A table as lines; where the columns have no room beside each other, a block of lines for each row."""
    content = [table.columns, *table.rows]
    widths = [max(len(line[i]) for line in content) for i in range(len(table.columns))]
    if sum(widths) + 2 * (len(widths) - 1) <= width:
        return [_beside(line, widths) for line in content]
    lines: list[str] = []
    for row in table.rows:
        cells = zip(table.columns[1:], row[1:], strict=True)
        fields = [f"{name} {value}".strip() for name, value in cells if value not in (NONE, "")]
        lines += [*textwrap.wrap(row[0], width, subsequent_indent="  "), *_packed(fields, width)]
    return lines


def _beside(line: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        cell.ljust(room) if n == 0 else cell.rjust(room)
        for n, (cell, room) in enumerate(zip(line, widths, strict=True))
    )
    return "  ".join([first, *others]).rstrip()


def _packed(fields: Sequence[str], width: int) -> list[str]:
    """Fields in as few lines as hold them."""
    lines: list[str] = []
    for field in fields:
        if lines and len(lines[-1]) + 3 + len(field) <= width:
            lines[-1] += f"   {field}"
        else:
            lines.append(f"  {field}")
    return lines
