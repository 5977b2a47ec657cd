"""The weights of the best evaluation are kept beside the last ones, can be asked for everywhere, and say how they were
chosen.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import killing
import pytest
import torch
from commands import unroll
from helpers import tiny, tiny_corpus
from killing import Job, run

import unroll as api
from unroll.base import atomic_files
from unroll.base.errors import ConfigurationError, RunError
from unroll.runs.folder import RunFolder
from unroll.runs.selection import Point, lowest
from unroll.training.events import Evaluated


def events_of(folder: Path, **settings: object) -> Iterator[api.Evaluated]:
    for event in api.train_fleet([tiny(**settings)], [tiny_corpus()], [folder]):
        if isinstance(event, Evaluated):
            yield event


OVERFIT = {"batches": 12, "learning_rate": 0.3}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, dict[str, torch.Tensor]]]:
    """A run whose best evaluation is not its last, and its weights at each evaluation."""
    folder = tmp_path_factory.mktemp("best") / "run"
    held = {}
    for event in events_of(folder, **OVERFIT):
        held[event.metrics["batch"]] = event.learner.weights(0)
    return folder, held


def test_the_best_weights_are_those_of_the_lowest_perplexity(
    finished: tuple[Path, dict[int, dict[str, torch.Tensor]]],
) -> None:
    folder, held = finished
    last, best = api.load(folder, device="cpu"), api.load(folder, device="cpu", weights="best")
    assert last.best is not None
    scores = {line["batch"]: line["perplexity"]["windowed"] for line in last.metrics}
    assert last.best.perplexity == min(scores.values()) == scores[last.best.batch]
    assert last.best.batch < 12
    tensors, facts = atomic_files.unseal(folder / "best.safetensors")
    assert tensors.keys() == held[last.best.batch].keys()
    assert all(torch.equal(tensors[name], held[last.best.batch][name]) for name in tensors)
    assert facts["batch"] == str(last.best.batch)
    (again,) = api.perplexity(best, corpus=tiny_corpus())
    assert again.perplexity == pytest.approx(last.best.perplexity, rel=1e-9)
    assert api.load(best, weights="last", device="cpu").weights == "last"


def test_without_a_validation_set_they_are_called_chosen_on_the_test_set(
    finished: tuple[Path, dict[int, dict[str, torch.Tensor]]],
) -> None:
    folder, _ = finished
    run_with_best = api.load(folder, device="cpu", weights="best")
    assert run_with_best.best is not None
    assert run_with_best.best.chosen_on == "test set"
    assert "chosen on the test set" in run_with_best.notes[-1]
    assert not any("best" in note for note in api.load(folder, device="cpu").notes)


def test_with_one_they_are_chosen_by_it(tmp_path: Path) -> None:
    settings = {**OVERFIT, "validation": 30, "batches": 30}
    by_batch = {event.metrics["batch"]: event.metrics for event in events_of(tmp_path / "run", **settings)}
    best = api.load(tmp_path / "run", device="cpu", weights="best").best
    assert best is not None
    assert best.chosen_on == "validation set"
    scores = {batch: line["validation"]["windowed"] for batch, line in by_batch.items()}
    assert best.perplexity == min(scores.values()) == scores[best.batch]
    assert best.test_perplexity == by_batch[best.batch]["perplexity"]["windowed"]


def test_the_first_of_equals_is_the_best_and_what_is_not_finite_never_is() -> None:
    infinite = float("inf")
    assert lowest([Point(1, 5.0), Point(2, 4.0), Point(3, 4.0)]) == Point(2, 4.0)
    assert lowest([Point(1, infinite), Point(2, 4.0)]) == Point(2, 4.0)
    assert lowest([Point(1, infinite)]) is None
    assert lowest([]) is None


def test_a_carried_state_of_the_best_weights_is_the_one_of_that_batch(tmp_path: Path) -> None:
    held = {}
    for event in events_of(tmp_path / "run", **OVERFIT, state="carried", sample="progressive"):
        held[event.metrics["batch"]] = {name: t.clone() for name, t in event.learner.weights(0).items()}
    best = api.load(tmp_path / "run", device="cpu", weights="best")
    assert best.best is not None
    assert best.carried is not None
    assert best.best.batch < 12
    assert torch.equal(best.carried[0][0][0], held[best.best.batch]["carried.0.h"])


def test_a_run_that_has_not_ended_has_its_best_weights_so_far(tmp_path: Path) -> None:
    events = api.train_fleet([tiny(**OVERFIT)], [tiny_corpus()], [tmp_path / "run"])
    for event in events:
        if event.batch == 9:
            break
    events.close()
    half = api.load(tmp_path / "run", device="cpu", weights="best")
    assert half.best is not None
    (score,) = api.perplexity(half, corpus=tiny_corpus())
    assert score.perplexity == pytest.approx(half.best.perplexity, rel=1e-9)
    assert not (tmp_path / "run" / "best.safetensors").exists()


def test_of_a_killed_run_the_best_weights_are_those_that_its_checkpoint_knows(tmp_path: Path) -> None:
    corpus = api.Corpus.from_text("abcdefg" * 60)  # each evaluation is better than the one before
    experiment = tiny(batches=60, learning_rate=0.02)
    events = api.train_fleet([experiment], [corpus], [tmp_path / "run"], save_every=6)
    for event in events:
        if event.batch == 11 and isinstance(event, Evaluated):
            break
    killing.lose(events)
    half = api.load(tmp_path / "run", device="cpu", weights="best")
    assert half.best is not None
    known = max((line for line in half.metrics if line["batch"] <= 6), key=lambda line: line["batch"])
    assert half.best.batch > known["batch"]
    assert f"These are the best weights: batch {known['batch']}," in half.notes[-1]
    (score,) = api.perplexity(half, corpus=corpus)
    assert score.perplexity == pytest.approx(known["perplexity"]["windowed"], rel=1e-9)


def test_a_run_without_best_weights_says_so(
    finished: tuple[Path, dict[int, dict[str, torch.Tensor]]], tmp_path: Path
) -> None:
    older = tmp_path / "older"
    shutil.copytree(finished[0], older)
    (older / "best.safetensors").unlink()
    with pytest.raises(RunError, match=r'did not keep its best weights.*weights="last"'):
        api.load(older, weights="best")
    assert api.load(older, device="cpu").weights == "last"
    with pytest.raises(ConfigurationError, match="weights must be one of last, best"):
        api.load(older, weights="lowest")


def test_a_checkpoint_of_a_version_that_kept_no_best_weights_is_gone_on_with(tmp_path: Path) -> None:
    """What was best before has no weights any more: then the run has none, or those of a better evaluation."""
    killing.train_until("validation", tmp_path, 21)
    (out,) = killing.outs(tmp_path, "validation")
    for path in (out / "checkpoints").iterdir():
        tensors, facts = atomic_files.unseal(path)
        facts.pop("best_batch")
        path.write_bytes(atomic_files.seal({n: t for n, t in tensors.items() if not n.startswith("best.")}, facts))
    killing.train("validation", tmp_path, resume=True)
    (truth,) = killing.uninterrupted("validation")
    result = killing.result(out)
    assert result["metrics"] == truth["metrics"]
    assert "best.safetensors" not in result["files"]


@pytest.mark.parametrize("change", ["another run's", "another batch's"])
def test_a_file_that_is_not_this_runs_best_is_refused(
    change: str, finished: tuple[Path, dict[int, dict[str, torch.Tensor]]], tmp_path: Path
) -> None:
    given = tmp_path / "run"
    shutil.copytree(finished[0], given)
    tensors, facts = atomic_files.unseal(given / "best.safetensors")
    facts |= {"identity": "1" * 64} if change == "another run's" else {"batch": "1"}
    (given / "best.safetensors").write_bytes(atomic_files.seal(tensors, facts))
    with pytest.raises(RunError, match=r"best\.safetensors (holds the weights of another run|is not of the batch)"):
        api.load(given, weights="best")


def test_no_clock_stands_in_the_file_of_the_best_weights(tmp_path: Path) -> None:
    for name in ("one", "two"):
        list(events_of(tmp_path / name, **OVERFIT))
    one, two = (atomic_files.unseal(tmp_path / name / "best.safetensors") for name in ("one", "two"))
    assert one[1] == two[1]
    assert one[0].keys() == two[0].keys()
    assert all(torch.equal(one[0][name], two[0][name]) for name in one[0])


def test_a_run_with_its_checkpoints_takes_no_more_than_is_estimated(tmp_path: Path) -> None:
    from unroll.training.preflight import checkpoints_bytes

    corpus, experiment = tiny_corpus(), tiny(hidden=48, dense=96, batches=9)
    most = 0
    for _ in api.train_fleet([experiment], [corpus], [tmp_path / "run"], save_every=1):
        most = max(most, sum(p.stat().st_size for p in (tmp_path / "run").rglob("*.safetensors")))
    assert most <= checkpoints_bytes(experiment, corpus.unique)


@pytest.mark.parametrize("command", ["eval", "sample", "score", "drift", "memorised", "export"])
def test_every_command_that_reads_weights_takes_the_best(command: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("to be or not to be, that is the question. " * 40)
    made = unroll(
        "train", tmp_path / "text.txt", "--k1", 3, "--k2", 5, "--hidden", 5, "--dense", 6, "--rows", 3, "--batches", 30,
        "--learning-rate", 0.3, "--threads", 1, "--out", tmp_path / "run",
    )  # fmt: skip
    assert made.code == 0, made.err
    assert RunFolder(tmp_path / "run").best_weights()
    last = {
        "eval": (), "sample": ("--prompt", "to be", "--length", "5"), "score": (tmp_path / "text.txt",), "drift": (),
        "memorised": (tmp_path / "text.txt",), "export": ("--onnx", tmp_path / "x.onnx"),
    }[command]  # fmt: skip
    done = unroll(command, tmp_path / "run", *last, "--weights", "best")
    assert done.code == 0, done.err
    assert "These are the best weights: batch" in done.err
    assert "chosen on the test set" in done.err
    (tmp_path / "run" / "best.safetensors").unlink()
    assert (
        "Use the last weights, with --weights last" in unroll(command, tmp_path / "run", *last, "--weights", "best").err
    )


@pytest.mark.slow
@pytest.mark.parametrize("procedure", ["validation", "best before the end"])
def test_a_run_killed_at_each_moment_at_which_weights_are_stored_keeps_both_files_bit_identical(
    procedure: str, tmp_path: Path
) -> None:
    seen: list[str] = []
    with killing.moments(lambda name, batch: seen.append(name)):
        killing.train(procedure, tmp_path / "counted")
    named = [n for n, name in enumerate(seen, 1) if "best.safetensors" in name or "weights.safetensors" in name]
    assert any("best.safetensors" in seen[n - 1] for n in named)
    for at in named:
        folder = tmp_path / f"killed at {at}"
        assert run(Job(procedure, str(folder), moment="any", at=at)).killed
        resumed = run(Job(procedure, str(folder), resume=True))
        assert (resumed.code, resumed.raised) == (0, None)
        assert killing.results(folder, procedure) == killing.uninterrupted(procedure), seen[at - 1]


@pytest.mark.parametrize("what", ["link", "pipe", "folder", "huge", "cut", "flipped"])
def test_what_a_stranger_puts_in_its_place_is_one_message(
    what: str, finished: tuple[Path, dict[int, dict[str, torch.Tensor]]], tmp_path: Path
) -> None:
    given = tmp_path / "run"
    shutil.copytree(finished[0], given)
    path = given / "best.safetensors"
    content = bytearray(path.read_bytes())
    path.rename(tmp_path / "elsewhere")
    if what == "link":
        path.symlink_to(tmp_path / "elsewhere")
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "huge":
        with open(path, "wb") as file:
            file.write(content)
            file.truncate(10 * 2**30)
    elif what == "cut":
        path.write_bytes(content[:-10])
    else:
        content[-1] ^= 1
        path.write_bytes(content)
    with pytest.raises(RunError, match=r"best\.safetensors"):
        api.load(given, weights="best")


def test_a_replaced_run_takes_its_best_weights_with_it(tmp_path: Path) -> None:
    api.train(tiny(**OVERFIT), tmp_path / "run", tiny_corpus())
    api.train(replace(tiny(), batches=1), tmp_path / "run", tiny_corpus(), exist="replace")
    assert api.load(tmp_path / "run", device="cpu", weights="best").best == api.load(tmp_path / "run").best
