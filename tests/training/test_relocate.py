"""A run goes on on another machine: with what there is, saying what changed; what is asked for is had, or refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import TINY, tiny_run, unroll
from helpers import CPU, tiny
from sweeping import drive, small

from unroll.base.errors import ConfigurationError, RunError
from unroll.engines import devices, precisions
from unroll.engines.cpu import builder
from unroll.runs.folder import RunFolder
from unroll.sweep.folder import SweepFolder
from unroll.sweep.launchers import Failed, Noted
from unroll.sweep.sweep import results
from unroll.training import preflight, relocate


@pytest.fixture
def without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def begun(run: Path) -> None:
    """A run as it is before its first batch."""
    for path in run.iterdir():
        if path.name not in ("run.toml", "vocabulary.json"):
            path.unlink()


def recorded(folder: Path, **changes: Any) -> Path:
    """A run that was interrupted before its first checkpoint, as another machine would have recorded it."""
    run = tiny_run(folder)
    begun(run)
    held = RunFolder(run)
    held.experiment = replace(held.experiment, **changes)
    return run


def test_a_run_begun_on_a_gpu_goes_on_without_one_with_another_kernel_and_says_both(
    tmp_path: Path, without_cuda: None
) -> None:
    run = recorded(tmp_path, device="cuda:0", kernel="fused")
    told = unroll("train", "--resume", run)
    assert told.code == 0, told.err
    now = RunFolder(run).experiment
    assert f"device was cuda:0, is cpu; kernel was fused, is {now.kernel}: the run goes on" in told.err
    assert now.device == "cpu"
    assert now.kernel == devices.resolve(tiny()).kernel


def test_a_run_of_the_compiled_kernel_goes_on_where_nothing_can_be_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = recorded(tmp_path, kernel="compiled")
    monkeypatch.setattr(builder, "available", lambda: False)
    told = unroll("train", "--resume", run)
    assert told.code == 0, told.err
    assert "kernel was compiled, is host: the run goes on" in told.err


def test_a_run_that_can_go_on_as_it_began_is_not_changed() -> None:
    run = devices.resolve(tiny(device="cpu"))
    assert relocate.here(run) == (run, [])
    slow = replace(run, kernel="reference")
    assert relocate.here(slow) == (slow, [])


def test_a_precision_that_is_not_here_is_said_without_advice_that_resume_refuses(
    tmp_path: Path, without_cuda: None
) -> None:
    run = recorded(tmp_path, device="cuda", kernel="fused", precision="tf32")
    told = unroll("train", "--resume", run)
    assert told.code == 2
    assert precisions.why_not("tf32", CPU) in told.err
    assert "goes on" not in told.err
    assert "--" not in told.err


def test_where_no_kernel_knows_the_cell_in_its_precision_that_is_said_without_such_advice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(precisions, "why_not", lambda name, device: None)
    monkeypatch.setattr(builder, "available", lambda: False)
    with pytest.raises(
        RunError, match=r"no kernel computes its rnn in bfloat16\. compiled: .*Resume it where it began"
    ) as caught:
        relocate.here(tiny(cell="rnn", precision="bfloat16", kernel="stacked", device="cpu"))
    assert "--" not in str(caught.value)


def test_what_may_differ_on_resume_is_said_to_whoever_asks_for_something_else(tmp_path: Path) -> None:
    told = unroll("train", "--resume", recorded(tmp_path), "--kernel", "reference")
    assert told.code == 2
    assert "Only --batches, --device, --keep-optimiser, --threads may differ on resume." in told.err


@pytest.mark.parametrize("asked", ["cuda", "cuda:7", "abacus"])
def test_a_device_that_is_asked_for_and_not_there_is_refused(tmp_path: Path, without_cuda: None, asked: str) -> None:
    run = recorded(tmp_path)
    before = (run / "run.toml").read_bytes()
    told = unroll("train", "--resume", run, "--device", asked)
    assert told.code == 2
    assert "device" in told.err
    assert (run / "run.toml").read_bytes() == before


def test_more_threads_than_can_be_meant_are_refused_before_there_is_a_folder(tmp_path: Path) -> None:
    corpus = tiny_run(tmp_path).parent / "corpus.txt"
    told = unroll("train", corpus, "--batches", 1, "--out", tmp_path / "many", *TINY, "--threads", 999_999)
    assert told.code == 2
    cores = devices.cores()
    assert f"threads must be at most {8 * cores}: this machine has {cores} cores. Got 999,999." in told.err
    assert not (tmp_path / "many").exists()


def test_threads_of_a_larger_machine_are_lowered_on_resume_but_those_asked_for_are_refused(tmp_path: Path) -> None:
    run = recorded(tmp_path, threads=999_999)
    assert unroll("train", "--resume", run, "--threads", 999_998).code == 2
    told = unroll("train", "--resume", run)
    assert told.code == 0, told.err
    assert f"threads was 999999, is {devices.cores()}: the run goes on" in told.err


def test_what_a_run_computes_with_is_also_told_where_it_was_changed_by_hand(tmp_path: Path) -> None:
    run = RunFolder(recorded(tmp_path, kernel="host", threads=2))
    run.status = {"state": "interrupted", "batch": 0, "kernel": "host", "threads": 2}
    for changes, told in (
        ({}, []),
        ({"threads": 1}, ["threads was 2, is 1"]),
        ({"kernel": "auto", "threads": None}, []),
    ):
        run.experiment = replace(run.experiment, **{"kernel": "host", "threads": 2, **changes})
        _, _, notes = preflight.resume(run.path)
        assert notes == [f"{change}: the run goes on, but not bit for bit as it would have." for change in told]


def test_another_processor_is_told_since_last_bits_differ(tmp_path: Path) -> None:
    run, here = RunFolder(recorded(tmp_path)), devices.describe(CPU)
    goes_on = "the run goes on, but not bit for bit as it would have."
    for was, told in (
        (here, []),
        (here.split(",")[0], []),  # all that older versions say
        ("abacus", [f"processor was abacus, is {here}: {goes_on}"]),
    ):
        run.status = {"state": "interrupted", "batch": 0, "device": was}
        assert preflight.resume(run.path)[2] == told


def test_a_run_that_leaves_its_gpu_is_not_told_twice(tmp_path: Path, without_cuda: None) -> None:
    run = RunFolder(recorded(tmp_path, device="cuda", kernel="host"))
    run.status = {"state": "interrupted", "batch": 0, "device": "NVIDIA H200"}
    (note,) = preflight.resume(run.path)[2]
    assert "device was cuda, is cpu" in note
    assert "processor" not in note


@pytest.mark.parametrize("option", [("--threads", 999_999), ("--device", "cuda:99"), ("--kernel", "fused")])
def test_what_this_machine_lacks_is_said_before_a_sweep_has_a_folder(
    tmp_path: Path, without_cuda: None, option: tuple[str, object]
) -> None:
    corpus = tiny_run(tmp_path).parent / "corpus.txt"
    command = ["sweep", corpus, "--batches", 1, "--out", tmp_path / "sweep", *TINY]
    assert unroll(*command, *option).code == 2
    assert not (tmp_path / "sweep").exists()
    assert unroll(*command, "--most", 1).code == 0, "so that the same folder can be asked for again"


def test_more_threads_than_can_be_meant_are_no_benchmark() -> None:
    told = unroll("bench", "--quick", "--threads", 999_999)
    assert (told.code, "threads must be at most" in told.err) == (2, True)


def test_the_most_threads_allowed_are_allowed() -> None:
    devices.require_threads(8 * devices.cores())
    with pytest.raises(ConfigurationError):
        devices.require_threads(8 * devices.cores() + 1)


def planned_elsewhere(folder: Path, **facts: Any) -> None:
    """A sweep of two runs with its plan, none of them begun, as another machine would have planned it."""
    drive(folder, small(seed=[0, 1]))
    for run in (folder / "runs").iterdir():
        for path in run.iterdir():
            path.unlink()
        run.rmdir()
    plan = json.loads((folder / "plan.json").read_text())
    del plan["sha256"]
    for fleet in plan["fleets"]:
        fleet |= facts
    (folder / "plan.json").write_text(json.dumps(plan))


def test_a_sweep_planned_on_another_machine_goes_on_with_what_there_is(tmp_path: Path, without_cuda: None) -> None:
    planned_elsewhere(tmp_path, device="cuda", kernel="fused", threads=999_999)
    notes = [r.message for r in drive(tmp_path, None) if isinstance(r, Noted) and "the runs go on" in r.message]
    assert len(notes) == 1, "said once for all runs"
    assert all(f"{name} was" in notes[0] for name in ("device", "kernel", "threads"))
    assert {row["state"] for row in results(SweepFolder(tmp_path))} == {"finished"}


def test_a_sweep_whose_runs_began_on_another_processor_says_so(tmp_path: Path) -> None:
    drive(tmp_path, small(seed=[0, 1]))
    for run in (tmp_path / "runs").iterdir():
        begun(run)
        RunFolder(run).status = {"state": "interrupted", "batch": 0, "device": "abacus"}
    notes = [r.message for r in drive(tmp_path, None) if isinstance(r, Noted) and "the runs go on" in r.message]
    assert [note.split(":")[0] for note in notes] == [f"processor was abacus, is {devices.describe(CPU)}"]
    assert {row["state"] for row in results(SweepFolder(tmp_path))} == {"finished"}


def test_runs_of_a_sweep_that_cannot_go_on_here_are_recorded_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned_elsewhere(tmp_path)
    monkeypatch.setattr(precisions, "why_not", lambda name, device: f"precision {name} is out of fashion")
    failed = [r for r in drive(tmp_path, None) if isinstance(r, Failed)]
    assert [len(r.runs) for r in failed] == [2]
    assert "is out of fashion" in failed[0].reason
    assert {row["state"] for row in results(SweepFolder(tmp_path))} == {"failed"}
