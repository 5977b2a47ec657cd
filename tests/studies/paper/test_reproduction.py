"""A reproduction does each training once, whatever kills it, and its records are enough to go on."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import killing
import pytest
from reproducing import SCALE, Job, begun, drive, live, partly, result, texts

from unroll.base.errors import ConfigurationError, CorpusError, RunError
from unroll.experiment.experiment import Experiment
from unroll.studies.paper import planning, records, timing
from unroll.studies.paper.experiments import Scale, Wanted, open_all, wanted
from unroll.studies.paper.figures import FIGURES, K1, TABLE, Series, training, trainings
from unroll.studies.paper.records import Record, Time
from unroll.studies.paper.reproduction import Reproduction
from unroll.sweep.launchers import Report, RunEnded


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return texts(tmp_path_factory.mktemp("paper") / "data")


@pytest.fixture(scope="module")
def uninterrupted(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Report]]:
    """The folder of a reproduction, and what happened."""
    out = tmp_path_factory.mktemp("paper") / "whole"
    return out, drive(data, out)


@pytest.fixture(scope="module")
def whole(uninterrupted: tuple[Path, list[Report]]) -> Path:
    return uninterrupted[0]


# --- the plan -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [1, 2])
def test_every_training_is_planned_once_and_fleets_with_times_are_pure(data: Path, seeds: int) -> None:
    corpora, scale = open_all(data), Scale(SCALE)
    every = wanted(list(FIGURES), dict.fromkeys(FIGURES, seeds), scale, "float32", corpora)
    assert len(every) == seeds * len(trainings(FIGURES)) == seeds * (222 + 70 + 120)
    plan = planning.make(every.values(), corpora, scale, None)
    assert sorted(plan.names) == sorted(one.training.name for one in every.values())
    assert not plan.refused
    series = {one.training.name: one.series for one in every.values()}
    timed = {training(one) for one in FIGURES["k2"]}
    for fleet in plan.fleets:
        members = [series[name] for name in fleet.runs]
        if timed & set(members):
            assert timed >= set(members)
            assert len({(one.train, one.k2) for one in members}) == 1
            assert len(members) == 3 * seeds


def test_a_training_of_k2_is_planned_alike_when_another_figure_asks_for_it(data: Path) -> None:
    corpora, scale = open_all(data), Scale(SCALE)
    asked = wanted(["schemes"], {"schemes": 1}, scale, "float32", corpora)
    shared = {training(one) for one in FIGURES["k2"]} & {one.series for one in asked.values()}
    assert len(shared) == 3
    plan = planning.make(asked.values(), corpora, scale, None)
    series = {one.training.name: one.series for one in asked.values()}
    assert [fleet.runs for fleet in plan.fleets if series[fleet.runs[0]] in shared and len(fleet.runs) > 1] == []


def test_at_the_papers_scale_an_experiment_is_the_papers(data: Path) -> None:
    asked = wanted(list(FIGURES), dict.fromkeys(FIGURES, 1), Scale(), "float32", open_all(data))
    for one in asked.values():
        e = one.training.experiment
        assert (e.batches, e.rows, e.dense, e.evaluations, e.test_tokens) == (12800, 64, 1024, None, None)
        assert (e.hidden, e.layers, e.scheme.k1, e.scheme.k2) == (
            one.series.hidden, one.series.layers, one.series.k1, one.series.k2,
        )  # fmt: skip
        assert all(getattr(e, name, getattr(e.scheme, name, None)) == v for name, v in one.series.varied)


def test_below_scale_1_models_are_small_and_the_grid_is_the_same(data: Path) -> None:
    asked = wanted(list(FIGURES), dict.fromkeys(FIGURES, 1), Scale(0.005), "float32", open_all(data))
    assert len(asked) == 412
    shapes = {(e.hidden, e.dense, e.batches, e.test_tokens, e.evaluations) for e in _experiments(asked)}
    assert shapes == {(8, 64, 64, 1100, 8), (32, 64, 64, 1100, 8)}
    assert Scale(0.0001).fitted(Experiment()).batches == 16


def test_every_curve_of_the_paper_is_scored_under_its_own_procedure(data: Path) -> None:
    asked = wanted(list(FIGURES), dict.fromkeys(FIGURES, 1), Scale(), "float32", open_all(data))
    scored = {one.series: one.training.experiment for one in asked.values()}
    for one in (one for curves in FIGURES.values() for one in curves):
        e = scored[training(one)]
        assert one.sample == e.scheme.sample or e.evaluate == "both"
    assert sum(e.evaluate_carried for e in scored.values()) == 4 * 20


def _experiments(asked: dict[str, Wanted]) -> Iterator[Experiment]:
    return (one.training.experiment for one in asked.values())


@pytest.mark.parametrize("scale", [0, -1, 1.5, float("nan")])
def test_a_scale_out_of_range_is_refused(scale: float) -> None:
    with pytest.raises(ConfigurationError, match="scale must be above 0"):
        Scale(scale)


# --- the records --------------------------------------------------------------------------------------------------


def test_every_curve_of_the_figures_is_in_their_records_with_its_own_perplexity(whole: Path) -> None:
    with partly():
        by_figure = records.read(whole)
        assert set(by_figure) == {"schemes", "k2", "extras"}
        for name, record in by_figure.items():
            assert [curve.series for curve in record.curves] == list(FIGURES[name])
            for curve in record.curves:
                assert curve.state == "finished"
                assert len(curve.scored) == len(curve.points["batch"])
                assert curve.points["batch"][-1] == curve.batches == 16
                assert ("carried" in curve.points) == (curve.train == "conditional" and curve.k2 == 100)
    assert not (whole / "runs").exists()


def test_a_training_that_figures_share_is_done_once(uninterrupted: tuple[Path, list[Report]]) -> None:
    _, reports = uninterrupted
    with partly():
        distinct = trainings(FIGURES)
    ended = [report.run for report in reports if isinstance(report, RunEnded)]
    assert len(ended) == len(set(ended)) == len(distinct) == 12


def test_records_alone_are_enough_to_skip_what_is_finished(data: Path, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole / "records", tmp_path / "records")
    assert begun(drive(data, tmp_path)) == []
    assert result(tmp_path)["k2.json"] == result(whole)["k2.json"]


def test_a_figures_records_serve_another_that_shares_its_trainings(data: Path, whole: Path, tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    shutil.copy(whole / "records" / "k2.json", tmp_path / "records")
    drive(data, tmp_path, ["schemes"])
    assert len(records.read(tmp_path)["schemes"].curves) == 5
    shared = [curve for curve in records.read(tmp_path)["schemes"].curves if curve.corpus == "music"]
    assert all(curve in records.read(whole)["k2"].curves for curve in shared)  # with the clocks of the first time


def test_more_seeds_train_only_what_is_new(data: Path, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole / "records", tmp_path / "records")
    reports = drive(data, tmp_path, ["extras"], seeds=2)
    ended = [report.run for report in reports if isinstance(report, RunEnded)]
    assert len(ended) == 2
    assert all("seed1" in name for name in ended)
    record = records.read(tmp_path)["extras"]
    assert record.seeds == (0, 1)
    assert [curve.seed for curve in record.curves] == [0, 1, 0, 1]


def test_weights_are_kept_only_when_asked(data: Path, tmp_path: Path) -> None:
    drive(data, tmp_path, ["extras"], keep_weights=True)
    assert len(list(tmp_path.glob("runs/*/weights.safetensors"))) == 2
    drive(data, tmp_path, ["extras"])  # once kept, they stay
    assert len(list(tmp_path.glob("runs/*/weights.safetensors"))) == 2


# --- refusals -----------------------------------------------------------------------------------------------------


def test_missing_corpora_are_listed_at_once_before_any_work(data: Path, tmp_path: Path) -> None:
    shutil.copy(data / "linux.txt", tmp_path / "linux.txt")
    with pytest.raises(CorpusError) as error:
        Reproduction(["k2"], tmp_path, tmp_path / "out")
    assert [problem.split(" is missing")[0].split("/")[-1] for problem in error.value.problems] == [
        "english.txt", "finnish.txt", "music.txt",
    ]  # fmt: skip
    assert not (tmp_path / "out").exists()


def test_a_folder_goes_on_only_as_it_began(data: Path, whole: Path, tmp_path: Path) -> None:
    for changes, words in (({"scale": 0.0013}, "scale 0.00125"), ({"precision": "float64"}, "precision float32")):
        with pytest.raises(RunError, match=words):
            drive(data, whole, **changes)
    other = texts(tmp_path / "other")
    (other / "music.txt").write_text((other / "music.txt").read_text() + "C4 C4\n")
    with pytest.raises(RunError, match=r"another music\.txt"):
        drive(other, whole)


def test_a_folder_that_holds_something_else_is_left_alone(data: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(RunError, match="holds no reproduction"):
        drive(data, tmp_path)


# --- kills --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on_to_the_same_records_and_ends_nothing_twice(
    data: Path, whole: Path, tmp_path: Path
) -> None:
    """Each life is killed after some moments on disk; the next goes on."""
    out, drawn, moments, ended = tmp_path / "out", random.Random(7), [], 0
    for _ in range(6):
        outcome = killing.lived(live, Job(str(data), str(out), drawn.randint(20, 160)))
        if not outcome.killed:
            break
        moments.append(outcome.moment)
        done = sum(len(record.curves) for record in records.read(out).values()) if (out / "records").exists() else 0
        assert done >= ended
        ended = done
    assert len(moments) >= 3
    drive(data, out)
    assert result(out) == result(whole)


@pytest.mark.slow
def test_a_fleet_that_was_begun_for_another_figure_is_not_lost(data: Path, tmp_path: Path) -> None:
    """A fleet goes on whole: its runs of a figure that is not asked for now get their record as well."""
    outcome = killing.lived(live, Job(str(data), str(tmp_path / "out"), 30))
    assert outcome.killed
    drive(data, tmp_path / "out", ["extras"])
    by_figure = records.read(tmp_path / "out")
    assert len(by_figure["extras"].curves) == 2
    drive(data, tmp_path / "out")
    assert {name: len(record.curves) for name, record in records.read(tmp_path / "out").items()} == {
        "schemes": 5, "k2": 12, "extras": 2,
    }  # fmt: skip
    assert not (tmp_path / "out" / "runs").exists()


# --- the table ----------------------------------------------------------------------------------------------------


def test_the_table_is_measured_for_one_run_and_for_a_fleet_and_what_is_known_is_not_measured_again(data: Path) -> None:
    corpus = open_all(data)["english"]
    asked = [item for item in timing.missing(None) if item[0].hidden == 128 and item[0].layers == 1]
    with mock.patch.object(timing, "SECONDS", 0.01):
        measured = list(timing.measure(asked, Scale(SCALE), "float32", corpus, 2))
    times = [time for cell, _ in measured for time in cell]
    assert sorted((t.scheme, t.fleet) for t in times) == [(s, m) for s in (1, 2, 3, 4) for m in (1, 2)]
    assert all(t.batch_ms > 0 and set(t.sample_ms) == {"windowed_naive", "windowed", "progressive"} for t in times)
    by_scheme = {(t.scheme, t.fleet): t for t in times}
    assert replace(by_scheme[1, 1], scheme=3) == by_scheme[3, 1]
    left = timing.missing(Record("timing", SCALE, (0,), "", times=tuple(times)))
    assert {one for one, table in left if table} == {one for one in TABLE if (one.layers, one.hidden) != (1, 128)}


@pytest.mark.parametrize("limit", ["asked", "memory"])
def test_where_one_run_trains_at_a_time_no_fleet_is_timed_or_missed(
    data: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    corpus, most = open_all(data)["english"], 1 if limit == "asked" else None
    if limit == "memory":
        monkeypatch.setattr(timing.memory, "available", lambda device: 1)
    monkeypatch.setattr(timing, "SECONDS", 0.01)

    def sizes(one: Series) -> int:
        return timing.side_by_side(one, Scale(SCALE), "float32", corpus, most)

    asked = [item for item in timing.missing(None, sizes) if item[0] in TABLE[:2] and item[1]]
    assert len(asked) == 2
    times = [time for cell, _ in timing.measure(asked, Scale(SCALE), "float32", corpus, most) for time in cell]
    assert [time.fleet for time in times] == [1, 1]
    record = Record("timing", SCALE, (0,), "", times=timing.order(times))
    assert not set(asked) & set(timing.missing(record, sizes))
    assert set(asked) <= set(timing.missing(record)), "of a larger machine it is"


def test_a_cell_of_the_table_that_is_measured_again_is_replaced() -> None:
    first, again, fleet = (Time(1, 1, 128, m, ms, {}, "", "") for m, ms in ((1, 2.0), (1, 3.0), (6, 1.0)))
    assert timing.order([first, fleet, again]) == (again, fleet)


def test_the_times_by_k1_are_of_one_run_alone_for_each_way_to_train() -> None:
    known = tuple(Time(s, 1, 512, 1, 1.0, {}, "", "", k1) for s in (1, 2, 4) for k1 in K1)
    assert not [one for one, table in timing.missing(Record("timing", 1.0, (0,), "", k1_times=known)) if not table]


def test_the_timing_record_is_written_as_it_grows(data: Path, tmp_path: Path) -> None:
    few = [item for item in timing.missing(None) if not item[1]][:2]
    with mock.patch.object(timing, "missing", return_value=few), mock.patch.object(timing, "SECONDS", 0.01):
        drive(data, tmp_path, ["timing"])
    content = json.loads((tmp_path / "records" / "timing.json").read_text())
    assert [time["k1"] for time in content["k1_times"]] == [20, 40]
