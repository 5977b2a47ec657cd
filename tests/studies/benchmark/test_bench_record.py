"""Records: their verdicts, tables and pictures."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from bench_cases import a_record, is_picture

from unroll.base.errors import ConfigurationError, InputError
from unroll.studies.benchmark import picture, plan, record, scaling_picture, table
from unroll.studies.benchmark.contestants import TITLES
from unroll.studies.benchmark.floors import operations
from unroll.studies.benchmark.record import Record, Row
from unroll.studies.benchmark.shapes import Shape
from unroll.studies.benchmark.verdicts import best_peer, verdict


def printed(shown: Any) -> str:
    from rich.console import Console

    out = io.StringIO()
    Console(file=out, width=160).print(shown)
    return out.getvalue()


def scaling_record() -> Record:
    groups = plan.scaling(plan.Choice(), "cuda")
    rows = tuple(
        Row(e.shape, e.contestant, e.precision, e.runs, "k", 1, (1.0 / e.runs + e.shape.layers,))
        for g in groups
        for e in g
    )
    return a_record(mode="scaling", rows=rows, settings=plan.scaling_settings(plan.Choice(), "cuda"))


@pytest.mark.parametrize("made", [a_record(), scaling_record()])
def test_a_record_comes_back_from_its_file_as_it_was(made: Record, tmp_path: Path) -> None:
    record.write(made, tmp_path / "a.json")
    assert record.read(record.load(tmp_path / "a.json"), tmp_path / "a.json") == made
    assert made == replace(made, date="another day")
    assert made != replace(made, rows=made.rows[1:])


def test_a_record_holds_every_repetition_and_the_operations(tmp_path: Path) -> None:
    record.write(a_record(), tmp_path / "a.json")
    first = json.loads((tmp_path / "a.json").read_text())["rows"][0]
    assert (first["ms"], first["median_ms"], first["kernel"]) == ([2.0, 1.0, 4.0], 2.0, "stacked")
    assert first["operations"] == operations(Shape()).total


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xfe", "is not JSON"),
        (b"[1, 2]", "is no record"),
        (b'{"format": 99}', "is no record"),
        (b'{"format": 1, "mode": "comparison"}', "is a damaged record"),
        (b'{"format": 1, "mode": "comparison", "rows": [{"ms": 3}]}', "is a damaged record"),
    ],
)
def test_a_file_that_is_no_record_is_refused_in_words(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        record.read(record.load(path), path)


def test_what_a_record_says_cannot_drive_a_terminal(tmp_path: Path) -> None:
    record.write(a_record(machine={"processor": "\x1b[2J"}), tmp_path / "a.json")
    assert "\x1b" not in str(record.load(tmp_path / "a.json"))


def test_a_verdict_compares_with_the_best_peer_with_eager_and_with_the_rows_own_floor() -> None:
    made = a_record()
    fleet = made.rows[1]
    assert best_peer(made, fleet.shape) == made.rows[3]
    compared = verdict(made, fleet)
    assert (compared.times_best_peer, compared.times_eager) == (12.0, 16.0)
    rate = 2 * 1024**3 / 1.5e-3
    assert compared.share_of_floor == pytest.approx(operations(fleet.shape).total / rate * 1e3 / 0.5)
    assert verdict(made, made.rows[4]) == (None, None, None)


def test_the_table_names_every_row_and_marks_the_one_that_failed() -> None:
    shown = printed(table.table(a_record()))
    for words in (
        "r = 1, γ = 512",
        "r = 2, γ = 512",
        "Unroll, fleet of 21, float32",
        "nn.LSTM, eager",
        "12.00",
        "failed",
    ):
        assert words in shown
    assert "A $1 [bold]processor" in shown
    assert table.problems(a_record()) == [
        "1x512 multi-loss flashrnn, graphed, bfloat16 and 1 more: ModuleNotFoundError: No module named 'flashrnn'"
    ]


@pytest.mark.parametrize(
    "made", [a_record(), scaling_record(), a_record(rows=a_record().rows[4:5]), a_record(rates={})]
)
def test_a_picture_is_drawn_from_any_record(made: Record, tmp_path: Path) -> None:
    picture.save(made, tmp_path / "a.png")
    assert is_picture(tmp_path / "a.png")


def test_a_line_of_the_scaling_study_varies_one_thing() -> None:
    made = scaling_record()
    centre = Shape(**made.settings["centre"])
    over = {axis: scaling_picture.lines_over(made, centre, axis) for axis in scaling_picture.PANELS}
    axes = plan.AXES["cuda"]
    assert [x for x, _ in over["runs"]["Unroll, bfloat16"]] == sorted(axes["runs"])
    assert [x for x, _ in over["runs"][TITLES["lstm-eager"]]] == [1, max(axes["runs"])]
    for axis in ("hidden", "k2", "layers"):
        assert set(over[axis]) == {
            "Unroll, alone, bfloat16",
            "Unroll, fleet of 28, bfloat16",
            TITLES["lstm-eager"],
            TITLES["cudnn-half"],
        }
        assert all([x for x, _ in line] == list(axes[axis]) for line in over[axis].values())


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_whole_comparison_is_four_architectures_by_three_procedures(device: str) -> None:
    groups = plan.comparison(plan.Choice(), device)
    assert len(groups) == 12
    assert all(len({e.shape for e in group}) == 1 for group in groups)
    named = {e.contestant for group in groups for e in group} - {"flashrnn"}
    expected = set(TITLES) - {"flashrnn"} if device == "cuda" else {"unroll", "unroll-fleet", "lstm-eager"}
    assert named == expected
    fleets = {(e.shape.hidden, e.runs) for group in groups for e in group if e.contestant == "unroll-fleet"}
    assert fleets == ({(128, 66), (512, 28)} if device == "cuda" else {(128, 4), (512, 4)})


def test_choices_narrow_the_comparison_and_nothing_left_is_an_error() -> None:
    few = plan.Choice(("3x64",), ("conditional",), ("unroll-fleet", "flashrnn"), ("tf32",), (2, 5), "*fleet 5*")
    (group,) = plan.comparison(few, "cuda")
    assert [e.label for e in group] == ["3x64 conditional unroll-fleet 5 tf32"]
    with pytest.raises(ConfigurationError, match="Nothing is left"):
        plan.comparison(replace(few, only="gru"), "cuda")
    asked = plan.comparison(plan.Choice(contestants=("flashrnn",)), "cuda")
    assert {e.contestant for group in asked for e in group} == {"flashrnn"}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_point_where_the_scaling_studys_axes_cross_is_measured_once(device: str) -> None:
    groups = plan.scaling(plan.Choice(procedures=("conditional",)), device)
    shapes = [group[0].shape for group in groups]
    assert len(set(shapes)) == len(shapes)
    axes = plan.AXES[device]
    assert len(shapes) == sum(len(axes[axis]) for axis in ("hidden", "k2", "layers")) - 2
    assert all(shape.scheme.gap == 0 for shape in shapes)


def test_precisions_are_refused_in_the_experiments_own_words() -> None:
    refused = plan.refused(("float32", "float7"))
    assert list(refused) == ["float7"]
    assert "precision must be one of" in refused["float7"]


def test_all_wrong_choices_are_listed_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        plan.Choice(("1y512",), ("multiloss",), ("unrol",), (), (0,))
    assert len(caught.value.problems) == 4
    assert "Did you mean multi-loss?" in caught.value.problems[1]


def test_a_shape_in_a_record_is_its_shape() -> None:
    assert Shape(**asdict(Shape(2, 128, "single-loss"))) == Shape(2, 128, "single-loss")
