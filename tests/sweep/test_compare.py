"""A comparison: equal budgets are equal, a kill costs nothing, a budget is kept, what is refused is said at once."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from sweeping import corpus

import unroll
from unroll import Comparison, Corpus, Scheme, compare
from unroll.base import atomic_files
from unroll.base.errors import ConfigurationError, CorpusError, RunError
from unroll.corpus.open_corpora import Library
from unroll.sweep.comparison import asked as asking
from unroll.sweep.comparison.drive import drive
from unroll.sweep.comparison.folder import ComparisonFolder
from unroll.sweep.comparison.shown import read
from unroll.sweep.launchers import Progressed, Report
from unroll.sweep.paced.clock import Clock, clock
from unroll.sweep.paced.rounds import Rounds

TINY: dict[str, Any] = {"k2": 6, "hidden": 6, "dense": 8, "rows": 3, "device": "cpu", "threads": 1}


def compared(out: Path, schemes: Any = (1, 2, 3, 4), **settings: Any) -> Comparison:
    chosen = {"k1": [3, 6], "seeds": 2, "batches": 12, "most": 4, "progress": False, **TINY, **settings}
    return compare(corpus(), schemes, out=out, **chosen)


def without_clocks(facts: Any) -> Any:
    """An answer without what clocks say, and without the sentences and the costs that repeat it."""
    if isinstance(facts, dict):
        return {name: without_clocks(value) for name, value in facts.items() if name not in ("clocks", "sentences")}
    return [without_clocks(value) for value in facts] if isinstance(facts, list) else facts


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return compared(tmp_path_factory.mktemp("compare") / "done")


def folder_of(comparison: Comparison) -> ComparisonFolder:
    assert comparison.path is not None
    return ComparisonFolder(comparison.path)


def test_every_run_gets_the_same_batches_and_every_setting_its_row(done: Comparison) -> None:
    folder = folder_of(done)
    assert {folder.run(t.name).status["batch"] for t in folder.trainings} == {12}
    assert (done.facts["batches"], done.facts["sequences"], done.facts["runs"]) == (12, 36, 12)
    assert {(one["scheme"], one["k1"]) for one in done.settings} == {
        (f"scheme {n}", k1) for n in (1, 2, 3, 4) for k1 in (3, 6)
    }
    assert all(one["seeds"] == 2 and one["missing"] == 0 for one in done.settings)


def test_the_answer_has_all_its_parts(done: Comparison) -> None:
    means = [one["best"]["mean"] for one in done.schemes]
    assert means == sorted(means)
    assert len(done.sentences) == 3
    assert done.sure is not None
    assert 0 <= done.sure <= 1
    assert done.command.startswith("unroll train ")
    carried = next(one for one in done.schemes if one["scheme"] == "scheme 4")
    assert carried["zero_over_carried"] > 0
    for one in done.schemes:
        assert set(one["clocks"]["microseconds"]) <= {"windowed", "progressive"}
        assert one["copied"]["tokens"] == 1000
        assert one["copied"]["longest"] >= 1
        assert one["copied"]["held_out"] >= 1
        assert one["k1_spread"] >= 0
        assert one["rise"] >= 0


def test_final_perplexities_are_those_of_the_runs_at_the_common_batch(done: Comparison) -> None:
    folder = folder_of(done)
    for one in done.settings:
        scores = [
            folder.run(t.name).metrics[-1]["perplexity"][asked.scheme.sample]
            for t in folder.trainings
            for asked in t.asked
            if (asking.label(asked.scheme), asked.scheme.k1) == (one["scheme"], one["k1"])
        ]
        assert one["final"]["mean"] == pytest.approx((scores[0] * scores[1]) ** 0.5)


def test_it_shows_itself_in_a_notebook_and_as_text(done: Comparison) -> None:
    page = done._repr_html_()
    assert "<script" not in page
    assert done.schemes[0]["scheme"] in page
    assert all(len(line) <= 40 for line in done.lines(40))
    assert done.sentences[0].split(",")[0] in " ".join(str(done).split())
    assert repr(done).startswith("<Comparison on ")


def test_what_is_recommended_can_be_trained(done: Comparison, tmp_path: Path) -> None:
    from unroll.cli import command

    _, train, _, *options = done.facts["command"]
    assert train == "train"
    context = command("train").make_context("train", ["text.txt", *options])
    assert context.params["k2"] == 6
    assert context.params["hidden"] == 6


def test_the_same_command_again_gives_the_same_answer_and_trains_nothing(done: Comparison) -> None:
    events: list[Report] = []
    assert done.path is not None
    again = compared(done.path, on_event=events.append)
    assert again.facts == done.facts
    assert events == []


class Stop(Exception):
    pass


def test_interrupted_and_gone_on_with_it_gives_the_same_answer(done: Comparison, tmp_path: Path) -> None:
    places = [3, 11]

    def leave(report: Report) -> None:
        if isinstance(report, Progressed) and report.batch == places[0]:
            raise Stop

    while places:
        with pytest.raises(Stop):
            compared(tmp_path / "again", on_event=leave)
        del places[0]
    again = compared(tmp_path / "again")
    assert without_clocks(again.facts) == without_clocks(done.facts)
    rows = (tmp_path / "again" / "table.csv").read_bytes()
    assert done.path is not None
    assert rows == (done.path / "table.csv").read_bytes()


KILLED = """
import sys, os
sys.path[:0] = sys.argv[1].split(os.pathsep)
from pathlib import Path
from sweep.test_compare import compared
compared(Path(sys.argv[2]))
"""


@pytest.mark.slow
def test_killed_again_and_again_it_gives_the_same_answer(done: Comparison, tmp_path: Path) -> None:
    here = os.pathsep.join([*sys.path, str(Path(__file__).parents[1])])
    generator, kills = random.Random(3), 0
    for _ in range(40):
        process = subprocess.Popen([sys.executable, "-c", KILLED, here, str(tmp_path / "k")])
        try:
            if process.wait(generator.uniform(2.5, 6)) == 0:
                break
            raise AssertionError("it failed of itself")
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
    assert kills
    again = compared(tmp_path / "k")
    assert without_clocks(again.facts) == without_clocks(done.facts)


# --- a budget of time


def asked_for(budget: float, **settings: Any) -> asking.Asked:
    schemes = asking.schemes_of([1, 4])
    found = asking.asked("", schemes, [6], 2, budget, None, {**TINY, "test_tokens": 20, **settings})
    return found.described(corpus())


def driven(out: Path, budget: float, clock: Clock, take: Any = None) -> ComparisonFolder:
    folder = ComparisonFolder(out)
    for report in drive(folder, Library([corpus()]), asked_for(budget), clock, most=4):
        if take:
            take(report)
    return folder


@pytest.mark.slow
def test_a_budget_is_spent_in_rounds_at_whose_end_all_runs_are_equally_long(tmp_path: Path) -> None:
    began = time.monotonic()
    folder = driven(tmp_path / "b", 30.0, clock())
    assert time.monotonic() - began >= 0.7 * 30  # a busy machine may take longer
    progress, found = folder.progress, read(folder)
    assert len(progress.rounds) >= 2
    assert progress.rounds == sorted(set(progress.rounds))
    states = {(s["state"], s["batch"]) for t in folder.trainings for s in [folder.run(t.name).status]}
    if not progress.cut:
        assert states == {("finished", progress.rounds[-1])}
        assert found.facts["batches"] == progress.rounds[-1]
    assert {len(one["best"]) for one in found.settings} == {3}


class Lengths:
    """Rounds to these batches, whatever the clock says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *lengths: int) -> None:
        self.left = list(lengths)
        monkeypatch.setattr(Rounds, "next", lambda known, left: self.left.pop(0) if self.left else None)


