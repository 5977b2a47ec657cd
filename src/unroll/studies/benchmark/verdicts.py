"""What the times of a record say about each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from unroll.studies.benchmark.contestants import PEERS, TITLES
from unroll.studies.benchmark.record import Record, Row
from unroll.studies.benchmark.shapes import Shape


class Verdict(NamedTuple):
    """One row against the others of its shape; None where there is nothing to compare with."""

    times_best_peer: float | None  # how many times faster than the fastest peer: above 1 is faster
    times_eager: float | None
    share_of_floor: float | None  # 1: nothing but the arithmetic, in the row's own precision


def shapes(rows: Iterable[Row]) -> list[Shape]:
    """Every shape once, in the order measured."""
    return list(dict.fromkeys(row.shape for row in rows))


def best_peer(record: Record, shape: Shape) -> Row | None:
    """The fastest row that is not Unroll's."""
    timed = [r for r in record.rows if r.shape == shape and r.contestant in PEERS and r.median]
    return min(timed, key=lambda r: r.median or 0.0) if timed else None


def verdict(record: Record, row: Row) -> Verdict:
    """Compare a row with its peers, and with the arithmetic alone."""
    eager = [r for r in record.rows if r.shape == row.shape and r.contestant == "lstm-eager"]
    floor = record.floor(row)
    median = row.median
    return Verdict(
        _times(best_peer(record, row.shape), row),
        _times(eager[0] if eager else None, row),
        floor / median if floor and median else None,
    )


def title(row: Row) -> str:
    """A contestant in words: `Unroll, fleet of 21, bfloat16`."""
    name = TITLES.get(row.contestant, row.contestant)
    return f"{name}{f' of {row.runs}' if row.contestant == 'unroll-fleet' else ''}, {row.precision}"


def line(row: Row) -> str:
    """A row in one line, shown while the measurement runs."""
    what = f"{row.shape.architecture} k2={row.shape.k2} {row.shape.procedure:<11} {title(row):<40}"
    if row.median is None:
        return f"{what} {row.problem}"
    return f"{what} {row.median:>9.3f} ms   ({min(row.ms):.3f} to {max(row.ms):.3f}, {row.kernel})"


def _times(other: Row | None, row: Row) -> float | None:
    return other.median / row.median if other and other.median and row.median else None
