"""A record as a table in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unroll.studies.benchmark.contestants import UNROLL
from unroll.studies.benchmark.record import Record, Row
from unroll.studies.benchmark.verdicts import shapes, title, verdict

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS = ("ms a run-batch", "spread", "× best peer", "× eager", "of the floor", "kernel")


def table(record: Record) -> Table:
    """Show every row, those of one shape together."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(
        title=Text(heading(record)), caption=Text(_caption(record)), box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    shown.add_column("")
    for name in COLUMNS:
        shown.add_column(name, justify="left" if name == "kernel" else "right", no_wrap=True)
    for shape in shapes(record.rows):
        rows_of_shape = [row for row in record.rows if row.shape == shape]
        floor = record.floor(rows_of_shape[0], fastest_precision(record))
        floor_words = f"floor {number(floor)}" if floor else ""
        shown.add_row(
            Text(f"r = {shape.layers}, γ = {shape.hidden}, k2 = {shape.k2}, {shape.procedure}", style="bold"),
            Text(floor_words, style="dim"),
        )
        timed = [row.median for row in rows_of_shape if row.median]
        for row in rows_of_shape:
            style = "" if row.contestant in UNROLL else "dim"
            style = "bold green" if row.median and row.median == min(timed) else style
            shown.add_row(
                Text(f"  {title(row)}", style=style), *(Text(cell, style=style) for cell in _cells(record, row))
            )
        shown.add_row()
    return shown


def problems(record: Record) -> list[str]:
    """Why rows have no times, each reason once."""
    titles_by_problem: dict[str, list[str]] = {}
    for row in record.rows:
        if row.problem:
            titles_by_problem.setdefault(row.problem, []).append(
                f"{row.shape.architecture} {row.shape.procedure} {title(row)}"
            )
    return [
        f"{titles[0]}{f' and {len(titles) - 1} more' if len(titles) > 1 else ''}: {problem}"
        for problem, titles in titles_by_problem.items()
    ]


def heading(record: Record) -> str:
    """The processor and the versions that measured."""
    machine = record.machine
    count = machine.get("threads")
    threads = f", {count} thread{'' if count == 1 else 's'}" if record.device == "cpu" else ""
    return f"{machine.get('processor')}{threads}, torch {machine.get('torch')}, unroll {machine.get('unroll')}"


def fastest_precision(record: Record) -> str | None:
    """The precision in which this machine multiplies fastest."""
    return max(record.rates, key=lambda p: record.rates[p].operations_per_second, default=None)


def number(ms: float) -> str:
    """Three digits that matter.

    >>> number(0.08071), number(0.5), number(1.1), number(12.345), number(1234.5)
    ('0.0807', '0.500', '1.10', '12.3', '1234')
    """
    digits = 0 if ms >= 100 else 1 if ms >= 10 else 2 if ms >= 1 else 3 if ms >= 0.1 else 4
    return f"{ms:.{digits}f}"


def _cells(record: Record, row: Row) -> list[str]:
    if row.median is None:
        return ["failed"]
    compared = verdict(record, row)
    spread = (max(row.ms) - min(row.ms)) / row.median
    times = [f"{t:.2f}" if t else "" for t in (compared.times_best_peer, compared.times_eager)]
    share = f"{compared.share_of_floor:.1%}" if compared.share_of_floor else ""
    return [number(row.median), f"{spread:.0%}", *times, share, row.kernel]


def _caption(record: Record) -> str:
    rates = ", ".join(f"{name} {rate.operations_per_second / 1e12:.3g}" for name, rate in record.rates.items())
    return (
        "× best peer and × eager: how many times faster than them, above 1 is faster. of the floor: the share of the "
        f"time that a row's matrix products alone would take, at the rates measured here in TFLOP/s: {rates}."
    )
