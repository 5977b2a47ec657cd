"""Pictures are a function of the records, byte for byte, and show what the records say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from made_up import records

from unroll.studies.paper import pictures
from unroll.studies.paper.figures import QUESTIONS
from unroll.studies.paper.records import from_json, write
from unroll.studies.paper.records import path as record_path

SHOWN = ("architectures-1", "schemes", "datasets", "k2")


@pytest.mark.parametrize("suffix", [".png", ".svg"])
@pytest.mark.parametrize("figure", ["schemes", "k2"])
def test_the_same_records_give_the_same_bytes_also_after_a_trip_through_a_file(
    tmp_path: Path, figure: str, suffix: str
) -> None:
    record = records(figures=[figure], seeds=(0, 1))[figure]
    write(tmp_path, record)
    again = from_json(record_path(tmp_path, figure))
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = pictures.save(record, tmp_path / "a", suffix), pictures.save(again, tmp_path / "b", suffix)
    assert first is not None
    assert second is not None
    assert first.read_bytes() == second.read_bytes()
    assert b"Matplotlib" not in first.read_bytes()


@pytest.mark.parametrize("figure", SHOWN)
def test_a_figure_has_four_panels_on_logarithmic_axes_with_a_line_for_every_series_and_k1(figure: str) -> None:
    record = records(figures=[figure])[figure]
    axes = pictures.draw(record).axes
    assert len(axes) == 4
    assert {(panel.get_xscale(), panel.get_yscale()) for panel in axes} == {("log", "log")}
    lines = [line for panel in axes for line in panel.lines if len(line.get_xdata()) > 1]
    assert len(lines) == len(record.curves)


def test_the_figure_of_k2_is_against_time_and_ends_at_80() -> None:
    axes = pictures.draw(records(figures=["k2"])["k2"]).axes
    assert {panel.get_ylim()[1] for panel in axes} == {80.0}
    assert "training time, s" in {panel.get_xlabel() for panel in axes}


def test_several_seeds_are_one_line_in_a_band() -> None:
    one, three = (records(figures=["schemes"], seeds=seeds)["schemes"] for seeds in ((0,), (0, 1, 2)))
    counts = [
        [len([line for line in a.lines if len(line.get_xdata()) > 1]) for a in pictures.draw(r).axes]
        for r in (one, three)
    ]
    assert counts[0] == counts[1] == [20] * 4
    assert [len(panel.collections) for panel in pictures.draw(three).axes] == [20] * 4


def test_a_run_that_stopped_ends_in_a_cross_and_one_that_turned_unstable_has_a_ring() -> None:
    record = records(figures=["schemes"])["schemes"]
    first = record.curves[0]
    cut = replace(first, state="stopped", stopped_at=90, points={k: v[:20] for k, v in first.points.items()})
    axes = pictures.draw(replace(record, curves=(cut, *record.curves[1:]))).axes[0]
    marks = [line.get_marker() for line in axes.lines]
    assert marks.count("x") == 1
    # Two k1 of scheme 4 on English diverge in the made-up world; nothing else does.
    assert marks.count("o") == 2


def test_unstable_is_marked_after_the_first_hundred_batches_only() -> None:
    curve = records(figures=["schemes"])["schemes"].curves[0]
    batches = curve.points["batch"]
    early = [500.0 if batch == 5 else 90.0 - i for i, batch in enumerate(batches)]
    late = [90.0 if batch == 12800 else value for batch, value in zip(batches, early, strict=True)]
    assert pictures.marked(replace(curve, points=curve.points | {"windowed": early})) is None
    assert pictures.marked(replace(curve, points=curve.points | {"windowed": late})) == 12800


def test_what_is_no_figure_is_not_drawn(tmp_path: Path) -> None:
    assert pictures.save(records(figures=["timing"])["timing"], tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_small_scale_that_has_learnt_nothing_is_drawn_and_says_so() -> None:
    for figure in ("schemes", "k2"):
        record = records(figures=[figure])[figure]
        few = {"batch": [1, 16], "sequences": [64, 1024], "loss": [4.5, 4.5], "seconds": [0.0, 0.01]}
        short = tuple(
            replace(c, points=few | {"windowed": [None, 900.0], "progressive": [None, 900.0]}) for c in record.curves
        )
        drawn = pictures.draw(replace(record, scale=0.005, curves=short))
        assert "at scale 0.005" in drawn.get_suptitle()
        assert "γ = 32" in drawn.get_suptitle()


def test_curves_without_a_number_are_not_drawn(tmp_path: Path) -> None:
    record = records(figures=["schemes"])["schemes"]
    nothing = tuple(replace(c, points=c.points | {c.sample: [None] * len(c.points["batch"])}) for c in record.curves)
    assert pictures.save(replace(record, curves=nothing), tmp_path) is None
    with_gaps = replace(record, curves=(*nothing[:7], *record.curves[7:]))
    assert pictures.save(with_gaps, tmp_path) == tmp_path / "schemes.png"


def test_the_extras_show_scheme_4_under_every_setting_as_a_line_with_a_band_over_k1() -> None:
    assert [dict(variant) for variant in pictures.SETTINGS.values()] == list(QUESTIONS)
    axes = pictures.draw(records(figures=["extras"])["extras"]).axes
    assert [len([line for line in panel.lines if len(line.get_xdata()) > 1]) for panel in axes] == [len(QUESTIONS)] * 4
    assert [len(panel.collections) for panel in axes] == [len(QUESTIONS)] * 4


def test_a_seed_that_stopped_does_not_end_the_line_of_the_others() -> None:
    record = records(figures=["schemes"], seeds=(0, 1))["schemes"]
    first = record.curves[0]
    cut = replace(first, state="stopped", stopped_at=90, points={k: v[:20] for k, v in first.points.items()})
    axes = pictures.draw(replace(record, curves=(cut, *record.curves[1:]))).axes[0]
    assert {len(line.get_xdata()) for line in axes.lines} - {1} == {len(first.points["batch"])}