def test_runs_of_several_rounds_are_those_that_were_as_long_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Lengths(monkeypatch, 4, 9, 17)
    folder = driven(tmp_path / "rounds", 30.0, Clock(lambda: 0.0, 0.0))
    assert folder.progress.rounds == [4, 9, 17]
    at_once = compare(
        corpus(), (1, 4), k1=6, seeds=2, batches=17, most=4, out=tmp_path / "once", progress=False,
        test_tokens=20, **TINY,
    )  # fmt: skip
    other = folder_of(at_once)
    for training in folder.trainings:
        one, same = folder.run(training.name), other.run(training.name)
        assert [line["perplexity"] for line in one.metrics] == [line["perplexity"] for line in same.metrics]
        tensors = [each.weights()[0] for each in (one, same)]
        assert all(value.equal(tensors[1][name]) for name, value in tensors[0].items())


def test_a_round_that_would_outlast_the_budget_is_cut_short_and_read_where_all_runs_were_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Lengths(monkeypatch, 6, 60)
    now = [0.0]

    def take(report: Report) -> None:
        if isinstance(report, Progressed) and report.batch == 30:
            now[0] = 1000.0

    folder = driven(tmp_path / "cut", 60.0, Clock(lambda: now[0], 0.0), take)
    found = read(folder)
    assert folder.progress.cut
    assert 6 <= found.facts["batches"] < 60
    assert any("cut short" in note for note in found.notes)
    reached = [folder.run(t.name).metrics for t in folder.trainings]
    assert all(any(line["batch"] == found.facts["batches"] for line in lines) for lines in reached)


