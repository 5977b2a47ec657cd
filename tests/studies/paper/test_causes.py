"""The tables behind unexpected verdicts, on curves made so that the cause is known."""

from __future__ import annotations

from dataclasses import replace

from made_up import World, records

from unroll.studies.paper import causes
from unroll.studies.paper.claims.verdict import Table
from unroll.studies.paper.records import Record


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
    table = rows(causes.two_readings(made))
    lines = sum((c.corpus, c.scheme) == ("finnish", 3) for c in made["schemes"].curves)
    assert table["Finnish"]["3,000 and more: median"] == 1.5
    assert table["Finnish"]["1,000 to 2,999: median"] == 1.0
    assert table["Finnish"]["runs above 1.1 there"] == f"{lines} of {lines}"
    assert table["English"]["runs above 1.1 there"] == f"0 of {lines}"


def test_the_spread_up_to_the_best_point_leaves_overfitting_out() -> None:
    made = records()
    curves = tuple(
        replace(
            c,
            points=c.points
            | {"windowed": [9.0 / (1 + n) if n < 30 else float(c.k1) for n in range(len(c.points["batch"]))]},
        )
        if (c.corpus, c.scheme) == ("music", 1)
        else c
        for c in made["schemes"].curves
    )
    made["schemes"] = replace(made["schemes"], curves=curves)
    spreads = causes.before_overfitting(made)
    music = next(row for row in spreads.rows if row[0] == "Music")
    assert music[1] > 1.5
    assert music[2] == 1.0


def test_rotated_and_shuffled_stand_side_by_side_for_every_k1() -> None:
    table = causes.labels(records())
    assert [row[0] for row in table.rows] == [20, 40, 60, 80, 100]
    assert len(table.columns) == len(table.rows[0]) == 8


def test_what_is_unstable_from_zeros_alone_stands_beside_a_calm_model() -> None:
    """Scheme 4 diverges in some k1 of each data set; from carried states it is made to read as scheme 3 does."""
    made = records()
    calm = {(c.corpus, c.k1): c.points["progressive"] for c in made["schemes"].curves if c.scheme == 3}
    for curve in (*made["schemes"].curves, *made["extras"].curves):
        if curve.scheme == 4:
            curve.points["carried"] = calm[curve.corpus, curve.k1]
    table = causes.two_starts(made)
    diverging = World().diverging
    assert table.rows[0] == ("as in the paper", *(f"{n} of 5" for count in diverging.values() for n in (count, 0)))
    resets = ["as in the paper", "never reset", "never reset, read on", "reset at random"]
    assert [row[0] for row in table.rows] == resets


def test_scheme_4_is_counted_by_share_and_what_rises_behind_the_best_point_apart() -> None:
    """In a steady world only the last point of k2 = 20 is far up, behind the best; one more rise is put before it."""
    made = records(World(steady=True))
    (early,) = (c for c in made["k2"].curves if (c.scheme, c.k1, c.k2) == (4, 40, 60))
    early.points["progressive"][early.points["batch"].index(264)] *= 1.5
    shares = rows(causes.by_share(made))
    assert list(shares) == ["1", "2/3", "1/3"]
    assert [shares["2/3"][f"k2 = {k2}"] for k2 in (20, 40, 60, 80, 100)] == [f"{n} of 1" for n in (1, 0, 1, 0, 0)]
    assert shares["2/3"]["up to their best point"] == "1 of 5"


def test_what_the_records_do_not_hold_is_left_out() -> None:
    made = records(figures=["schemes"])
    assert list(causes.every_table(made)) == [
        "One training, read in two ways",
        "The spread over k1, and before anything overfits",
    ]
    assert causes.every_table({}) == {}
    assert causes.every_table(records(scale=0.005)) == {}
