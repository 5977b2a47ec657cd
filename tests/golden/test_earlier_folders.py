"""Folders that an earlier version wrote, before the code had rooms: they load, resume, finish and are reported.

`earlier/cut` died after 27 batches, and `earlier/whole` is the same run uninterrupted. `earlier/cut_sweep` died in its
third training, and `earlier/table.csv` is the table of that sweep uninterrupted. All computed in float64 with the
kernel that is the truth, so that any machine can compare them.
"""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest
import torch
from commands import unroll
from safetensors.torch import load_file

EARLIER = Path(__file__).parent / "earlier"


def copied(name: str, folder: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(EARLIER / name, folder / name))


def test_a_run_that_died_goes_on_where_it_stood_and_ends_as_the_uninterrupted_one(tmp_path: Path) -> None:
    run = copied("cut", tmp_path)
    result = unroll("train", "--resume", run)
    assert result.code == 0, result.err
    assert "no checkpoint" not in result.err  # it went on at batch 20
    ended, whole = load_file(run / "weights.safetensors"), load_file(EARLIER / "whole" / "weights.safetensors")
    assert ended.keys() == whole.keys()
    for name, tensor in whole.items():
        torch.testing.assert_close(ended[name], tensor, rtol=1e-9, atol=1e-12, msg=name)


def test_a_sweep_that_died_keeps_what_is_finished_and_ends_with_the_uninterrupted_table(tmp_path: Path) -> None:
    sweep = copied("cut_sweep", tmp_path)
    finished = sorted(sweep.glob("runs/*/weights.safetensors"))
    before = {path: path.read_bytes() for path in finished}
    assert len(finished) == 2
    assert unroll("sweep", "--resume", sweep, "--quiet").code == 0
    assert {path: path.read_bytes() for path in finished} == before
    for row, expected in zip(rows(sweep / "table.csv"), rows(EARLIER / "table.csv"), strict=True):
        # A setting that came later has a column that the earlier table lacks.
        assert {name: row[name] for name in expected} == {name: near(value) for name, value in expected.items()}


def rows(table: Path) -> list[dict[str, object]]:
    """A table's rows, with numbers as numbers."""
    with open(table) as file:
        return [{name: number(cell) for name, cell in row.items()} for row in csv.DictReader(file)]


def number(cell: str) -> object:
    """A cell as a number where it is one."""
    try:
        return float(cell)
    except ValueError:
        return cell


def near(value: object) -> object:
    """What a cell may be: numbers differ in their last digits from machine to machine."""
    return pytest.approx(value, rel=1e-9) if isinstance(value, float) else value


def test_a_finished_run_is_scored_sampled_and_reported(tmp_path: Path) -> None:
    run = copied("whole", tmp_path)
    scored = unroll("eval", run)
    assert (scored.code, "5.4072" in scored.out) == (0, True), scored.out + scored.err
    drawn = unroll("sample", run, "--length", 40, "--seed", 1)
    assert (drawn.code, drawn.out.strip()) == (0, "bgdbdfbdfbdehabbdbacdgdbffgbdbdfgdffhbcf"), drawn.err
    page = tmp_path / "report.html"
    assert unroll("report", run, "--out", page).code == 0
    assert "conditional" in page.read_text("utf-8")
    assert "nothing to go on with" in unroll("train", "--resume", run).err
