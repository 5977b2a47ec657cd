"""Records come back as they were written, and say when a curve went unstable."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unroll.base.errors import RunError
from unroll.studies.paper import records
from unroll.studies.paper.records import Curve, Record, Time


def curve(windowed: list[float | None], **changes: object) -> Curve:
    n = len(windowed)
    points = {
        "batch": [2**i for i in range(n)],
        "sequences": [64 * 2**i for i in range(n)],
        "loss": [3.0] * n,
        "windowed": windowed,
        "progressive": [None] * n,
        "seconds": [0.5 * i for i in range(n)],
    }
    one = Curve(
        "english", "english (reconstruction)", "ab", 1, "multi-loss", "windowed", 1, 512, 40, 100, 0, 12800, 64, {},
        "cd", "finished", None, None, 28, "persistent", "bfloat16", "NVIDIA H200", 1.2, points,
    )  # fmt: skip
    return replace(one, **changes)  # type: ignore[arg-type]


def test_a_record_comes_back_as_it_was_written(tmp_path):
    varied = curve([3.0, None], variant={"reset": 0.1, "shuffle": True}, state="stopped", reason="At batch 3 …")
    schemes = Record("schemes", 1.0, (0, 1), "0.2", (curve([80.0, 4.0, 3.5]), varied))
    times = (Time(1, 1, 128, 28, 0.69, {"windowed": 1.0}, "cpu", "float32"),)
    timing = Record("timing", 0.005, (0,), "0.2", (), times, times)
    records.write(tmp_path, timing)
    records.write(tmp_path, schemes)
    assert records.read(tmp_path) == {"schemes": schemes, "timing": timing}
    assert list(records.read(tmp_path)) == ["schemes", "timing"]


def test_a_folder_without_records_has_none(tmp_path):
    assert records.read(tmp_path) == {}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format":1,"figure":"k2"}', '{"format":2}', "\x00"])
def test_a_damaged_record_is_one_error_that_names_the_file(tmp_path, text):
    records.write(tmp_path, Record("k2", 1.0, (0,), "0.2"))
    records.path(tmp_path, "k2").write_text(text)
    with pytest.raises(RunError, match=r"k2\.json"):
        records.read(tmp_path)


def test_columns_of_different_lengths_are_refused(tmp_path):
    one = curve([3.0, 2.0])
    records.write(tmp_path, Record("k2", 1.0, (0,), "0.2", (replace(one, points=one.points | {"loss": [1.0]}),)))
    with pytest.raises(RunError, match="damaged"):
        records.read(tmp_path)


def test_a_curve_is_unstable_where_it_first_rises_a_tenth_above_its_lowest():
    assert curve([10.0, 5.0, 5.5, 5.0]).unstable() == []
    assert curve([10.0, 5.0, 5.6, 5.0]).unstable()[0] == 4
    assert curve([10.0, 5.0, None, 5.0]).unstable()[0] == 4


def test_a_curve_is_unstable_where_it_first_rises_a_tenth_above_another():
    falling = curve([10.0, 5.0, 4.0, 3.0])
    assert falling.unstable(falling) == []
    assert falling.unstable(curve([10.0, 5.0, 3.0, 1.0]))[0] == 4


def test_a_curves_own_perplexity_is_its_procedures_column_without_gaps():
    assert curve([10.0, None, 4.0]).scored == [(1, 64, 10.0), (4, 256, 4.0)]
    assert curve([10.0, 5.0], sample="progressive").scored == []


def test_numbers_are_rounded_to_significant_digits():
    assert records.significant(123456.789, 6) == 123457
    assert records.significant(0.000123456, 4) == 0.0001235
    assert records.significant(float("inf"), 6) is None
    assert records.significant(None, 6) is None
