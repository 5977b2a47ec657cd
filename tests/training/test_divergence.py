"""Divergence is a result: a run stops before the bad update and says when and why; the others of its fleet go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import killing
import numpy as np
import pytest
import torch
from killing import uninterrupted

import unroll
from unroll import Scheme
from unroll.base import atomic_files
from unroll.runs.folder import RunFolder
from unroll.training.bookkeeping import Bookkeeping, evaluation_points
from unroll.training.events import Ended, Stepped
from unroll.training.learner import REASONS, Learner

FLEET, SICK, BAD = "fleet of three", 1, 17  # the run that diverges, and the batch, from 1, at which it does


def make_loss_bad(nll_MBK: torch.Tensor, value: float) -> torch.Tensor:
    factor = torch.ones(len(nll_MBK), 1, 1)
    factor[SICK, -1] = value
    return nll_MBK * factor


def make_gradient_bad(nll_MBK: torch.Tensor, value: float) -> torch.Tensor:
    result = nll_MBK * 1
    result.register_hook(lambda gradient: make_loss_bad(gradient, value))
    return result


@pytest.fixture
def sicken(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Spoil one run's loss or gradient in one batch, its weights untouched."""
    uninterrupted(FLEET)  # before any run is spoiled

    def arrange(spoil: Any, value: float) -> None:
        step = Learner.step

        def stepped(learner: Learner) -> None:
            nll = learner.model.nll
            if learner.count + 1 == BAD:

                def spoiled(*arguments: Any) -> Any:
                    nll_MBK, state = nll(*arguments)
                    return spoil(nll_MBK, value), state

                learner.model.nll = spoiled  # type: ignore[method-assign]
                learner._replay = learner.engine.replay()  # a step that is recorded for once
            step(learner)
            if learner.count == BAD:
                learner._replay = learner.engine.replay()
            learner.model.nll = nll  # type: ignore[method-assign]

        monkeypatch.setattr(Learner, "step", stepped)

    return arrange


def snapshots(folder: Path) -> list[dict[str, torch.Tensor]]:
    """What the sick run holds after each batch, cloned."""
    held = []
    for event in killing.follow(FLEET, folder):
        if isinstance(event, Stepped):
            held.append({name: t.clone() for name, t in event.learner.snapshot(SICK).items()})
    return held


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize(
    ("spoil", "reason"), [(make_loss_bad, REASONS[1]), (make_gradient_bad, REASONS[2])], ids=["loss", "gradient"]
)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_run_stops_before_the_bad_update_and_the_others_end_as_without_it(
    spoil: Any, reason: str, value: float, tmp_path: Path, sicken: Any
) -> None:
    healthy = snapshots(tmp_path / "healthy")
    sicken(spoil, value)
    sick = snapshots(tmp_path / "sick")
    (out,) = killing.outs(tmp_path / "sick", FLEET)[SICK : SICK + 1]
    status = RunFolder(out).status
    assert (status["state"], status["batch"]) == ("stopped", BAD - 1)
    assert status["reason"] == f"At batch {BAD} {reason}."
    weights, _ = atomic_files.unseal(out / "weights.safetensors")
    before = healthy[BAD - 2]
    assert same(weights, {name: before[name] for name in weights})
    # Not only the weights: moments, states and the loss stand still from then on.
    assert all(same(s | {"progress.stopped": before["progress.stopped"]}, before) for s in sick[BAD - 1 :])
    assert max(line["batch"] for line in RunFolder(out).metrics) < BAD
    assert not (out / "checkpoints").exists()
    others = [m for m in range(3) if m != SICK]
    ends = [killing.result(killing.outs(tmp_path / "sick", FLEET)[m]) for m in others]
    assert ends == [uninterrupted(FLEET)[m] for m in others]


def test_a_weight_that_becomes_nan_stops_its_run_with_all_else_as_it_was(tmp_path: Path) -> None:
    events, ended = killing.follow(FLEET, tmp_path), None
    for event in events:
        if isinstance(event, Stepped) and event.learner.count == BAD - 1:
            before = {name: t.clone() for name, t in event.learner.snapshot(SICK).items()}
            with torch.no_grad():
                event.learner.model.parameters["dense.b"][SICK, 0] = float("nan")
        if isinstance(event, Ended) and event.run == SICK:
            ended = event.learner.snapshot(SICK)
            assert event.status["reason"] == f"At batch {BAD} {REASONS[1]}."
    assert ended is not None
    changed = {name for name in before if not torch.equal(before[name], ended[name])}
    assert changed == {"dense.b", "progress.stopped"}
    assert torch.equal(before["dense.b"][1:], ended["dense.b"][1:])
    for m, out in enumerate(killing.outs(tmp_path, FLEET)):
        if m != SICK:
            assert killing.result(out) == uninterrupted(FLEET)[m]


