"""Ctrl-C, SIGTERM and a closing terminal save first; two processes cannot train one folder; saving costs under 2 %."""

from __future__ import annotations

import itertools
import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import killing
import pytest
from killing import Job, results, run, uninterrupted

from unroll.runs.folder import RunFolder
from unroll.training import bookkeeping
from unroll.training.learner import Learner
from unroll.training.loop import train_fleet
from unroll.training.signals import Watch

PROCEDURE = "conditional"


def status(folder: Path, procedure: str = PROCEDURE) -> list[tuple[str, int]]:
    return [(RunFolder(o).status["state"], RunFolder(o).status["batch"]) for o in killing.outs(folder, procedure)]


@pytest.mark.parametrize("procedure", [PROCEDURE, "fleet of three"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_in_the_midst_of_a_step_saves_and_the_run_goes_on_exactly(
    number: int, code: int, procedure: str, tmp_path: Path
) -> None:
    outcome = run(Job(procedure, str(tmp_path), moment="step", at=16, signals=(number,)))
    assert outcome.raised == ("Interrupted", f"Interrupted by signal {int(number)}.", code)
    # The step is finished first: 17 batches are done, which is no multiple of the batches between saves.
    assert status(tmp_path, procedure) == [("interrupted", 17)] * len(killing.PROCEDURES[procedure])
    resumed = run(Job(procedure, str(tmp_path), resume=True))
    assert (resumed.start, resumed.code) == (17, 0)
    assert results(tmp_path, procedure) == uninterrupted(procedure)


def test_a_hangup_that_the_program_was_told_to_ignore_is_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `nohup` does
    try:
        with Watch() as watch:
            signal.raise_signal(signal.SIGHUP)
            watch.check()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_control_c_quits_at_once_and_the_last_checkpoint_stands(tmp_path: Path) -> None:
    outcome = run(Job(PROCEDURE, str(tmp_path), moment="step", at=16, signals=(signal.SIGINT, signal.SIGINT)))
    assert outcome.raised is not None
    assert outcome.raised[0] == "KeyboardInterrupt"
    assert status(tmp_path) == [("training", 15)]
    assert run(Job(PROCEDURE, str(tmp_path), resume=True)).start == 15
    assert results(tmp_path, PROCEDURE) == uninterrupted(PROCEDURE)


def test_control_c_after_sigterm_quits_at_once_but_sigterm_twice_still_saves(tmp_path: Path) -> None:
    quits = run(Job(PROCEDURE, str(tmp_path / "a"), moment="step", at=16, signals=(signal.SIGTERM, signal.SIGINT)))
    saves = run(Job(PROCEDURE, str(tmp_path / "b"), moment="step", at=16, signals=(signal.SIGTERM, signal.SIGTERM)))
    assert quits.raised is not None
    assert saves.raised is not None
    assert (quits.raised[0], saves.raised[0]) == ("KeyboardInterrupt", "Interrupted")


@pytest.mark.parametrize("procedure", [PROCEDURE, "multi-loss", "fleet of three"])
def test_a_signal_during_an_evaluation_is_noticed_in_it_and_the_evaluation_is_done_again(
    procedure: str, tmp_path: Path
) -> None:
    outcome = run(Job(procedure, str(tmp_path), moment="evaluation", at=18, signals=(signal.SIGINT,)))
    assert outcome.raised is not None
    assert outcome.raised[0] == "Interrupted"
    assert status(tmp_path, procedure) == [("interrupted", 18)] * len(killing.PROCEDURES[procedure])
    first = killing.outs(tmp_path, procedure)[0]
    assert max(line["batch"] for line in RunFolder(first).metrics) < 18
    assert run(Job(procedure, str(tmp_path), resume=True)).start == 18
    assert results(tmp_path, procedure) == uninterrupted(procedure)


def test_a_signal_before_the_first_step_leaves_a_run_that_can_be_resumed(tmp_path: Path) -> None:
    outcome = run(Job(PROCEDURE, str(tmp_path), moment="renamed status.json", at=1, signals=(signal.SIGTERM,)))
    assert outcome.raised is not None
    assert outcome.raised[0] == "Interrupted"
    assert status(tmp_path) == [("interrupted", 0)]
    assert run(Job(PROCEDURE, str(tmp_path), resume=True)).code == 0
    assert results(tmp_path, PROCEDURE) == uninterrupted(PROCEDURE)


def test_a_folder_that_is_being_trained_is_refused_to_another_process(tmp_path: Path) -> None:
    events = killing.follow(PROCEDURE, tmp_path)
    next(events)
    outcome = run(Job(PROCEDURE, str(tmp_path), resume=True))
    (out,) = killing.outs(tmp_path, PROCEDURE)
    assert outcome.raised is not None
    name, words, code = outcome.raised
    assert (name, code) == ("RunError", 2)
    assert words.startswith(
        f"Another process is training {out}. Wait for it, or choose another folder. "
        f"It is held by process {os.getpid()} on "
    )
    assert outcome.start is None
    list(events)
    assert results(tmp_path, PROCEDURE) == uninterrupted(PROCEDURE)


def test_the_lock_of_a_killed_process_bars_nobody(tmp_path: Path) -> None:
    assert run(Job(PROCEDURE, str(tmp_path), moment="step", at=10)).killed
    assert run(Job(PROCEDURE, str(tmp_path), resume=True)).raised is None


@pytest.mark.parametrize(("cost", "between"), [(0.0, 10.0), (0.1, 10.0), (0.5, 25.0), (4.0, 200.0)])
def test_saves_are_ten_seconds_or_fifty_times_their_cost_apart_and_take_under_two_per_cent(
    cost: float, between: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, step, saves = 1000.0, 0.25, []

    def stepped(learner: Learner) -> None:
        nonlocal now
        now += step
        learner.count += 1

    def saved(folder: RunFolder, *arguments: Any) -> None:
        nonlocal now
        saves.append((now, now + cost))
        now += cost

    monkeypatch.setattr(bookkeeping.time, "perf_counter", lambda: now)
    monkeypatch.setattr(Learner, "step", stepped)
    monkeypatch.setattr(RunFolder, "save", saved)
    monkeypatch.setattr(bookkeeping, "evaluation_points", lambda batches, count: (batches,))
    experiment = replace(killing.PROCEDURES[PROCEDURE][0], batches=4000)
    list(train_fleet([experiment], killing.corpora(PROCEDURE), [tmp_path / "run"]))
    gaps = [start - end for (_, end), (start, _) in itertools.pairwise(saves)]
    assert len(gaps) > 2
    assert all(between < gap <= between + step + 1e-6 for gap in gaps)
    assert sum(end - start for start, end in saves) < 0.02 * (now - 1000.0)
    seconds = json.loads((tmp_path / "run" / "metrics.jsonl").read_text())["seconds"]
    assert seconds == pytest.approx(4000 * step)  # what a run is said to take holds no saving
