"""While a fleet trains, its runs are scored together as they would be alone; the device is asked for all at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from helpers import tiny, tiny_corpus

from unroll import Corpus, Experiment, load, train, train_fleet
from unroll.runs.folder import RunFolder
from unroll.training import bookkeeping
from unroll.training.events import Ended, Evaluated, Event, Stepped
from unroll.training.learner import Learner

BATCHES = 12  # evaluated at 1, 2, 3, 4, 5, 7, 9, 11 and 12
PROGRESSIVE, CARRIED = {"sample": "progressive"}, {"sample": "progressive", "state": "carried"}


@dataclass(frozen=True)
class Call:
    """One call of the evaluation: under which procedure, whose seeds."""

    procedure: str
    seeds: tuple[int, ...]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """What was scored so far."""
    found, plain = [], bookkeeping.token_nll

    def watched(model: Any, texts: Any, k2: int, procedure: str, **options: Any) -> Any:
        found.append(Call(procedure, tuple(e.seed for e in model.experiments)))
        return plain(model, texts, k2, procedure, **options)

    monkeypatch.setattr(bookkeeping, "token_nll", watched)
    return found


def mixed() -> tuple[list[Experiment], list[Corpus]]:
    """Runs that differ in procedure, in what is evaluated, in test set, vocabulary and length."""
    corpora = [tiny_corpus(0, symbols=14, tokens=300), tiny_corpus(1, symbols=16, tokens=400)]
    runs = [
        tiny(seed=0, batches=BATCHES),
        tiny(seed=1, batches=BATCHES, **PROGRESSIVE),
        tiny(seed=2, batches=BATCHES, **CARRIED, evaluate="both"),
        tiny(seed=3, batches=6, test_tokens=11),
        tiny(seed=4, batches=BATCHES, split_seed=2, **CARRIED),
    ]
    return runs, [corpora[m % 2] for m in range(len(runs))]


def fleet(runs: Sequence[Experiment], corpora: Sequence[Corpus], folder: Path, **options: Any) -> Iterator[Event]:
    return train_fleet(runs, corpora, [folder / str(m) for m in range(len(runs))], **options)


def test_every_line_of_a_mixed_fleets_metrics_is_that_of_the_run_alone(tmp_path: Path) -> None:
    runs, corpora = mixed()
    for _ in fleet(runs, corpora, tmp_path / "together"):
        pass
    for m, run in enumerate(runs):
        together = load(tmp_path / "together" / str(m), "cpu").metrics
        alone = train(run, tmp_path / f"alone {m}", corpora[m]).metrics
        assert [line["batch"] for line in together] == [line["batch"] for line in alone]
        for ours, theirs in zip(together, alone, strict=True):
            assert list(ours["perplexity"]) == list(theirs["perplexity"])
            assert ours["perplexity"] == pytest.approx(theirs["perplexity"], rel=1e-9)
            assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-9)


def test_all_runs_due_under_a_procedure_are_scored_in_one_call(tmp_path: Path, calls: list[Call]) -> None:
    at: dict[int, set[Call]] = {}
    for event in fleet(*mixed(), tmp_path):
        if calls:
            assert isinstance(event, Evaluated)
            assert len(calls) == len(set(calls))
            at[event.learner.count] = set(calls)
            calls.clear()
    usual = {Call("windowed", (0, 2, 3)), Call("progressive", (1, 2, 4))}
    later = {Call("windowed", (0, 2)), Call("progressive", (1, 2, 4))}
    everything = {Call("windowed", (0, 1, 2, 4)), Call("progressive", (0, 1, 2, 4))}
    short_ends = {Call("windowed", (3,)), Call("progressive", (3,))}
    assert at == dict.fromkeys((1, 2, 3, 4, 5), usual) | {6: short_ends} | dict.fromkeys((7, 9, 11), later) | {
        12: everything
    }


def test_a_run_is_told_of_before_the_next_and_its_end_right_after_its_last_line(tmp_path: Path) -> None:
    told = [
        (type(event).__name__, event.run)
        for event in fleet(*mixed(), tmp_path)
        if isinstance(event, Evaluated | Ended) and event.learner.count == BATCHES
    ]
    assert told == [(kind, m) for m in (0, 1, 2, 4) for kind in ("Evaluated", "Ended")]


def test_who_is_scored_beside_whom_does_not_depend_on_an_interruption(
    tmp_path: Path, calls: list[Call], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A product's last bits may depend on how many runs it holds, and a resumed run ends bit-identical."""
    runs, corpora = [tiny(seed=m, batches=BATCHES) for m in range(3)], [tiny_corpus()] * 3
    finish, ended = RunFolder.finish, []

    def finish_one(folder: RunFolder, *arguments: Any) -> None:
        if ended:
            raise KeyboardInterrupt  # as a kill between the ends of two runs
        ended.append(folder)
        finish(folder, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "finish", finish_one)
        with pytest.raises(KeyboardInterrupt):
            list(fleet(runs, corpora, tmp_path, save_every=4))
    assert [load(tmp_path / str(m), "cpu").status["state"] for m in range(3)] == ["finished", "training", "training"]
    before = list(calls)
    calls.clear()
    scored = [event.run for event in fleet(runs, corpora, tmp_path, resume=True) if isinstance(event, Evaluated)]
    assert scored == [1, 2]  # at batch 12, where the last checkpoint was made
    assert calls == before[-2:]
    assert {call.seeds for call in calls} == {(0, 1, 2)}


def test_the_device_is_asked_once_a_batch_and_once_more_an_evaluation_for_all_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, plain = [], Learner.look
    monkeypatch.setattr(Learner, "look", lambda learner: looks.append(learner.count) or plain(learner))
    for event in fleet(*mixed(), tmp_path):
        if isinstance(event, Stepped):
            assert looks.count(event.learner.count) == 1
        if isinstance(event, Evaluated):
            assert looks.count(event.learner.count) == 2
