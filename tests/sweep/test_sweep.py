"""A sweep: each training once, failures recorded while the others go on, one driver a folder, nothing done twice."""

from __future__ import annotations

import csv
import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sweeping
from sweeping import corpus, drive, small

from unroll import Corpus, grid, load, train_all, train_fleet
from unroll.base.errors import ConfigurationError, CorpusError, Interrupted, RunError
from unroll.corpus.open_corpora import Library
from unroll.runs.folder import RunFolder
from unroll.sweep import plan as plans
from unroll.sweep.deduplicate import distinct
from unroll.sweep.folder import SweepFolder
from unroll.sweep.launchers import Begun, Failed, RunEnded
from unroll.sweep.sweep import Planned, describe, results
from unroll.training.learner import Learner


def state(folder: Path) -> dict[str, str]:
    return {row["run"]: row["state"] for row in results(SweepFolder(folder))}


def table(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "table.csv").read_text().splitlines()))


# --- what is trained ----------------------------------------------------------------------------------------------


def test_schemes_1_and_3_are_one_training_evaluated_under_both_procedures(tmp_path: Path) -> None:
    asked = small(scheme=[3, 1, 2], k1=4)
    drive(tmp_path, asked)
    runs = sorted(p.name for p in (tmp_path / "runs").iterdir())
    assert len(runs) == 2
    shared = RunFolder(tmp_path / "runs" / runs[0])
    assert (shared.experiment.scheme.sample, shared.experiment.evaluate) == ("windowed", "both")
    assert all(set(line["perplexity"]) == {"windowed", "progressive"} for line in shared.metrics)
    rows = {row["scheme"]: row for row in results(SweepFolder(tmp_path))}
    assert rows[1]["run"] == rows[3]["run"] == runs[0]
    assert rows[1]["perplexity"] == shared.metrics[-1]["perplexity"]["windowed"]
    assert rows[3]["perplexity"] == shared.metrics[-1]["perplexity"]["progressive"]
    assert rows[2]["run"] == runs[1]


def test_requests_with_one_identity_are_one_training_and_others_are_not() -> None:
    (one,) = small(scheme=1)
    assert len(distinct([one, one, replace(one, evaluate="both"), replace(one, encoding="utf8")])) == 1
    apart = [
        one,
        replace(one, seed=1),
        replace(one, test_tokens=20),
        replace(one, threads=2),
        replace(one, device="auto"),
    ]
    assert len(distinct(apart)) == len(apart)


def test_a_sweeps_runs_are_ordinary_runs_as_trained_by_themselves_in_one_fleet(tmp_path: Path) -> None:
    asked = small(scheme=2, k1=[2, 4], seed=[0, 1])
    drive(tmp_path / "sweep", asked, most=4)
    plan = SweepFolder(tmp_path / "sweep").plan
    assert plan is not None
    (fleet,) = plan.fleets
    trainings = {t.name: t.experiment for t in SweepFolder(tmp_path / "sweep").trainings}
    outs = [tmp_path / "alone" / "runs" / name for name in fleet.runs]
    for _ in train_fleet([trainings[name] for name in fleet.runs], [corpus()] * 4, outs):
        pass
    ours, theirs = sweeping.result(tmp_path / "sweep"), sweeping.result(tmp_path / "alone")
    assert {name: ours[name] for name in fleet.runs} == {name: theirs[name] for name in fleet.runs}
    assert load(outs[0], "cpu").status["fleet"] == 4


