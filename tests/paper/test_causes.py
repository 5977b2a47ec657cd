"""The tables behind unexpected verdicts, on curves made so that the cause is known."""

from __future__ import annotations

from dataclasses import replace

from made_up import records

from unroll.paper import causes
from unroll.paper.claims.verdict import Table
from unroll.paper.records import Record


def rows(table: Table) -> dict[object, dict[str, object]]:
    return {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}


def changed(record: Record, corpus: str, scheme: int, column: str, since: int, factor: float) -> Record:
    """The record with one column of some curves multiplied from a batch on."""

    def one(points: dict[str, list[float]]) -> dict[str, list[float]]:
        values = zip(points["batch"], points[column], strict=True)
        return points | {column: [value * (factor if batch >= since else 1) for batch, value in values]}

    curves = tuple(
        replace(c, points=one(c.points)) if (c.corpus, c.scheme) == (corpus, scheme) else c for c in record.curves
    )
    return replace(record, curves=curves)


def test_a_drift_of_progressive_reading_alone_shows_where_and_when_it_is() -> None:
    made = records()
    for curve in made["schemes"].curves:
        curve.points["windowed"] = curve.points["progressive"] = curve.points[curve.sample]
    made["schemes"] = changed(made["schemes"], "finnish", 3, "progressive", since=3000, factor=1.5)
    found = rows(causes.two_readings(made))
    lines = sum((c.corpus, c.scheme) == ("finnish", 3) for c in made["schemes"].curves)
    assert found["Finnish"]["3,000 and more: median"] == 1.5
    assert found["Finnish"]["1,000 to 2,999: median"] == 1.0
    assert found["Finnish"]["above 1.1 in the end"] == f"{lines} of {lines}"
    assert found["English"]["above 1.1 in the end"] == f"0 of {lines}"


def test_the_spread_up_to_the_best_point_leaves_overfitting_out() -> None:
    made = records()
    own = tuple(
        replace(
            c,
            points=c.points
            | {"windowed": [9.0 / (1 + n) if n < 30 else float(c.k1) for n in range(len(c.points["batch"]))]},
        )
        if (c.corpus, c.scheme) == ("music", 1)
        else c
        for c in made["schemes"].curves
    )
    made["schemes"] = replace(made["schemes"], curves=own)
    found = causes.before_overfitting(made)
    music = next(row for row in found.rows if row[0] == "Music")
    assert music[1] > 1.5
    assert music[2] == 1.0


def test_rotated_and_shuffled_stand_side_by_side_for_every_k1() -> None:
    found = causes.labels(records())
    assert [row[0] for row in found.rows] == [20, 40, 60, 80, 100]
    assert len(found.columns) == len(found.rows[0]) == 8


def test_what_the_records_do_not_hold_is_left_out() -> None:
    made = records(figures=["schemes"])
    assert list(causes.found(made)) == [
        "One training, read in two ways",
        "The spread over k1, and before anything overfits",
    ]
    assert causes.found({}) == {}
