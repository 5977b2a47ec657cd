"""The experiment in plain torch beside Unroll: its record, its table and picture, and the stranger's own code."""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from paths import ROOT

from unroll.base.errors import RunError
from unroll.model.cells.lstm import Cell
from unroll.studies.paper import stranger

sys.path.append(str(ROOT / "benchmarks"))

import stranger as script

SCRIPT, RECORD = ROOT / "benchmarks" / "stranger.py", ROOT / "results" / "paper"


def run(who: str, reset: str, ratio: float, peepholes: bool = True, seed: int = 0) -> stranger.Run:
    points = tuple((float(batch), 3.0, 20.0 * ratio, 20.0) for batch in (100, 150, 200))
    return stranger.Run(who, reset, peepholes, seed, points)


def test_the_record_is_of_this_script_and_has_both_implementations_at_every_setting() -> None:
    compared = stranger.read(RECORD)
    assert compared is not None
    assert compared.script_sha256 == hashlib.sha256(SCRIPT.read_bytes()).hexdigest()
    assert compared.test_tokens == script.TEST
    settings = {who: {(r.reset, r.peepholes, r.seed) for r in compared.runs if r.who == who} for who in stranger.WHO}
    assert settings["stranger"] == settings["unroll"]
    assert {(reset, peepholes) for reset, peepholes, _ in settings["unroll"]} == set(stranger.SETTINGS)
    assert all(r.points[-1][0] == compared.batches for r in compared.runs)


def test_what_the_page_says_of_the_settings_is_what_the_script_has() -> None:
    compared = stranger.read(RECORD)
    assert compared is not None
    stated = stranger.about(compared)
    assert f"{script.ROWS} rows, {script.HIDDEN} units, k1 = k2 = {script.LENGTH}," in stated
    assert f"Adam at {script.RATE:g} " in stated


def test_the_stranger_knows_nothing_of_unroll() -> None:
    imported = set()
    for node in ast.walk(ast.parse(SCRIPT.read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        imported |= {name.split(".")[0] for name in [*names, getattr(node, "module", None) or ""] if name}
    assert imported == {"argparse", "json", "pathlib", "torch"}


def test_the_strangers_cell_with_peepholes_is_the_papers() -> None:
    """Written apart from ours, it gives the same states from the same weights."""
    torch.manual_seed(0)
    theirs = script.Peephole(5, 7)
    inputs, state = torch.randn(4, 3, 5), (torch.randn(1, 3, 7), torch.randn(1, 3, 7))
    seen, _ = theirs(inputs, state)
    ours = state[0][0], state[1][0]
    cell = Cell("paper")
    for step, x in enumerate(inputs):
        ours, _ = cell.forward(theirs.x(x), theirs.h(ours[0]), ours, {"w_c": theirs.peep})
        torch.testing.assert_close(seen[step], ours[0])


@pytest.mark.parametrize(("reset", "peepholes"), [("epoch", False), ("never", True), ("random", False)])
def test_the_stranger_trains_and_scores_from_both_starts(
    monkeypatch: pytest.MonkeyPatch, reset: str, peepholes: bool
) -> None:
    monkeypatch.setattr(script, "TEST", 40)
    monkeypatch.setattr(script, "HIDDEN", 8)
    monkeypatch.setattr(script, "LENGTH", 10)
    text = "ab ba abba. " * 400
    lines = list(script.train(text, 110, reset, peepholes, 0))
    assert [line[0] for line in lines] == [100, 110]
    assert all(1 < value < 6 for line in lines for value in line[2:])
    assert lines == list(script.train(text, 110, reset, peepholes, 0)), "a seed gives the same run"
    other = list(script.train(text, 110, "never" if reset != "never" else "epoch", peepholes, 0))
    assert lines != other, "how the state is reset matters"


def test_the_table_tells_a_start_that_is_worse_from_one_that_is_not() -> None:
    runs = [run("stranger", "never", 1.05), run("stranger", "never", 1.1, seed=1), run("unroll", "random", 1.0)]
    first, second = (
        dict(zip(stranger.in_numbers(runs).columns, row, strict=True)) for row in stranger.in_numbers(runs).rows
    )
    assert (first["state"], first["implementation"], first["seeds"]) == ("never reset", "the stranger's", 2)
    assert first["largest"] == 1.1
    assert first["points above 1.01"] == "6 of 6"
    assert (second["state"], second["points above 1.01"]) == ("reset at random, 0.1", "0 of 3")


def test_the_picture_has_a_column_for_each_implementation() -> None:
    runs = [run(who, reset, 1.02, p) for who in stranger.WHO for reset, p in stranger.SETTINGS]
    panels = stranger.draw(runs).axes
    assert [panel.get_title(loc="left") for panel in panels] == [
        "In plain torch: seed 0", "Unroll: seed 0", "every run", "every run",
    ]  # fmt: skip
    assert [len(panel.lines) for panel in panels] == [4, 4, 4, 4]


def test_a_record_that_is_none_is_refused_and_a_missing_one_is_no_error(tmp_path: Path) -> None:
    assert stranger.read(tmp_path) is None
    good = json.loads((RECORD / stranger.FILE).read_text("utf-8"))
    for broken in (
        {**good, "runs": [{**good["runs"][0], "points": [[1, 2, 0, 1]]}]},
        {**good, "runs": [{**good["runs"][0], "points": [[1, 2]]}]},
        {name: value for name, value in good.items() if name != "machine"},
        [],
    ):
        (tmp_path / stranger.FILE).write_text(json.dumps(broken), "utf-8")
        with pytest.raises(RunError, match="damaged"):
            stranger.read(tmp_path)
    (tmp_path / stranger.FILE).write_text(json.dumps({**good, "format": 2}), "utf-8")
    with pytest.raises(RunError, match="format 2"):
        stranger.read(tmp_path)


def test_runs_of_a_setting_stand_together_whatever_their_order() -> None:
    runs = [run("unroll", "never", 1.0), run("stranger", "never", 1.0), replace(run("unroll", "never", 1.0), seed=1)]
    assert [len(of_key) for of_key in stranger.groups(runs).values()] == [1, 2]
