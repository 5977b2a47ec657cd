"""When a run is evaluated, and from which states."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeping import corpus, small

from unroll import load, perplexity, train, train_fleet
from unroll.runs.folder import RunFolder
from unroll.sweep.deduplicate import distinct
from unroll.training.bookkeeping import evaluation_points


@given(st.integers(1, 20_000), st.integers(2, 50))
def test_so_many_points_run_from_the_first_batch_to_the_last(batches: int, count: int) -> None:
    points = evaluation_points(batches, count)
    assert points[0] == 1
    assert points[-1] == batches
    assert len(points) <= count
    assert list(points) == sorted(set(points))


def test_a_run_is_evaluated_as_often_as_it_asks(tmp_path: Path) -> None:
    runs = small(evaluations=[None, 3])
    list(train_fleet(runs, [corpus()] * 2, [tmp_path / "a", tmp_path / "b"]))
    batches = [[line["batch"] for line in RunFolder(tmp_path / name).metrics] for name in "ab"]
    assert batches == [[1, 2, 3, 4, 5, 7, 9, 10], [1, 3, 10]]


def test_carried_states_are_scored_as_unroll_perplexity_scores_them(tmp_path: Path) -> None:
    (run,) = small(scheme=4, evaluate_carried=True)
    train(run, tmp_path / "run", corpus())
    trained = load(tmp_path / "run")
    rows = perplexity(trained, "progressive", corpus(), start="carried")
    assert len(rows) == run.rows
    assert trained.metrics[-1]["carried"] == pytest.approx(median(p.perplexity for p in rows), rel=1e-6)
    assert all("carried" in line for line in trained.metrics)


def test_of_a_fleet_only_the_runs_that_ask_are_scored_from_carried_states(tmp_path: Path) -> None:
    runs = [*small(scheme=1), *small(scheme=4, evaluate_carried=True), *small(scheme=4, seed=1)]
    outs = [tmp_path / str(n) for n in range(3)]
    list(train_fleet(runs, [corpus()] * 3, outs))
    assert [{"carried" in line for line in RunFolder(out).metrics} for out in outs] == [{False}, {True}, {False}]
    train(runs[1], tmp_path / "alone", corpus())
    alone, beside = load(tmp_path / "alone").metrics, load(outs[1]).metrics
    assert [line["carried"] for line in beside] == pytest.approx([line["carried"] for line in alone], rel=1e-5)


def test_a_training_is_scored_from_carried_states_if_anyone_asks() -> None:
    plain, asking = small(scheme=4), small(scheme=4, evaluate_carried=True)
    (one,) = distinct([*plain, *asking])
    assert one.experiment.evaluate_carried
