"""unroll study beyond: from parts to records, resumable, with the loss by position of what carries states."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from unroll.base.errors import InputError, RunError
from unroll.cli import app
from unroll.engines.choice import engine_of
from unroll.runs.perplexities import perplexities, token_nll
from unroll.studies.beyond import ngrams, parts, records
from unroll.studies.beyond.experiments import FULL, SMALL, Size, every, experiment
from unroll.studies.beyond.parts import K3, PARTS, RESETS, Part, settings
from unroll.studies.beyond.positions import by_position, edges
from unroll.studies.beyond.study import Study
from unroll.studies.paper.experiments import open_all
from unroll.studies.paper.figures import CORPORA
from unroll.training.learner import Learner

TINY = Size("tiny", 6, 4, 10, batches=6, evaluations=3, validation=120, rows=3, test_tokens=250)
FEW = {
    "weights": Part(settings("single-loss", "multi-loss"), (0,)),
    "states": Part(settings(parts.ZERO, "conditional,reset=0.1"), (0,)),
    "splits": Part(settings("multi-loss"), (0,), (0, 3), is_narrow=True),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four small texts under the names of the paper's corpora; music as numbers."""
    folder = tmp_path_factory.mktemp("data")
    for number, name in enumerate(CORPORA):
        drawn = random.Random(number)
        words = ["".join(drawn.choice("abcdefgh") for _ in range(drawn.randint(2, 5))) for _ in range(30)]
        text = " ".join(drawn.choice(words) for _ in range(1200))
        if name == "music":
            text = "\n".join(" ".join(str(60 + ord(c) - 97) for c in line if c != " ") for line in text.split("d"))
        (folder / f"{name}.txt").write_text(text)
    return folder


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few settings in the place of all."""
    for name, part in FEW.items():
        monkeypatch.setitem(PARTS, name, part)


@pytest.fixture(scope="module")
def done(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The records of a few settings of three parts, on four corpora."""
    out = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        for name, part in FEW.items():
            patch.setitem(PARTS, name, part)
        for _ in Study([*FEW, "ngrams"], data, out, TINY, most=20).run():
            pass
    return out


def test_the_parts_are_the_points_that_were_asked_for() -> None:
    trains = {name: [setting.train for setting in part.settings] for name, part in PARTS.items()}
    assert [f"multi-loss,k3={k3}" for k3 in K3] == trains["weights"][1:6]
    assert {"single-loss", "multi-loss", "multi-loss,decay=linear", "multi-loss,decay=exponential"} <= {
        *trains["weights"]
    }
    assert {parts.ZERO, "conditional", "conditional,reset=never"} <= {*trains["states"]}
    assert {f"conditional,reset={reset}" for reset in RESETS} <= {*trains["states"]}
    assert all(setting.k1 > parts.K2 for setting in PARTS["gaps"].settings)
    assert all(part.seeds == (0, 1, 2) for name, part in PARTS.items() if name != "splits")
    assert len(PARTS["splits"].splits) == 5


@pytest.mark.parametrize("size", [FULL, SMALL], ids=["full", "small"])
def test_no_two_runs_of_a_part_are_one_training(size: Size, data: Path) -> None:
    corpora = open_all(data)
    for part in PARTS.values():
        asked = [one.experiment.identity for one in every(part, size, corpora)]
        assert len(set(asked)) == len(asked) == 4 * len(part.settings) * len(part.seeds) * len(part.splits)


def test_every_run_has_its_points_and_only_carried_ones_a_loss_by_position(done: Path, few: None) -> None:
    for part, record in records.read(done).items():
        assert len(record.runs) == 4 * len(FEW[part].settings) * len(FEW[part].seeds) * len(FEW[part].splits)
        for run in record.runs:
            assert run.state == "finished"
            assert run.points["batch"] == [1, 2, 6]
            scored = {"windowed", "progressive", "validation_windowed", "validation_progressive"}
            assert all(None not in run.points[name] for name in (*scored, "largest_loss", "largest_gradient_norm"))
            carries = run.train.startswith("conditional")
            assert (run.by_position is not None) == carries == (None not in run.points["carried"])
            if run.by_position:
                assert run.by_position["from"] == [100, 200]
                assert sum(run.by_position["tokens"]) == 250 - 100 or run.corpus == "music"
                assert len(run.by_position["zero"]) == len(run.points["batch"])


