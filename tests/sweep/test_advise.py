"""A pilot: its stages, what it tries, a kill that costs nothing, a budget that is kept, what is refused."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sweeping import corpus

import unroll
from unroll import Advice, Corpus
from unroll.base import untrusted
from unroll.base.errors import ConfigurationError, CorpusError, RunError
from unroll.base.version import VERSION
from unroll.corpus.open_corpora import Library
from unroll.runs.loaded import load
from unroll.sweep.advice import answer, pilot, scoring, verdict
from unroll.sweep.advice import asked as asking
from unroll.sweep.advice.drive import drive
from unroll.sweep.advice.folder import STAGES, AdviceFolder
from unroll.sweep.advice.measures import Measures
from unroll.sweep.advice.shown import read
from unroll.sweep.launchers import Begun, Noted, Progressed, Report
from unroll.sweep.paced.clock import Clock
from unroll.sweep.paced.rounds import Rounds
from unroll.sweep.sweep import Stage

TINY: dict[str, Any] = {"k2": 6, "hidden": 6, "dense": 8, "rows": 3, "device": "cpu", "threads": 1}
LENGTHS = (5, None, 6, None, 8, 12, None)  # the rounds of the three stages


@pytest.fixture(autouse=True)
def no_code_for_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny models of many shapes: making machine code for each would take longer than all of their training."""
    monkeypatch.setitem(TINY, "kernel", "stacked")