def test_the_table_has_no_clocks_and_is_the_same_for_the_same_sweep(tmp_path: Path) -> None:
    asked = small(scheme=[1, 3, 4], k1=[2, 4])
    drive(tmp_path / "a", asked)
    drive(tmp_path / "b", asked[::-1])
    for name in ("table.csv", "table.json", "sweep.json", "plan.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    rows = table(tmp_path / "a")
    assert [(row["scheme"], row["k1"]) for row in rows] == [(s, k) for s in "134" for k in "24"]
    assert not {"seconds", "evaluating", "date"} & set(rows[0])
    stated = json.loads((tmp_path / "a" / "table.json").read_text())
    assert [float(row["perplexity"]) for row in rows] == [row["perplexity"] for row in stated]


def test_the_times_of_all_runs_stand_beside_the_table_under_the_same_names(tmp_path: Path) -> None:
    drive(tmp_path, small(scheme=[1, 3, 4]))
    times = list(csv.DictReader((tmp_path / "times.csv").read_text().splitlines()))
    assert [row["run"] for row in times] == list(dict.fromkeys(row["run"] for row in table(tmp_path)))
    for row in times:
        status = SweepFolder(tmp_path).run(row["run"]).status
        assert float(row["training_seconds"]) == status["seconds"] > 0
        assert float(row["evaluation_seconds"]) == pytest.approx(status["evaluating"] / status["fleet"], abs=0.001)
        assert (row["state"], int(row["side_by_side"])) == ("finished", status["fleet"])


def test_corpora_are_opened_once_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for path in paths:
        path.write_text("abcdefgh " * 40 + path.name)
    opened: list[str] = []
    whole = Corpus.named.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(Corpus, "named", classmethod(lambda cls, e, v: opened.append(e.corpus) or whole(cls, e, v)))
    rows = train_all(small(corpus=[str(p) for p in paths], k1=[2, 4], seed=[0, 1], batches=2), tmp_path / "out", most=3)
    assert {row["state"] for row in rows} == {"finished"}
    assert sorted(opened) == [str(p) for p in paths]


# --- going on -----------------------------------------------------------------------------------------------------


def test_a_finished_sweep_is_left_alone_by_the_same_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = small(scheme=[1, 2], seed=[0, 1])
    drive(tmp_path, asked)
    before, stamps = sweeping.result(tmp_path), sweeping.stamps(tmp_path, sweeping.ended(tmp_path))
    monkeypatch.setattr(Learner, "__init__", lambda *_: pytest.fail("a finished fleet was opened"))
    monkeypatch.setattr(plans, "make", lambda *_: pytest.fail("the plan was made anew"))
    for again in (asked, None):
        reports = drive(tmp_path, again, most=1)
        assert [type(report) for report in reports] == [Planned]
    assert sweeping.result(tmp_path) == before
    assert sweeping.stamps(tmp_path, sweeping.ended(tmp_path)) == stamps


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_the_sweep_goes_on_exactly(number: int, code: int, tmp_path: Path) -> None:
    asked = small(scheme=[1, 2], seed=range(3))
    drive(tmp_path / "whole", asked)
    events = sweeping.follow(tmp_path / "killed", asked, save_every=100)
    while not (isinstance(report := next(events), Begun) and report.fleet == "2"):
        pass
    os.kill(os.getpid(), number)
    with pytest.raises(Interrupted) as told:
        list(events)
    assert told.value.exit_code == code
    begun = [report for report in drive(tmp_path / "killed", None) if isinstance(report, Begun)]
    assert [report.fleet for report in begun] == ["2"]
    assert begun[0].batch > 0
    assert sweeping.result(tmp_path / "killed") == sweeping.result(tmp_path / "whole")


def test_a_signal_while_planning_is_heeded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Learner.step

    def signalled(learner: Learner) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        step(learner)

    monkeypatch.setattr(Learner, "step", signalled)
    with pytest.raises(Interrupted):
        drive(tmp_path, small(seed=range(3)), most=None)
    assert not (tmp_path / "plan.json").exists()
    monkeypatch.undo()
    drive(tmp_path, None)
    assert set(state(tmp_path).values()) == {"finished"}


def test_two_drivers_cannot_share_a_folder(tmp_path: Path) -> None:
    asked = small(seed=[0, 1])
    first = sweeping.follow(tmp_path, asked)
    next(first)
    for again in (asked, None):
        with pytest.raises(RunError, match=f"Another process is at work in {tmp_path}"):
            drive(tmp_path, again)
    list(first)
    drive(tmp_path, asked)


def test_another_sweep_in_the_folder_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    drive(tmp_path, small(seed=[0, 1]))
    before = sweeping.result(tmp_path)
    with pytest.raises(RunError, match="1 of the experiments asked for are not in it, and 0 of its own"):
        drive(tmp_path, small(seed=[0, 1, 2]))
    assert sweeping.result(tmp_path) == before


def test_a_folder_that_is_no_sweep_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(RunError, match="exists and is no sweep"):
        drive(tmp_path, small())
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(RunError, match="is no sweep"):
            drive(place, None)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_another_text_behind_a_corpus_name_is_said_before_any_work(tmp_path: Path) -> None:
    path, out = tmp_path / "a.txt", tmp_path / "out"
    path.write_text("abcdefgh " * 40)
    library = Library()
    asked = describe(small(corpus=str(path), seed=[0, 1]), library)
    events = sweeping.sweep(SweepFolder(out), library, asked, 1, 3)
    while not isinstance(next(events), RunEnded):
        pass
    events.close()
    path.write_text("another text " * 40)
    with pytest.raises(CorpusError, match="is not the corpus that this run was trained on"):
        list(sweeping.sweep(SweepFolder(out), Library(), None))


# --- repair -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "left", [(), ("vocabulary.json.partial",), ("vocabulary.json",), ("vocabulary.json", "run.toml.partial")]
)
def test_what_a_crash_left_of_a_run_folder_is_cleared_away(left: tuple[str, ...], tmp_path: Path) -> None:
    asked = small(seed=range(3))
    drive(tmp_path / "whole", asked)
    events = sweeping.follow(tmp_path / "killed", asked)
    next(events)
    events.close()
    plan = SweepFolder(tmp_path / "killed").plan
    assert plan is not None
    folder = tmp_path / "killed" / "runs" / plan.fleets[0].runs[1]
    folder.mkdir(parents=True)
    for name in left:
        (folder / name).write_text("half of it")
    drive(tmp_path / "killed", None)
    assert sweeping.result(tmp_path / "killed") == sweeping.result(tmp_path / "whole")


