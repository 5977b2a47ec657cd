"""`unroll reproduce`, as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reproducing import SCALE, partly, texts
from typer.testing import CliRunner

from unroll.base.errors import ConfigurationError
from unroll.base.wording import shell_words
from unroll.cli import app
from unroll.studies.paper import records


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return texts(tmp_path / "data")


def typed(*words: object) -> str:
    with partly():
        result = CliRunner().invoke(app, ["reproduce", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_all_problems_of_a_command_are_listed_at_once() -> None:
    with shell_words(), pytest.raises(ConfigurationError) as error:
        typed("schems", "k2")
    words = " ".join(error.value.problems)
    assert "Did you mean schemes?" in words
    assert "--data" in words
    assert "--out" in words


def test_a_plan_is_printed_and_nothing_is_written(data: Path, tmp_path: Path) -> None:
    options = ("k2", "--scale", SCALE, "--data", data, "--out", tmp_path / "out", "--plan")
    text = typed(*options)
    assert "k2: 12 curves, 9 trainings, 0 of them finished" in text
    assert "9 runs in 3 fleets: about " in text
    plan = json.loads(typed(*options, "--json"))
    assert (plan["runs"], plan["finished"], len(plan["fleets"])) == (9, 0, 3)
    assert plan["seconds"] > 0
    assert plan["bytes"] > 0
    assert not (tmp_path / "out").exists()


def test_a_figure_is_reproduced_and_summed_up(data: Path, tmp_path: Path) -> None:
    options = ("extras", "--scale", SCALE, "--data", data, "--out", tmp_path / "out")
    summary = json.loads(typed(*options, "--quiet", "--json"))
    assert summary["figures"] == {"extras": {"curves": 2, "finished": 2, "stopped": 0}}
    assert summary["seconds"]["training"] > 0
    assert summary["failures"] == {}
    assert "extras: 2 of 2 curves finished" in typed(*options)
    assert len(records.read(tmp_path / "out")["extras"].curves) == 2
