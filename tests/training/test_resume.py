"""A run killed at any instant and resumed ends bit-identical to one that was not; all a checkpoint holds is needed.

Compared: weights, optimiser moments and states bit for bit; every metrics line but for its clock; status; file names.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from pathlib import Path
from typing import Any, BinaryIO

import killing
import pytest
import torch
from killing import BOUNDARIES, PROCEDURES, SAVE_EVERY, Job, results, run, uninterrupted

from unroll.base import atomic_files
from unroll.base.errors import SaveError
from unroll.corpus.batches import Schedule
from unroll.runs.folder import RunFolder
from unroll.training.events import Stepped

RANDOM_KILLS = 3  # in each procedure's chain: 36 in all
HELD = 21  # the batch of the checkpoint that the controls damage


def newest_common(folder: Path, procedure: str) -> int | None:
    """The newest batch that every run which goes on has a checkpoint of, by file names; None where none goes on."""
    runs = [RunFolder(out) for out in killing.outs(folder, procedure)]
    going = [r for r in runs if r.status["state"] not in ("finished", "stopped")]
    if not going:
        return None
    common = set.intersection(*({p.name for p in (r.path / "checkpoints").glob("*.safetensors")} for r in going))
    return int(max(common).removeprefix("batch-").removesuffix(".safetensors")) if common else 0


@pytest.mark.parametrize("procedure", PROCEDURES)
def test_the_runs_use_dropout_and_cross_two_ends_of_an_epoch(procedure: str) -> None:
    for experiment, corpus in zip(PROCEDURES[procedure], killing.corpora(procedure), strict=True):
        schedule = Schedule(experiment, corpus.split(experiment.split_seed).train)
        assert experiment.dropout > 0
        assert (experiment.batches - 1) // schedule.batches_an_epoch >= 2


@pytest.mark.parametrize("procedure", PROCEDURES)
def test_a_run_killed_at_every_boundary_of_a_save_and_at_random_steps_ends_bit_identical(
    procedure: str, tmp_path: Path
) -> None:
    drawn = random.Random(procedure)
    fleet = len(PROCEDURES[procedure])
    moments = [m for i, b in enumerate(BOUNDARIES) for m in ((b, "step") if i % 2 == 0 else (b,))]
    assert moments.count("step") == RANDOM_KILLS
    start = 0
    for number, moment in enumerate(moments):
        # The second save of the process, and in a fleet in the midst of it.
        at = start + drawn.randint(1, 5) if moment == "step" else 2 if fleet == 1 else fleet + 2
        outcome = run(Job(procedure, str(tmp_path), resume=number > 0, moment=moment, at=at))
        assert outcome.killed, outcome
        assert outcome.start == start
        assert outcome.moment is not None
        batch, start = outcome.moment[1], newest_common(tmp_path, procedure)
        if fleet == 1:
            lost = SAVE_EVERY if moment in ("written", "synced") else batch % SAVE_EVERY
            assert start == batch - lost
        assert start is not None
        assert 0 < start <= batch
    outcome = run(Job(procedure, str(tmp_path), resume=True))
    assert (outcome.code, outcome.start, outcome.raised) == (0, start, None)
    assert results(tmp_path, procedure) == uninterrupted(procedure)


@pytest.mark.parametrize("procedure", ["conditional", pytest.param("fleet of three", marks=pytest.mark.slow)])
def test_a_run_killed_from_outside_at_random_times_ends_bit_identical(procedure: str, tmp_path: Path) -> None:
    kills = kill_from_outside(procedure, tmp_path, random.Random(procedure), 0.08)
    assert kills > 3
    assert results(tmp_path, procedure) == uninterrupted(procedure)


@pytest.mark.parametrize("moment", ["renamed weights.safetensors", "renamed status.json"])
def test_a_run_killed_when_its_weights_are_stored_ends_bit_identical(moment: str, tmp_path: Path) -> None:
    seen: list[str] = []
    with killing.moments(lambda name, batch: seen.append(name)):
        killing.train("conditional", tmp_path / "counted")
    last = len(seen) - seen[::-1].index(moment)
    outcome = run(Job("conditional", str(tmp_path / "killed"), moment="any", at=last))
    assert outcome.moment is not None
    assert outcome.moment[0] == moment
    resumed = run(Job("conditional", str(tmp_path / "killed"), resume=True))
    assert (resumed.code, resumed.raised) == (0, None)
    assert results(tmp_path / "killed", "conditional") == uninterrupted("conditional")


def kill_from_outside(procedure: str, folder: Path, drawn: random.Random, seconds: float) -> int:
    """Kill after random times until the run ends by itself; how often that took."""
    resume, kills = False, 0
    while (outcome := run(Job(procedure, str(folder), resume), kill_after=drawn.uniform(0.02, seconds))).killed:
        outs = killing.outs(folder, procedure)
        if not resume and not all(RunFolder(out).is_run() for out in outs):
            for out in outs:  # killed before there was a run: what a person would do is start again
                shutil.rmtree(out, ignore_errors=True)
        else:
            resume = True
        kills, seconds = kills + 1, seconds + 0.01
    assert (outcome.code, outcome.raised) == (0, None)
    return kills


@pytest.mark.slow
@pytest.mark.parametrize("procedure", PROCEDURES)
def test_a_run_killed_at_any_moment_on_disk_ends_bit_identical(procedure: str, tmp_path: Path) -> None:
    seen: list[str] = []
    with killing.moments(lambda moment, batch: seen.append(moment)):
        killing.train(procedure, tmp_path / "counted")
    first, drawn = seen.index("written"), random.Random(procedure)
    chosen = {occurrence + 1 for boundary in BOUNDARIES for occurrence in drawn.sample(occurrences(seen, boundary), 2)}
    chosen |= {len(seen) - i for i in range(12)}  # the end: weights, status, checkpoints dropped
    chosen |= set(drawn.sample(range(first, len(seen)), 20))
    for at in sorted(chosen):
        folder = tmp_path / f"killed at {at}"
        killed = run(Job(procedure, str(folder), moment="any", at=at))
        assert killed.killed, (at, killed)
        start = newest_common(folder, procedure)
        resumed = run(Job(procedure, str(folder), resume=True))
        assert (resumed.code, resumed.start, resumed.raised) == (0, start, None), (at, killed)
        assert results(folder, procedure) == uninterrupted(procedure), (at, killed)
        shutil.rmtree(folder)


def occurrences(seen: list[str], moment: str) -> list[int]:
    return [i for i, name in enumerate(seen) if name == moment]


@pytest.mark.slow
@pytest.mark.parametrize("procedure", PROCEDURES)
@pytest.mark.parametrize("seed", range(2))
def test_a_run_killed_from_outside_again_and_again_ends_bit_identical(
    procedure: str, seed: int, tmp_path: Path
) -> None:
    kill_from_outside(procedure, tmp_path, random.Random(f"{procedure} {seed}"), 0.2)
    assert results(tmp_path, procedure) == uninterrupted(procedure)


# --- the control: without any one piece, the comparison fails -----------------------------------------------------


def resumed_with(procedure: str, source: Path, folder: Path, change: Any = None) -> dict[str, Any]:
    """The result of a run whose newest checkpoint was changed, sealed again and resumed from."""
    shutil.copytree(source, folder)
    (out,) = killing.outs(folder, procedure)
    path = out / "checkpoints" / f"batch-{HELD:09d}.safetensors"
    tensors, facts = atomic_files.unseal(path)
    if change:
        change(tensors)
    path.write_bytes(atomic_files.seal(tensors, facts))
    killing.train(procedure, folder, resume=True)
    return killing.result(out)


@pytest.mark.parametrize("procedure", ["conditional", "RMSprop", "validation"])
def test_dropping_any_one_tensor_of_a_checkpoint_changes_the_run(procedure: str, tmp_path: Path) -> None:
    killing.train_until(procedure, tmp_path / "held", HELD)
    (out,) = killing.outs(tmp_path / "held", procedure)
    tensors, _ = atomic_files.unseal(out / "checkpoints" / f"batch-{HELD:09d}.safetensors")
    assert {"optimiser", "carried", "layers", "dense", "out", "progress", "best"} == {n.split(".")[0] for n in tensors}
    (truth,) = uninterrupted(procedure)
    assert resumed_with(procedure, tmp_path / "held", tmp_path / "whole") == truth
    # Elsewhere a later evaluation is better, so that what is held as the best does not last.
    best_stays = procedure == "validation"
    for number, name in enumerate(n for n, t in tensors.items() if t.any() and n.startswith("best.") == best_stays):
        end = resumed_with(procedure, tmp_path / "held", tmp_path / str(number), lambda held, n=name: held[n].zero_())
        changed = {key.split()[0] for key in truth if end[key] != truth[key]}
        # The loss accumulator is reported, not trained on.
        seen_in = {"progress": "metrics", "best": "best.safetensors"}
        assert seen_in.get(name.split(".")[0], "weights.safetensors") in changed, name
    left_out = {n for n, t in tensors.items() if not t.any()}
    assert all(n.endswith(("h0", "c0", "progress.stopped")) for n in left_out)  # carried: no first state is learned


def test_a_batch_counter_an_epoch_off_changes_the_run_through_the_rotation_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    procedure = "RMSprop"  # its update does not depend on the count; without dropout, only the rotation does
    events = killing.follow(procedure, tmp_path / "held", dropout=0.0)
    while next(events).learner.count <= HELD:
        pass
    killing.lose(events)
    corpus, experiment = killing.corpora(procedure)[0], PROCEDURES[procedure][0]
    epoch = Schedule(experiment, corpus.split(0).train).batches_an_epoch
    shutil.copytree(tmp_path / "held", tmp_path / "off")
    checkpoints = killing.outs(tmp_path / "off", procedure)[0] / "checkpoints"
    tensors, facts = atomic_files.unseal(checkpoints / f"batch-{HELD:09d}.safetensors")
    wrong = HELD - epoch
    shutil.rmtree(checkpoints)
    checkpoints.mkdir()
    sealed = atomic_files.seal(tensors, facts | {"batch": str(wrong)})
    (checkpoints / f"batch-{wrong:09d}.safetensors").write_bytes(sealed)

    def some_batches_on(name: str) -> list[torch.Tensor]:
        folder = tmp_path / f"{name} on"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tmp_path / name, folder)
        steps = (e for e in killing.follow(procedure, folder, resume=True, dropout=0.0) if isinstance(e, Stepped))
        event = [next(steps) for _ in range(5)][-1]
        steps.close()
        return [p.detach().clone() for p in event.learner.model.parameters.values()]

    def same() -> bool:
        return all(map(torch.equal, some_batches_on("held"), some_batches_on("off")))

    assert not same()
    monkeypatch.setattr(Schedule, "rotation", lambda schedule, number: 0)
    assert same()


def test_a_full_disk_in_the_midst_of_a_run_leaves_the_last_checkpoint_and_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = atomic_files.write_temporary

    def full(path: Path, file: BinaryIO, content: bytes) -> None:
        if "batch-000000009" in path.name:
            file.write(content[: len(content) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        whole(path, file, content)

    monkeypatch.setattr(atomic_files, "write_temporary", full)
    with pytest.raises(SaveError, match="No space left on device") as caught:
        killing.train("conditional", tmp_path)
    assert "\n" not in str(caught.value)
    (out,) = killing.outs(tmp_path, "conditional")
    assert [p.name for p in sorted((out / "checkpoints").iterdir())] == [
        "batch-000000003.safetensors",
        "batch-000000006.safetensors",
    ]
    monkeypatch.undo()
    killing.train("conditional", tmp_path, resume=True)
    assert results(tmp_path, "conditional") == uninterrupted("conditional")


def test_a_run_killed_between_its_weights_and_its_status_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """The process is gone."""

    write = RunFolder.status.fset

    def status(folder: RunFolder, status: dict[str, Any]) -> None:
        if status["state"] == "finished":
            raise Killed
        write(folder, status)

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "status", RunFolder.status.setter(status))
        with pytest.raises(Killed):
            killing.train("conditional", tmp_path)
    (out,) = killing.outs(tmp_path, "conditional")
    folder = RunFolder(out)
    assert folder.has_weights()
    assert folder.status["state"] == "training"
    killing.train("conditional", tmp_path, resume=True)
    assert results(tmp_path, "conditional") == uninterrupted("conditional")
