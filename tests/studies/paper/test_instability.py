"""Why scheme 4 looks unstable: the causes are set apart, on curves made so that the answer is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from made_up import GRID, PAPER, curve

from unroll.studies.paper import instability, instability_picture
from unroll.studies.paper.claims.verdict import Table
from unroll.studies.paper.figures import RANDOM_RESET, Series
from unroll.studies.paper.records import Curve, Record

By = Callable[[int], float]
EPOCH = 1000


def fall(batch: int) -> float:
    return 4 + 60 / (1 + batch / 20)


def run(zero: By = fall, carried: By | None = fall, loss: By = fall, **changes: object) -> Curve:
    """A conditional run with these curves."""
    made = curve(PAPER, Series("linux", 4, 1, 512, 20))
    points = made.points | {"progressive": list(map(zero, GRID)), "loss": [math.log(loss(batch)) for batch in GRID]}
    if carried:
        points["carried"] = list(map(carried, GRID))
    return replace(made, points=points, epoch=EPOCH, **changes)


def cells(table: Table, row: int = 0) -> dict[str, object]:
    return dict(zip(table.columns, table.rows[row], strict=True))


def test_what_rises_from_zeros_alone_is_no_fault_of_training() -> None:
    reading = instability.reading(run(zero=lambda b: fall(b) * (1.5 if 300 < b < 900 else 1.0)))
    assert reading.zero > 1.1
    assert reading.loss == reading.carried == 1.0
    assert max(reading.apart.values()) == pytest.approx(1.5)
    assert reading.widest is not None
    assert 300 < reading.widest < 900


def test_what_rises_in_training_rises_everywhere() -> None:
    def bump(batch: int) -> float:
        return fall(batch) * (2.0 if batch in GRID[30:32] else 1.0)

    reading = instability.reading(run(bump, bump, bump))
    assert min(reading.zero, reading.carried or 0, reading.loss) > 1.1
    assert set(reading.apart.values()) == {1.0}


def test_overfitting_is_no_rise() -> None:
    def overfitted(batch: int) -> float:
        return fall(batch) * (batch / 3000 if batch > 3000 else 1.0)

    reading = instability.reading(run(overfitted, overfitted))
    assert (reading.zero, reading.carried) == (1.0, 1.0)


def test_the_first_hundred_batches_do_not_count() -> None:
    reading = instability.reading(run(zero=lambda b: fall(b) * (9.0 if b < 100 else 1.0)))
    assert reading.zero == 1.0
    assert min(reading.apart) >= 100


def test_points_are_grouped_by_how_long_ago_training_began_from_zeros() -> None:
    """A model that knows zeros only after a reset: far apart before the first, and from 300 batches behind one."""
    made = run(zero=lambda b: fall(b) * (1.3 if b < EPOCH or b % EPOCH >= 300 else 1.0))
    table = instability.by_reset([instability.reading(made)])
    rows = {(str(row[0]), str(row[1])): row for row in table.rows}
    assert all(
        row[5] == (row[2] if when == "before the first reset" else 0)
        for (when, since), row in rows.items()
        if since != "300 to 999"
    )
    assert sum(int(row[2]) for row in table.rows) == len([b for b in GRID if b >= 100])
    assert {when for when, _ in rows} == {"before the first reset", "later"}
    later = rows["later", "300 to 999"]
    assert later[5] == later[2]


def test_settings_stand_in_their_order_and_what_was_not_scored_is_left_open() -> None:
    random = run(variant={"reset": RANDOM_RESET}, identity="random")
    never = run(lambda b: fall(b) * (2.0 if 200 < b < 500 else 1.0), variant={"reset": "never"}, identity="never")
    bare = run(carried=None, variant={"peepholes": "off"}, identity="bare")
    records = {
        "extras": Record("extras", 1.0, (0,), "0", (random, never, bare)),
        "schemes": Record("schemes", 1.0, (0,), "0", (run(),)),
    }
    readings = instability.readings(records)
    table = instability.by_setting(readings)
    assert [row[0] for row in table.rows] == ["as in the paper", "no peepholes", "never reset", "reset at random"]
    assert cells(table, 1)["rises from carried states"] is None
    assert cells(table, 2)["rises from zeros"] == 1
    assert cells(table, 2)["rises from carried states"] == 0
    assert cells(table, 3)["zeros / carried, largest"] == 1.0
    best = cells(instability.by_corpus(readings), 2)
    assert best["Linux, from zeros"] == pytest.approx(fall(GRID[-1]), abs=5e-4)
    assert best["English, from zeros"] is None
    largest = instability.by_epochs(readings)
    assert cells(largest) == {
        "zeros / carried, largest": "Linux",
        "k1": 20,
        "epochs": round(GRID[-1] / EPOCH, 1),
        "as in the paper": 1.0,
        "never reset": 2.0,
        "reset at random": 1.0,
    }


def test_the_picture_shows_the_worst_run_and_a_panel_for_every_way_to_reset(tmp_path: Path) -> None:
    readings = [instability.reading(run(variant=v)) for v in ({}, {"reset": "never"}, {"reset": RANDOM_RESET})]
    axes = instability_picture.draw(readings).axes
    assert [panel.get_title(loc="left") for panel in axes if panel.axison] == [
        "As in the paper: Linux, k1 = 20, one run",
        "Never reset: Linux, k1 = 20, one run",
        "As in the paper: every run",
        "Never reset: every run",
        "Reset at random: every run",
    ]
    first, second = instability_picture.save(readings, tmp_path), tmp_path / "instability.png"
    assert first == second
    assert instability_picture.save([instability.reading(run(carried=None))], tmp_path) is None


def test_a_perplexity_that_was_not_finite_is_the_highest_rise() -> None:
    made = run()
    made.points["progressive"][30] = None
    (reading,) = instability.readings({"schemes": Record("schemes", 1.0, (0,), "0", (made,))})
    assert reading.zero == math.inf
    assert (reading.carried, reading.loss) == (1.0, 1.0)
    assert GRID[30] not in reading.apart
    assert cells(instability.by_setting([reading]))["rises from zeros"] == 1


def test_the_last_point_of_an_epoch_comes_before_its_reset() -> None:
    reading = instability.reading(replace(run(), epoch=GRID[-1] // 4))
    assert reading.since_zero(GRID[-1]) == GRID[-1] // 4
    assert reading.since_zero(GRID[-1] // 4 + 1) == 1