@pytest.mark.parametrize("what", ["a file of mine", "a folder", "a link"])
def test_what_the_sweep_did_not_make_is_left_alone_and_the_run_fails_with_the_reason(what: str, tmp_path: Path) -> None:
    asked, mine = small(scheme=[1, 2]), tmp_path / "mine.txt"
    mine.write_text("precious")
    events = sweeping.follow(tmp_path / "out", asked)
    next(events)
    events.close()
    folder = tmp_path / "out" / "runs" / distinct([corpus().described_in(asked[0])])[0].name
    folder.mkdir(parents=True)
    if what == "a file of mine":
        (folder / "notes.txt").write_text("precious")
    elif what == "a folder":
        (folder / "vocabulary.json").mkdir()
    else:
        (folder / "vocabulary.json").symlink_to(mine)
    before = sorted(folder.iterdir())
    reports = drive(tmp_path / "out", None)
    (failed,) = [report for report in reports if isinstance(report, Failed)]
    assert "exists and is not empty" in failed.reason
    assert sorted(folder.iterdir()) == before
    assert mine.read_text() == "precious"
    assert sorted(state(tmp_path / "out").values()) == ["failed", "finished"]


# --- grids, and hostile folders -----------------------------------------------------------------------------------


def test_a_grid_is_every_combination_once() -> None:
    runs = grid(scheme=[1, 2], k1=[20, 40], seed=range(3), hidden=[128, 128], ext=(".c", ".h"))
    assert len(runs) == len(set(runs)) == 12
    assert {e.ext for e in runs} == {(".c", ".h")}


def test_a_grid_tells_all_its_problems_at_once_and_each_once() -> None:
    with pytest.raises(ConfigurationError) as told:
        grid(scheme=[1, 2], k1=[0, 20], cell=["lstn", "gru"], seed=range(4))
    assert len(told.value.problems) == 2
    with pytest.raises(ConfigurationError, match="Did you mean hidden"):
        grid(hiden=128)
    with pytest.raises(ConfigurationError, match="more than 20,000 combinations"):
        grid(seed=range(1000), k1=range(1, 1000))


@pytest.mark.parametrize("name", ["../../outside", "/tmp/outside", "..", "a/b", "", 7, None])
def test_a_name_that_leads_out_of_the_folder_is_refused(name: Any, tmp_path: Path) -> None:
    drive(tmp_path / "out", small(batches=1))
    path = tmp_path / "out" / "sweep.json"
    content = json.loads(path.read_text())
    content["asked"][0]["run"] = name
    path.write_text(json.dumps(content))
    with pytest.raises(RunError, match=r"sweep\.json is damaged"):
        drive(tmp_path / "out", None)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"asked": 3}', '{"asked": [{"run": "a", "experiment": []}]}'])
def test_a_damaged_sweep_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(RunError, match=r"sweep\.json is damaged"):
        drive(tmp_path, None)


def test_a_plan_of_another_sweep_is_refused(tmp_path: Path) -> None:
    drive(tmp_path / "a", small(batches=1))
    drive(tmp_path / "b", small(batches=1, seed=1))
    (tmp_path / "a" / "plan.json").write_bytes((tmp_path / "b" / "plan.json").read_bytes())
    with pytest.raises(RunError, match="is another sweep's"):
        drive(tmp_path / "a", None)


def test_requests_that_differ_in_what_does_nothing_are_one_run_and_its_row_says_what_its_name_and_record_say(
    tmp_path: Path,
) -> None:
    drive(tmp_path, small(cell=["lstm", "gru"], peepholes=["off", "paper"], batches=2))
    found = table(tmp_path)
    assert sorted((row["cell"], row["peepholes"]) for row in found) == [
        ("gru", "off"), ("lstm", "off"), ("lstm", "paper"),
    ]  # fmt: skip
    for row in found:
        assert RunFolder(tmp_path / "runs" / row["run"]).experiment.peepholes == row["peepholes"]