def test_a_stopped_run_stays_stopped_when_its_fleet_is_resumed(tmp_path: Path, sicken: Any) -> None:
    sicken(make_loss_bad, float("nan"))
    events = killing.follow(FLEET, tmp_path)
    while next(events).learner.count < BAD + 3:
        pass
    killing.lose(events)
    out = killing.outs(tmp_path, FLEET)[SICK]
    stopped = {p.name: p.read_bytes() for p in out.iterdir()}
    assert RunFolder(out).status["state"] == "stopped"
    killing.train(FLEET, tmp_path, resume=True)
    assert {p.name: p.read_bytes() for p in out.iterdir()} == stopped
    for m, other in enumerate(killing.outs(tmp_path, FLEET)):
        if m != SICK:
            assert killing.result(other) == uninterrupted(FLEET)[m]


def test_a_checkpoint_made_between_the_bad_batch_and_its_notice_still_ends_the_run_as_stopped(
    tmp_path: Path, sicken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a GPU, whose flags are read every 100 batches: the freeze must come through a resume.
    look = Learner.look
    monkeypatch.setattr(Learner, "look", lambda learner: look(learner)._replace(stopped_M=np.zeros(3)))
    sicken(make_loss_bad, float("nan"))
    killing.train_until(FLEET, tmp_path, 21)
    monkeypatch.undo()
    killing.train(FLEET, tmp_path, resume=True)
    status = RunFolder(killing.outs(tmp_path, FLEET)[SICK]).status
    assert (status["state"], status["batch"]) == ("stopped", BAD - 1)
    assert status["reason"] == f"At batch {BAD} {REASONS[1]}."


@pytest.mark.parametrize("rate", [1e20, 1e30])
def test_an_enormous_learning_rate_ends_as_a_stopped_run_with_finite_weights(rate: float, tmp_path: Path) -> None:
    experiment = unroll.Experiment(
        scheme=Scheme(k1=4, k2=6), cell="rnn", hidden=6, dense=8, rows=3, batches=3000, learning_rate=rate, clip=1e30,
        device="cpu", threads=1, test_tokens=8,
    )  # fmt: skip
    run = unroll.train(experiment, tmp_path / "run", killing.corpora("multi-loss")[0])
    assert run.status["state"] == "stopped"
    assert run.status["reason"].endswith("was not finite.")
    assert all(torch.isfinite(value).all() for value in run.model.values(0).values())


@pytest.mark.parametrize("at", [1, 12, killing.BATCHES])
def test_an_evaluation_without_a_finite_perplexity_ends_its_run_alone_with_the_weights_that_were_scored(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy = uninterrupted(FLEET)
    point = min(point for point in evaluation_points(killing.BATCHES) if point >= at)
    score = Bookkeeping._score

    def hopeless(books: Bookkeeping, lines: dict[int, dict[str, Any]], *rest: Any, **more: Any) -> None:
        score(books, lines, *rest, **more)
        if books.learner.count == point and SICK in lines:
            lines[SICK]["perplexity"] = dict.fromkeys(lines[SICK]["perplexity"], float("inf"))

    monkeypatch.setattr(Bookkeeping, "_score", hopeless)
    sick = killing.outs(tmp_path, FLEET)[SICK]
    held: dict[str, torch.Tensor] = {}
    for event in killing.follow(FLEET, tmp_path):
        if isinstance(event, Stepped) and event.learner.count == point:
            held = {name: t.clone() for name, t in event.learner.weights(SICK).items()}
    for m, out in enumerate(killing.outs(tmp_path, FLEET)):
        if m != SICK:
            assert killing.result(out) == healthy[m]
    status = RunFolder(sick).status
    assert (status["state"], status["batch"]) == ("stopped", point)
    assert status["reason"] == f"After batch {point} the perplexity was not finite."
    assert RunFolder(sick).metrics[-1]["perplexity"]["windowed"] is None
    assert same(RunFolder(sick).weights()[0], held)


def test_a_learning_rate_of_a_billion_is_no_finished_run(tmp_path: Path) -> None:
    experiment = unroll.Experiment(
        scheme=Scheme(k1=4, k2=6), hidden=6, dense=8, rows=3, batches=30, learning_rate=1e9, device="cpu", threads=1
    )
    run = unroll.train(experiment, tmp_path / "run", killing.corpora("multi-loss")[0])
    assert run.status["state"] == "stopped"
    assert run.status["batch"] < 30