class Lengths:
    """Rounds to these batches, whatever the clock says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *lengths: int | None) -> None:
        self.left = list(lengths)
        monkeypatch.setattr(Rounds, "next", lambda known, left: self.left.pop(0) if self.left else None)


def asked_for(budget: float = 60.0, need: str = "quality", **settings: Any) -> asking.Asked:
    return asking.asked("", budget, need, {**TINY, "learning_rate": 0.01, "batches": 40, **settings})


def driven(out: Path, asked: asking.Asked | None = None, take: Any = None, clock: Clock | None = None) -> Advice:
    asked = (asked or asked_for()).described(corpus())
    folder = AdviceFolder(out)
    reports = drive(folder, Library([corpus()]), asked, clock or Clock(lambda: 0.0, 0.0), most=1)
    for report in reports:
        if take:
            take(report)
    return read(folder)


def without_clocks(facts: Any) -> Any:
    """Advice without what clocks say, and without the sentences that repeat it."""
    if isinstance(facts, dict):
        return {name: without_clocks(value) for name, value in facts.items() if name not in ("clocks", "sentences")}
    return [without_clocks(value) for value in facts] if isinstance(facts, list) else facts


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    Lengths(monkeypatch, *LENGTHS)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Advice:
    with pytest.MonkeyPatch.context() as patch:  # undone at once: a test that sets no rounds has those of the clock
        patch.setitem(TINY, "kernel", "stacked")
        Lengths(patch, *LENGTHS)
        return driven(tmp_path_factory.mktemp("advice") / "done")


def folder_of(advice: Advice) -> AdviceFolder:
    assert advice.path is not None
    return AdviceFolder(advice.path)


def test_each_stage_has_its_runs_and_the_last_one_its_seeds(done: Advice) -> None:
    folder = folder_of(done)
    stages = [folder.stage(name) for name in STAGES]
    assert [stage.progress.rounds for stage in stages] == [[5], [6], [8, 12]]
    assert {t.experiment.seed for t in stages[0].trainings} == {0}
    assert {t.experiment.seed for t in stages[2].trainings} == {0, 1, 2}
    assert len(stages[2].trainings) == 3 * len(done.settings)
    scores = folder.state.scores
    assert all(scores[name].keys() == {t.name for t in folder.stage(name).trainings} for name in STAGES)


def test_the_advice_has_all_its_parts(done: Advice) -> None:
    assert len(done.sentences) == 5
    assert not any("--" in words for words in [*done.sentences, *done.notes])  # they are read in Python
    assert done.expected is not None
    perplexity, low, high = done.expected
    assert 1 <= low <= perplexity <= high
    means = [one["expected"]["mean"] for one in done.settings]
    assert means == sorted(means)
    assert set(done.facts["choices"]) == {"quality", "speed", "memory"}
    assert done.facts["clocks"]["training"] > 0
    assert set(done.facts["clocks"]["microseconds"]) <= {"windowed", "progressive"}
    assert done.facts["full"] == 40
    assert {one["words"] for one in done.facts["tried"]["alone"]} >= {
        one["words"] for one in done.facts["tried"]["alone"] if one["same"]
    }


def test_what_is_recommended_can_be_trained(done: Advice) -> None:
    from unroll.cli import command

    _, train, _, *options = done.facts["command"]
    assert train == "train"
    given = command("train").make_context("train", ["text.txt", *options]).params
    taken = done.setting
    assert given["k2"] == taken["k2"] == 6
    assert given["k1"] == taken["k1"]
    assert (given["hidden"] or 128) == taken["hidden"]
    assert (given["rows"] or 16) == taken["rows"]
    assert given["batches"] == 40


def test_it_shows_itself_in_a_notebook_and_as_text(done: Advice) -> None:
    page = done._repr_html_()
    assert "<script" not in page
    assert all(len(line) <= 40 for line in done.lines(40))
    assert done.sentences[0].split(",")[0] in " ".join(str(done).split())
    assert repr(done).startswith("<Advice on ")


def test_runs_of_unlike_windows_are_scored_on_the_same_tokens(tmp_path: Path) -> None:
    text = corpus()
    ids = scoring.choosing_ids(asked_for().described(text).base, text)
    runs = {}
    for k2 in (4, 8):
        experiment = unroll.Experiment(scheme=unroll.Scheme(k1=k2, k2=k2), hidden=6, dense=8, rows=3, batches=4)
        runs[str(k2)] = unroll.train(experiment, tmp_path / str(k2), corpus=text, progress=False)
    found = scoring.scores(
        {name: run.folder for name, run in runs.items()}, {n: r.experiment for n, r in runs.items()}, text
    )
    for name, run in runs.items():
        k2 = run.experiment.scheme.k2
        best = load(run.folder.path, weights="best")
        nats = [
            -math.log(_probability(best, ids[position - k2 : position], int(ids[position])))
            for position in range(8, len(ids))
        ]
        assert found[name] == pytest.approx(sum(nats) / len(nats), rel=1e-5)


def _probability(run: unroll.Run, before: Any, token: int) -> float:
    """The probability of a token after these, from the learned first state: one step after the other."""
    import torch

    from unroll.runs.perplexities import token_nll

    ids = torch.tensor([*before.tolist(), token])
    (nll,) = token_nll(run.model, [ids], len(before), "windowed")
    return math.exp(-float(nll))


def test_the_same_question_again_trains_nothing_and_another_need_neither(done: Advice) -> None:
    events: list[Report] = []
    assert done.path is not None
    assert driven(done.path, take=events.append).facts == done.facts
    assert not events
    speed = driven(done.path, asked_for(need="speed"), take=events.append)
    assert speed.facts["need"] == "speed"
    assert not any(isinstance(report, Begun) for report in events)
    again = driven(done.path)
    assert without_clocks(again.facts) == without_clocks(done.facts)


def test_another_need_is_no_part_of_the_budget(done: Advice, tmp_path: Path) -> None:
    assert done.path is not None
    shutil.copytree(done.path, tmp_path / "again")
    before = AdviceFolder(tmp_path / "again").state.spent
    ticks = itertools.count(0.0, 50.0)
    events: list[Report] = []
    clock = Clock(lambda: next(ticks), 0.0)
    found = driven(tmp_path / "again", asked_for(need="memory"), take=events.append, clock=clock)
    assert found.facts["need"] == "memory"
    assert found.facts["clocks"]["spent"] == AdviceFolder(tmp_path / "again").state.spent == before
    assert not any(isinstance(report, Noted) for report in events)


class Stop(Exception):
    pass


@pytest.mark.parametrize("moments", [(1, 9, 30), (14, 15, 40)])
def test_interrupted_and_gone_on_with_it_gives_the_same_advice(
    done: Advice, tmp_path: Path, moments: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    left, seen = list(moments), 0
    lengths = Lengths(monkeypatch, *LENGTHS)

    def leave(report: Report) -> None:
        nonlocal seen
        if isinstance(report, Progressed | Begun):
            seen += 1
            if left and seen >= left[0]:
                del left[0]
                raise Stop

    while left:
        before = len(left)
        with pytest.raises(Stop):
            driven(tmp_path / "again", take=leave)
        assert len(left) == before - 1
        # A process that goes on with a round asks for none; what it would have asked for next stands as it was.
        folder = AdviceFolder(tmp_path / "again")
        begun = [
            r for name in STAGES if folder.stage(name).is_paced() for r in (*folder.stage(name).progress.rounds, 0)
        ]
        lengths.left = [*LENGTHS][_position(begun) :]
    again = driven(tmp_path / "again")
    assert without_clocks(again.facts) == without_clocks(done.facts)


def _position(begun: list[int]) -> int:
    """How many of LENGTHS are over when these rounds have begun; 0 stands between two stages."""
    return len(begun) - 1 if begun else 0


def leave_in_the_first_stage(report: Report) -> None:
    if isinstance(report, Stage) and "Each setting alone" in report.words:
        raise Stop


@pytest.mark.usefixtures("rounds")
def test_a_pilot_goes_on_with_more_threads_and_with_its_text_under_another_name(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        driven(tmp_path / "moved", take=leave_in_the_first_stage)
    text = dataclasses.replace(corpus(), name="renamed")
    asked = asked_for(threads=2).described(text)
    list(drive(AdviceFolder(tmp_path / "moved"), Library([text]), asked, Clock(lambda: 0.0, 0.0), most=1))
    assert len(read(AdviceFolder(tmp_path / "moved")).sentences) == 5


@pytest.mark.usefixtures("rounds")
def test_runs_of_another_pilot_in_its_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        driven(tmp_path / "mine", take=leave_in_the_first_stage)
    stage = AdviceFolder(tmp_path / "mine").stage(STAGES[0])
    stage.trainings = [t for t in stage.trainings if t.experiment.scheme.carries]
    with pytest.raises(RunError, match="runs of another pilot"):
        driven(tmp_path / "mine")


@pytest.mark.usefixtures("rounds")
def test_what_a_killed_process_spent_in_a_stage_counts(tmp_path: Path) -> None:
    """Its last words are never written: what counts is what it wrote on the way."""
    seconds, written = 0.0, []

    def pass_by(report: Report) -> None:
        nonlocal seconds
        if isinstance(report, Progressed | Begun):
            written.append(seconds - AdviceFolder(tmp_path / "clock").state.spent)
            seconds += 2.0

    driven(tmp_path / "clock", asked_for(10_000.0), take=pass_by, clock=Clock(lambda: seconds, 0.0))
    assert seconds > 60
    assert max(written) <= 5.0 + 2.0


@pytest.mark.usefixtures("rounds")
def test_where_every_run_diverges_nothing_is_advised(tmp_path: Path) -> None:
    found = driven(tmp_path / "diverged", asked_for(learning_rate=1e29))
    assert found.expected is None
    assert found.sentences == ["No setting has a run that ended with a finite perplexity: there is nothing to advise."]
    assert found.command == ""
    assert "is taken" not in str(found)
    assert "nothing to take" in repr(found)


def test_a_seed_that_failed_leaves_the_interval_open_and_moves_nothing(done: Advice) -> None:
    folder, asked = folder_of(done), asked_for().described(corpus())
    scores = dict(folder.state.scores["seeds"])
    runs = {t.experiment.seed: t.name for t in folder.stage("seeds").trainings if not t.experiment.scheme.carries}
    windowed = [t for t in folder.stage("seeds").trainings if t.name in runs.values()]
    assert len(windowed) == 3

    def facts(scores: dict[str, float | None]) -> dict[str, Any]:
        found, full = pilot.finalists(folder.stage("seeds"), scores, 40, 40)
        decided = verdict.decide(([one for one in found if not one.experiment.scheme.carries], full), "quality")
        # The failed run's weights are of an earlier batch, where it was much worse.
        measured = Measures((2.2, 2.2, 5.0), 0.1, {}, None, None, None, 1)
        return answer.make(asked, decided, measured, {}, 1.0)

    scores[runs[2]] = None
    failed = facts(scores)
    assert failed["expected"]["high"] is None
    assert failed["reached"] == pytest.approx(math.exp(2.2))
    assert failed["expected"]["perplexity"] < math.exp(2.3)
    assert "no upper end" in failed["sentences"][1]
    assert "11% worse" in " ".join(failed["notes"])  # of the run that both were measured of


KILLED = """
import sys, os
sys.path[:0] = sys.argv[1].split(os.pathsep)
from pathlib import Path
import unroll
from sweeping import corpus
from sweep.test_advise import TINY
unroll.advise(corpus(), 60, out=Path(sys.argv[2]), progress=False, most=1, learning_rate=0.01, batches=10**6, **TINY)
"""


@pytest.mark.slow
def test_killed_again_and_again_it_ends_with_advice_and_keeps_its_budget(tmp_path: Path) -> None:
    here = os.pathsep.join([*sys.path, str(Path(__file__).parents[1])])
    generator, kills = random.Random(3), 0
    began = time.monotonic()
    for _ in range(60):
        process = subprocess.Popen([sys.executable, "-c", KILLED, here, str(tmp_path / "k")])
        try:
            assert process.wait(generator.uniform(6, 14)) == 0
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
    assert kills >= 3
    found = read(AdviceFolder(tmp_path / "k"))
    assert len(found.sentences) == 5
    # What a killed process spent since it last wrote its clock down is not counted: five seconds at most, each time.
    assert found.facts["clocks"]["spent"] <= 60 * 1.5
    assert time.monotonic() - began < 60 * 1.5 + 14 * (kills + 1)


def test_more_time_goes_on_with_the_last_stage_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Lengths(monkeypatch, *LENGTHS)
    driven(tmp_path / "more")
    folder = AdviceFolder(tmp_path / "more")
    stamps = [(folder.stage(name).path / "table.csv").stat().st_mtime_ns for name in STAGES]
    Lengths(monkeypatch, 20)
    found = driven(tmp_path / "more", asked_for(90.0))
    assert [folder.stage(name).progress.rounds for name in STAGES] == [[5], [6], [8, 12, 20]]
    after = [(folder.stage(name).path / "table.csv").stat().st_mtime_ns for name in STAGES]
    assert after[:2] == stamps[:2]
    assert after[2] > stamps[2]
    assert found.facts["batches"] == 20
    with pytest.raises(RunError, match="larger budget"):
        driven(tmp_path / "more")


def test_no_run_of_a_pilot_is_longer_than_the_full_run(tmp_path: Path) -> None:
    found = driven(tmp_path / "short", asked_for(batches=12))  # a clock that stands still leaves time for any length
    folder = AdviceFolder(tmp_path / "short")
    assert {folder.stage(name).progress.rounds[-1] for name in STAGES} == {12}
    assert found.facts["batches"] == found.facts["full"] == 12


@pytest.mark.usefixtures("rounds")
def test_another_question_is_refused_in_the_same_folder(tmp_path: Path) -> None:
    driven(tmp_path / "a")
    with pytest.raises(RunError, match="other settings"):
        driven(tmp_path / "a", asked_for(hidden=7))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine.txt").write_text("mine")
    with pytest.raises(RunError, match="holds no advice"):
        driven(tmp_path / "b")
    assert (tmp_path / "b" / "mine.txt").read_text() == "mine"


def test_what_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ConfigurationError) as told:
        asking.asked("x", 5.0, "beauty", {"batches": 0, "seed": 3, "patience": 2, "hidden": -1})
    words = " ".join(told.value.problems)
    for part in ("beauty", "between 60 and", "batches", "seed", "patience", "hidden"):
        assert part in words


@pytest.mark.parametrize("budget", [math.nan, math.inf, pytest.param(10**400, id="huge"), -1, True])
def test_a_budget_is_some_number_of_seconds(budget: float) -> None:
    with pytest.raises(ConfigurationError, match="between 60 and"):
        asking.asked("x", budget)


@pytest.mark.parametrize(
    ("name", "value"), [("k1", 0), ("k2", 0), ("batches", "x"), ("batches", 40.5), ("scheme", 4), ("k1", 2.5)]
)
def test_no_setting_is_put_right_in_silence(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=name):
        asking.asked("x", 60, settings={name: value})


def test_a_validation_set_that_nobody_asked_for_leaves_enough_to_train() -> None:
    text = Corpus.from_text("abcde" * 1000)
    for k2, cut_off in ((200, 500), (250, None)):
        asked = asking.asked("", 60, settings={"k2": k2}).described(text)
        asked = asking.with_validation(asked, text)
        assert asked.base.validation == cut_off
        asking.require_text(asked, text)


def test_a_text_that_no_setting_can_be_trained_on_is_refused_before_there_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(CorpusError):
        unroll.advise(Corpus.from_text("abc" * 30), 60, out=tmp_path / "short", progress=False)
    assert not (tmp_path / "short").exists()


@pytest.mark.parametrize("damage", ["cut", "deep", "flip", "list", "nan"])
def test_a_damaged_file_is_one_message(done: Advice, tmp_path: Path, damage: str) -> None:
    assert done.path is not None
    text = (done.path / "advice.json").read_text()
    (tmp_path / "advice.json").write_text(
        {
            "cut": text[:200],
            "deep": "[" * 100_000,
            "flip": text.replace('"spent": ', '"spent": 1', 1),
            "list": "[]",
            "nan": "NaN",
        }[damage]
    )
    with pytest.raises(RunError, match="damaged"):
        read(AdviceFolder(tmp_path))
    with pytest.raises(RunError, match="damaged"):
        driven(tmp_path)


def _changed(done: Advice, folder: Path, change: Callable[[dict[str, Any]], object]) -> AdviceFolder:
    """A pilot whose file a stranger changed and sealed."""
    assert done.path is not None
    shutil.copytree(done.path, folder)
    content = json.loads((folder / "advice.json").read_text())
    content = {name: value for name, value in content.items() if name not in ("unroll", "sha256")}
    change(content)
    sealed = untrusted.sealed({"unroll": VERSION, **content})
    (folder / "advice.json").write_text(json.dumps(sealed))
    return AdviceFolder(folder)


STRANGE: dict[str, Callable[[dict[str, Any]], object]] = {
    "no clocks": lambda c: c["answer"].pop("clocks"),
    "no seconds": lambda c: c["answer"]["clocks"].update(spent="long"),
    "taken": lambda c: c["answer"].update(taken=99),
    "command": lambda c: c["answer"].update(command=[1]),
    "large": lambda c: c["answer"].update(method="a" * 2_000_000),
    "spent": lambda c: c.update(spent=-1e9),
    "budget": lambda c: c.update(budget=10**400),
    "scores": lambda c: c["scores"].update(seeds={"a": -1e300}),
    "stage": lambda c: c["scores"].update(others={}),
    "half a character": lambda c: c["answer"].update(corpus="\ud800"),
}


@pytest.mark.parametrize("change", STRANGE)
def test_what_a_stranger_sealed_is_one_message_too(done: Advice, tmp_path: Path, change: str) -> None:
    folder = _changed(done, tmp_path / "strange", STRANGE[change])
    with pytest.raises(RunError, match="damaged"):
        read(folder)


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_that_is_gone_is_said_before_anything_is_trained(done: Advice, tmp_path: Path, name: str) -> None:
    assert done.path is not None
    shutil.copytree(done.path, tmp_path / "less")
    shutil.rmtree(tmp_path / "less" / name)
    events: list[Report] = []
    with pytest.raises(RunError, match=f"{name} is gone"):
        driven(tmp_path / "less", asked_for(need="speed"), take=events.append)
    assert not events


def test_a_link_in_place_of_a_stage_is_refused(tmp_path: Path, done: Advice) -> None:
    assert done.path is not None
    target = tmp_path / "target"
    target.mkdir()
    folder = tmp_path / "pilot"
    folder.mkdir()
    state = json.loads((done.path / "advice.json").read_text())
    assert state
    (folder / "advice.json").write_text((done.path / "advice.json").read_text())
    (folder / "alone").symlink_to(target)
    with pytest.raises(RunError, match="must be a folder"):
        driven(folder, asked_for(90.0))
    assert not list(target.iterdir())