def test_the_loss_by_position_adds_up_to_the_perplexity(done: Path, few: None) -> None:
    for run in records.read(done)["states"].runs:
        if run.by_position is None:
            continue
        weights = torch.tensor(run.by_position["tokens"], dtype=torch.float64)
        for row, perplexity in zip(run.by_position["zero"], run.points["progressive"], strict=True):
            mean = (torch.tensor(row, dtype=torch.float64) * weights).sum() / weights.sum()
            assert float(mean.exp()) == pytest.approx(perplexity, rel=1e-3)


def test_the_loss_by_position_is_that_of_the_states_that_training_carries(data: Path) -> None:
    corpora = open_all(data, ["english", "linux"])
    asked = [
        experiment(setting, 0, 0, TINY, False, corpus)
        for setting, corpus in zip(settings("multi-loss", "conditional"), corpora.values(), strict=True)
    ]
    learner = Learner(asked, list(corpora.values()), engine_of(torch.device("cpu"), "reference"))
    for _ in range(4):
        learner.step()
    ids = torch.from_numpy(corpora["linux"].test_ids(0).astype("int64"))
    measured = by_position(learner, [1], [ids])[1]
    first = tuple(tuple(s[1:] for s in state) for state in learner.carried)
    (nll_NR,) = token_nll(learner.model.runs([1]), [ids], 100, "progressive", first=first)
    (from_zero,) = token_nll(learner.model.runs([1]), [ids], 100, "progressive")
    ends = edges(len(ids), 100)
    assert measured.zero[1] == pytest.approx(float(from_zero[ends[1] - 100 : ends[2] - 100].mean()))
    assert measured.carried[-1] == pytest.approx(float(nll_NR[ends[-2] - 100 :].mean()))
    rows = sorted(row.perplexity for row in perplexities(nll_NR))
    assert measured.perplexity == rows[1], "the median of three rows"


def test_what_a_record_holds_is_not_trained_again_and_what_is_lost_comes_back_alike(
    done: Path, data: Path, tmp_path: Path, few: None
) -> None:
    whole = records.read(done)["states"]
    assert Study(["states"], data, done, TINY).left("states") == {}
    kept = [run for run in whole.runs if run.corpus != "music"]
    (tmp_path / "records").mkdir()
    records.write(tmp_path, records.Record("states", TINY, runs=tuple(kept)))
    study = Study(["states"], data, tmp_path, TINY, most=20)
    assert len(study.left("states")) == 2
    for _ in study.run():
        pass
    again = records.read(tmp_path)["states"]
    assert [run.identity for run in again.runs] == [run.identity for run in whole.runs]
    assert again.runs[:-2] == whole.runs[:-2]
    for lost, back in zip(whole.runs[-2:], again.runs[-2:], strict=True):
        assert back.points["windowed"] == pytest.approx(lost.points["windowed"], rel=1e-4)


def test_a_record_is_read_as_it_was_written_and_a_damaged_one_is_named(done: Path, tmp_path: Path, few: None) -> None:
    record = records.read(done)["weights"]
    source = records.path(tmp_path, "weights")
    source.parent.mkdir()
    records.write(tmp_path, record)
    assert records.from_json(source) == record
    content = json.loads(source.read_text())
    del content["runs"][0]["points"]["loss"]
    source.write_text(json.dumps(content))
    with pytest.raises(RunError, match="damaged"):
        records.read(tmp_path)


def test_records_of_another_size_or_a_folder_of_something_else_are_refused(
    done: Path, data: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="of the size tiny, not small"):
        Study(["weights"], data, done, SMALL)
    (tmp_path / "mine.txt").write_text("")
    with pytest.raises(InputError, match="holds something else"):
        Study(["weights"], data, tmp_path, TINY)


def test_every_split_of_every_text_is_counted_once(done: Path, data: Path) -> None:
    rows = ngrams.read(done)
    assert [(row.corpus, row.split_seed) for row in rows] == [(n, s) for n in CORPORA for s in parts.SPLITS]
    assert list(ngrams.count(done, open_all(data))) == []
    assert len({row.perplexity for row in rows}) > 4


def test_all_that_is_wrong_with_a_command_is_said_at_once() -> None:
    result = CliRunner().invoke(app, ["study", "beyon", "--only", "weigths"])
    assert isinstance(result.exception, InputError)
    said = " ".join(result.exception.problems)
    wrong = ("beyon", "weigths", "where the corpora are", "where the records go")
    assert [part for part in wrong if part not in said] == []