def test_a_larger_budget_goes_on_from_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Lengths(monkeypatch, 6)
    folder = driven(tmp_path / "more", 30.0, Clock(lambda: 0.0, 0.0))
    Lengths(monkeypatch, 12)
    driven(tmp_path / "more", 60.0, Clock(lambda: 0.0, 0.0))
    assert folder.progress.rounds == [6, 12]
    assert folder.progress.budget == 60.0
    assert {folder.run(t.name).status["batch"] for t in folder.trainings} == {12}
    with pytest.raises(RunError, match="larger budget"):
        driven(tmp_path / "more", 30.0, Clock(lambda: 0.0, 0.0))


# --- what is asked


def test_a_validation_set_is_cut_off_where_the_corpus_spares_it() -> None:
    drawn = random.Random(0)
    large = Corpus.from_text("".join(drawn.choices("abcdefgh ", k=60_000)))
    found = asking.with_validation(asked_for(60.0), large)
    assert {e.validation for e in found.experiments} == {3000}
    assert {e.validation for e in asking.with_validation(asked_for(60.0), corpus()).experiments} == {None}
    own = asked_for(60.0, validation=500)
    assert {e.validation for e in asking.with_validation(own, large).experiments} == {500}


def test_all_problems_are_said_in_one_message() -> None:
    with pytest.raises(ConfigurationError) as error:
        compare(corpus(), (1, 2), budget="1s", batches=0, seeds=0, patience=3, hidden=0, progress=False)
    said = str(error.value)
    for words in (
        "drop one of the two",
        "at least 30 seconds",
        "batches must be",
        "seeds must be",
        "patience",
        "hidden",
    ):
        assert words in said


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"schemes": (1,), "k1": 5}, "nothing to compare"),
        ({"schemes": (7,)}, "must be 1, 2, 3 or 4"),
        ({"schemes": ("one",)}, "number from 1 to 4"),
        ({"budget": "ten minutes"}, "as in 90s"),
        ({"schedule": "cosine"}, "depends on the number of batches"),
        ({"seed": 3}, "for the comparison to say"),
        ({"preset": "tiny"}, "paper, small"),
        ({"launcher": "nobody"}, "launcher"),
        ({"hiden": 5}, "no setting 'hiden'"),
    ],
)
def test_what_cannot_be_is_refused_before_there_is_a_folder(
    settings: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        compare(corpus(), **{"schemes": (1, 2), "out": tmp_path / "no", "progress": False, **settings})
    assert not (tmp_path / "no").exists()


def test_a_corpus_that_is_too_short_is_refused_before_there_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="Lower k2"):
        compare(corpus(), (1, 2), k2=100, out=tmp_path / "no", progress=False)
    assert not (tmp_path / "no").exists()


def test_another_comparison_or_a_sweep_in_the_folder_is_refused(done: Comparison, tmp_path: Path) -> None:
    assert done.path is not None
    with pytest.raises(RunError, match="holds another comparison: 8 of the runs"):
        compared(done.path, hidden=7, schemes=(1, 2))
    with pytest.raises(RunError, match="another number of batches"):
        compared(done.path, batches=13)
    unroll.train_all(
        unroll.grid(scheme=[1], k1=3, batches=2, **TINY), tmp_path / "s", [corpus()], most=1, progress=False
    )
    with pytest.raises(RunError, match="no comparison"):
        compared(tmp_path / "s")


def test_points_of_the_plane_are_compared_like_schemes(tmp_path: Path) -> None:
    found = compared(tmp_path / "plane", (1, Scheme(state="carried", reset=0.1, sample="progressive")), k1=6, batches=5)
    assert {one["scheme"] for one in found.schemes} == {"scheme 1", "conditional,reset=0.1"}


def test_runs_that_diverge_are_a_result(tmp_path: Path) -> None:
    found = compared(tmp_path / "wild", (1, 2), k1=6, batches=60, learning_rate=1e20)
    assert found.winner is None
    assert found.facts["failures"]
    assert "nothing to take" in found.sentences[0] or found.schemes[0]["missing"]


@pytest.mark.parametrize("name", ["compare.json", "rounds.json"])
def test_a_damaged_file_is_refused_in_words(done: Comparison, name: str, tmp_path: Path) -> None:
    path = folder_of(done).path / name
    content = path.read_bytes()
    try:
        changed = content.replace(b'"unroll": "', b'"unroll": "1', 1)
        assert changed != content
        for damage in (changed, b"[" * 5000, b"{}", b"\xff", b'{"rounds": "x", "schemes": 3}'):
            atomic_files.write(path, damage)
            with pytest.raises(RunError, match="damaged"):
                read(folder_of(done)) if name == "compare.json" else folder_of(done).progress
    finally:
        atomic_files.write(path, content)
    assert json.loads(content)["sha256"]
