"""Patience, a target and a clock end a run early: finished, with its reason, and everything that an end has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import killing
import pytest
import torch
from commands import unroll
from helpers import tiny, tiny_corpus
from killing import Job, run

import unroll as api
from unroll import Experiment
from unroll.base import atomic_files
from unroll.base.errors import RunError
from unroll.runs import selection
from unroll.runs.folder import RunFolder
from unroll.runs.selection import Point
from unroll.training import stopping
from unroll.training.bookkeeping import Bookkeeping, evaluation_points
from unroll.training.events import Stepped

LONG = {"batches": 60, "learning_rate": 0.3}


def trained(folder: Path, **settings: Any) -> api.Run:
    return api.train(tiny(**{**LONG, **settings}), folder, tiny_corpus())


def points_of(one: api.Run) -> list[Point]:
    return selection.history(one.metrics, one.experiment)


# --- each condition ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("patience", [1, 2, 5])
@pytest.mark.parametrize("validation", [None, 30])
def test_patience_ends_a_run_at_the_first_evaluation_that_many_after_its_best(
    patience: int, validation: int | None, tmp_path: Path
) -> None:
    whole, early = (
        trained(tmp_path / name, validation=validation, patience=of)
        for name, of in (("whole", None), ("early", patience))
    )
    batches = [point.batch for point in points_of(whole)]
    since, best, ends = 0, float("inf"), batches[-1]
    for batch, perplexity in points_of(whole):
        since, best = (0, perplexity) if perplexity < best else (since + 1, best)
        if since == patience:
            ends = batch
            break
    assert ends < 60
    assert early.status["state"] == "finished"
    assert early.status["batch"] == ends == early.metrics[-1]["batch"]
    assert points_of(early) == points_of(whole)[: batches.index(ends) + 1]
    on = "validation set" if validation else "test set"
    assert f"the {on} was best at batch {early.best.batch:,}" in early.status["reason"]  # type: ignore[union-attr]


def test_a_target_ends_a_run_at_the_first_evaluation_that_reaches_it(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole", learning_rate=0.02)
    values = [point.perplexity for point in points_of(whole)]
    target = sorted(values)[len(values) // 2]
    early = trained(tmp_path / "early", learning_rate=0.02, target=target)
    first = next(n for n, value in enumerate(values) if value <= target)
    assert points_of(early) == points_of(whole)[: first + 1]
    assert "reached the target" in early.status["reason"]


def test_minutes_end_a_run_by_its_own_clock_at_any_batch(tmp_path: Path) -> None:
    early = trained(tmp_path / "run", minutes=1e-6)
    assert early.status["state"] == "finished"
    assert early.status["batch"] == early.metrics[-1]["batch"] == 1
    assert "its time was over" in early.status["reason"]
    experiment = Experiment(minutes=2)
    assert experiment.minutes == 2.0
    assert not stopping.out_of_time(experiment, 119.9)
    assert stopping.out_of_time(experiment, 120.0)


def test_a_run_ends_by_the_clock_between_two_points_of_the_grid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    between = 13
    assert between not in evaluation_points(60)
    monkeypatch.setattr(stopping, "out_of_time", lambda experiment, seconds: clock[0])
    clock = [False]
    for event in api.train_fleet([tiny(**LONG, minutes=5.0)], [tiny_corpus()], [tmp_path / "run"]):
        clock[0] = isinstance(event, Stepped) and event.batch == between
    early = api.load(tmp_path / "run", device="cpu")
    assert early.status["batch"] == early.metrics[-1]["batch"] == between
    assert set(early.metrics[-1]["perplexity"]) == {"windowed", "progressive"}
    (score,) = api.perplexity(early, "windowed", tiny_corpus())
    assert score.perplexity == pytest.approx(early.metrics[-1]["perplexity"]["windowed"], rel=1e-9)


def test_where_nothing_is_asked_no_condition_ends_a_run() -> None:
    points = [Point(1, 5.0), *[Point(batch, 9.0) for batch in range(2, 50)]]
    assert stopping.why(Experiment(), points, 1e9) is None
    for settings in ({"patience": 1}, {"target": 10.0}, {"minutes": 1e-9}):
        experiment = Experiment(**settings)  # type: ignore[arg-type]
        assert stopping.why(experiment, points, 1e9)
        assert stopping.why(replace(experiment, batches=49), points, 1e9) is None  # it is through anyway
    assert stopping.why(Experiment(patience=2), [Point(1, float("inf")), Point(2, float("inf"))], 0.0)


@pytest.mark.parametrize("wrong", [{"patience": 0}, {"target": 0.5}, {"minutes": 0.0}, {"minutes": float("inf")}])
def test_a_limit_that_means_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(api.UnrollError, match=next(iter(wrong))):
        Experiment(**wrong)


# --- an early end is an end ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{"patience": 2}, {"patience": 2, "validation": 30}, {"minutes": 1e-6}])
def test_an_early_end_has_all_that_an_end_has(settings: dict[str, Any], tmp_path: Path) -> None:
    early = trained(tmp_path / "run", **settings)
    last = early.metrics[-1]
    parts = ("perplexity", "validation") if "validation" in settings else ("perplexity",)
    for part in parts:
        assert set(last[part]) == {"windowed", "progressive"}
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "best.safetensors", "metrics.jsonl", "perplexity.png", "run.toml", "status.json", "vocabulary.json",
        "weights.safetensors",
    ]  # fmt: skip
    for sample in ("windowed", "progressive"):
        (score,) = api.perplexity(early, sample, tiny_corpus()) if "validation" not in settings else (None,)
        assert score is None or score.perplexity == pytest.approx(last["perplexity"][sample], rel=1e-9)
    assert any("Training ended early" in note for note in api.load(tmp_path / "run").notes)
    assert api.resume(tmp_path / "run").status == early.status
    with pytest.raises(RunError, match="has already finished after"):
        api.resume(tmp_path / "run", batches=100)


def test_what_ends_a_run_is_part_of_its_identity_and_so_is_what_it_looks_at() -> None:
    base = Experiment()
    for settings in ({"patience": 3}, {"target": 5.0}, {"minutes": 1.0}):
        assert Experiment(**settings).identity != base.identity  # type: ignore[arg-type]
    patient = Experiment(patience=3)
    looks = {"evaluations": 9, "test_tokens": 500}
    scheme3 = api.SCHEMES[3]
    assert len({replace(patient, **{k: v}).identity for k, v in looks.items()} | {patient.identity}) == 3
    assert replace(patient, scheme=scheme3).identity != patient.identity
    assert replace(base, scheme=scheme3, **looks).identity == base.identity  # type: ignore[arg-type]


def test_the_command_line_says_why_a_run_ended(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("to be or not to be, that is the question. " * 40)
    options = (
        "--k1", 3, "--k2", 5, "--hidden", 5, "--dense", 6, "--rows", 3, "--threads", 1, "--out", tmp_path / "run",
    )  # fmt: skip
    done = unroll("train", tmp_path / "text.txt", *options, "--learning-rate", 0.3, "--patience", 2)
    assert done.code == 0, done.err
    assert "Ended early. At batch" in done.err
    assert "brought no better one" in done.err
    assert "chosen on the test set" in done.err
    again = unroll("train", "--resume", tmp_path / "run")
    assert "there is nothing to go on with" in again.err
    assert "Training ended early." in unroll("eval", tmp_path / "run").err


# --- in a fleet, and after a kill ----------------------------------------------------------------------------------


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return RunFolder(folder).weights()[0]


def same(one: Path, other: Path) -> bool:
    a, b = weights(one), weights(other)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def fleet(folder: Path, experiments: Sequence[Experiment]) -> list[Path]:
    outs = [folder / f"run{m}" for m in range(len(experiments))]
    list(api.train_fleet(experiments, [tiny_corpus()] * len(outs), outs))
    return outs


def test_in_a_fleet_the_others_go_on_bit_for_bit(tmp_path: Path) -> None:
    plain = [tiny(**LONG, seed=seed) for seed in range(3)]
    early = [replace(plain[0], patience=2), plain[1], replace(plain[2], target=6.9)]
    before, after = fleet(tmp_path / "before", plain), fleet(tmp_path / "after", early)
    ends = [RunFolder(out).status["batch"] for out in after]
    assert ends[0] < 60 == ends[1]
    assert same(before[1], after[1])
    for m in range(3):
        points = [selection.history(RunFolder(out).metrics, plain[m]) for out in (before[m], after[m])]
        shared = [point for point in points[0] if point.batch <= ends[m]]
        assert shared == points[1]


def test_a_run_that_ends_early_in_a_fleet_is_the_run_that_it_is_alone(tmp_path: Path) -> None:
    early = [tiny(**LONG, seed=0, patience=2), tiny(**LONG, seed=1, patience=4), tiny(**LONG, seed=2)]
    together = fleet(tmp_path / "together", early)
    for m, experiment in enumerate(early):
        (alone,) = fleet(tmp_path / f"alone{m}", [experiment])
        status = [RunFolder(out).status for out in (alone, together[m])]
        assert status[0]["batch"] == status[1]["batch"]
        assert status[0].get("reason") == status[1].get("reason")
        for name in ("weights.safetensors", "best.safetensors"):
            a, b = (atomic_files.unseal(out / name)[0] for out in (alone, together[m]))
            for tensor in a:
                torch.testing.assert_close(a[tensor], b[tensor], rtol=1e-9, atol=1e-12)


def test_the_history_by_which_a_schedule_may_go_is_restored_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[int, list[Point]] = {}
    evaluate_due = Bookkeeping.evaluate_due

    def watched(books: Bookkeeping) -> Any:
        events = list(evaluate_due(books))
        seen[books.learner.count] = list(books.history[0])
        return iter(events)

    monkeypatch.setattr(Bookkeeping, "evaluate_due", watched)
    killing.train("validation", tmp_path / "whole")
    truth, seen = seen, {}  # type: ignore[no-redef]
    killing.train_until("validation", tmp_path / "cut", 21)
    seen.clear()
    killing.train("validation", tmp_path / "cut", resume=True)
    assert seen == {batch: points for batch, points in truth.items() if batch in seen}
    assert len(truth[40]) == len(evaluation_points(40))


def test_killed_between_its_last_line_and_its_end_a_run_ends_there_all_the_same(tmp_path: Path) -> None:
    names: list[str] = []
    with killing.moments(lambda name, batch: names.append(name)):
        killing.train("patience", tmp_path / "counted")
    last_line = len(names) - names[::-1].index("metrics appended")
    for at in (last_line, last_line + 1):
        folder = tmp_path / str(at)
        assert run(Job("patience", str(folder), moment="any", at=at)).killed
        resumed = run(Job("patience", str(folder), resume=True))
        assert (resumed.code, resumed.raised) == (0, None)
        assert killing.results(folder, "patience") == killing.uninterrupted("patience")


def test_a_fleet_of_which_runs_have_ended_early_is_resumed_as_it_was(tmp_path: Path) -> None:
    procedure = "fleet that ends early"
    ends = [result["status"]["batch"] for result in killing.uninterrupted(procedure)]
    assert min(ends) < 40 == max(ends)
    for at in (min(ends) + 1, 39):
        killing.train_until(procedure, tmp_path / str(at), at)
        killing.train(procedure, tmp_path / str(at), resume=True)
        assert killing.results(tmp_path / str(at), procedure) == killing.uninterrupted(procedure)


def test_a_run_whose_time_is_over_when_it_is_resumed_ends_after_one_more_batch(tmp_path: Path) -> None:
    events = api.train_fleet([tiny(**LONG, minutes=1e6)], [tiny_corpus()], [tmp_path / "run"], save_every=1)
    for event in events:
        if event.batch == 9 and isinstance(event, api.Evaluated):
            break
    events.close()
    folder = RunFolder(tmp_path / "run")
    folder.experiment = replace(folder.experiment, minutes=1e-9)
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        tensors, facts = atomic_files.unseal(path)
        facts["run"] = (tmp_path / "run" / "run.toml").read_text()
        path.write_bytes(atomic_files.seal(tensors, facts))
    ended = api.resume(tmp_path / "run", corpus=tiny_corpus())
    assert ended.status["batch"] == 10
    assert [line["batch"] for line in ended.metrics] == [1, 2, 3, 4, 5, 7, 9, 10]


# --- in a sweep ----------------------------------------------------------------------------------------------------


def test_a_sweep_shows_runs_that_ended_early_and_does_not_train_them_again(tmp_path: Path) -> None:
    asked = [tiny(**LONG, seed=seed, patience=2) for seed in range(2)]
    rows = api.train_all(asked, tmp_path / "sweep", [tiny_corpus()] * 2, most=2)
    assert all(row["state"] == "finished" and row["batch"] < 60 and "no better" in row["reason"] for row in rows)
    paths = sorted((tmp_path / "sweep" / "runs").glob("*/weights.safetensors"))
    before = [path.stat().st_mtime_ns for path in paths]
    table = (tmp_path / "sweep" / "table.csv").read_bytes()
    assert api.train_all(asked, tmp_path / "sweep", [tiny_corpus()] * 2, most=2) == rows
    assert [path.stat().st_mtime_ns for path in paths] == before
    assert (tmp_path / "sweep" / "table.csv").read_bytes() == table


def test_with_patience_schemes_1_and_3_are_two_trainings(tmp_path: Path) -> None:
    plain = [tiny(**LONG, sample=sample) for sample in ("windowed", "progressive")]
    rows = api.train_all([replace(e, patience=1) for e in plain], tmp_path / "patient", [tiny_corpus()] * 2, most=2)
    assert len({row["run"] for row in rows}) == 2
    assert len({row["run"] for row in api.train_all(plain, tmp_path / "plain", [tiny_corpus()] * 2, most=2)}) == 1
