"""A loop over training that is left early saves, as Ctrl-C does, and leaves nothing behind that holds its folder."""

from __future__ import annotations

import errno
import gc
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import killing
import pytest
import sweeping
from killing import SAVE_EVERY, results, uninterrupted
from paths import TESTS
from sweeping import small

from unroll.base.errors import SaveError
from unroll.runs.folder import RunFolder
from unroll.sweep.folder import SweepFolder
from unroll.sweep.launchers import Begun, Progressed
from unroll.training.events import Ended, Evaluated, Event, Stepped, Warned
from unroll.training.signals import Watch

FLEET = "fleet of three"
LEFT = 23  # a batch that is neither evaluated nor a multiple of the batches between saves


def states(folder: Path, procedure: str) -> set[tuple[str, int]]:
    found = [RunFolder(out).status for out in killing.outs(folder, procedure)]
    return {(status["state"], status["batch"]) for status in found}


def at(batch: int, kind: type[Event] = Stepped) -> Callable[[Event], bool]:
    return lambda event: isinstance(event, kind) and event.learner.count == batch


def leave_by_break(events: Iterator[Event], here: Callable[[Event], bool]) -> None:
    for event in events:
        if here(event):
            break


def leave_by_an_error(events: Iterator[Event], here: Callable[[Event], bool]) -> None:
    def watched() -> None:
        for event in events:
            if here(event):
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        watched()


def leave_by_close(events: Iterator[Event], here: Callable[[Event], bool]) -> None:
    next(event for event in events if here(event))
    events.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("leave", [leave_by_break, leave_by_an_error, leave_by_close], ids=lambda leave: leave.__name__)
def test_training_that_is_left_is_saved_there_and_goes_on_exactly(
    leave: Callable[[Iterator[Event], Callable[[Event], bool]], None], tmp_path: Path
) -> None:
    def left() -> None:  # with the last name for it, the generator is gone
        leave(killing.follow("conditional", tmp_path), at(LEFT))

    left()
    gc.collect()
    assert states(tmp_path, "conditional") == {("interrupted", LEFT)}
    counts = [e.learner.count for e in killing.follow("conditional", tmp_path, resume=True) if isinstance(e, Stepped)]
    assert counts[0] == LEFT + 1
    assert results(tmp_path, "conditional") == uninterrupted("conditional")


@pytest.mark.parametrize("kind", [Stepped, Evaluated])
@pytest.mark.parametrize("batch", [1, 18])
def test_a_fleet_left_in_the_midst_of_an_evaluation_goes_on_exactly(
    batch: int, kind: type[Event], tmp_path: Path
) -> None:
    leave_by_break(killing.follow(FLEET, tmp_path), at(batch, kind))  # after the first of three runs is heard of
    assert states(tmp_path, FLEET) == {("interrupted", batch)}
    killing.train(FLEET, tmp_path, resume=True)
    assert results(tmp_path, FLEET) == uninterrupted(FLEET)


def test_a_fleet_left_again_and_again_ends_as_one_that_was_not(tmp_path: Path) -> None:
    for batch in range(2, killing.BATCHES, 5):
        leave_by_break(killing.follow(FLEET, tmp_path, resume=batch > 2), at(batch))
    killing.train(FLEET, tmp_path, resume=True)
    assert results(tmp_path, FLEET) == uninterrupted(FLEET)


def test_leaving_after_the_end_changes_nothing(tmp_path: Path) -> None:
    leave_by_break(killing.follow("conditional", tmp_path), at(killing.BATCHES, Ended))
    assert states(tmp_path, "conditional") == {("finished", killing.BATCHES)}
    (out,) = killing.outs(tmp_path, "conditional")
    assert not (out / "checkpoints").exists()
    assert results(tmp_path, "conditional") == uninterrupted("conditional")


def test_leaving_before_the_first_step_takes_nothing_away(tmp_path: Path) -> None:
    (out,) = killing.outs(tmp_path, "conditional")
    killing.follow("conditional", tmp_path).close()  # type: ignore[attr-defined]
    assert not out.exists()  # nothing has begun
    leave_by_break(killing.follow("conditional", tmp_path), at(LEFT))
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    (out / "checkpoints" / f"batch-{1:09d}.safetensors").write_bytes(b"")  # which is said before anything is done
    leave_by_break(killing.follow("conditional", tmp_path, resume=True), lambda event: isinstance(event, Warned))
    assert {path: path.read_bytes() for path in before} == before
    killing.train("conditional", tmp_path, resume=True)
    assert results(tmp_path, "conditional") == uninterrupted("conditional")


@pytest.mark.parametrize("error", [SaveError("Could not save: No space left."), OSError(errno.EIO, "I/O error")])
def test_what_cannot_be_saved_on_leaving_is_a_warning_and_what_was_saved_before_stands(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise error

    def left() -> None:
        for event in killing.follow("conditional", tmp_path):
            if at(LEFT)(event):
                monkeypatch.setattr(RunFolder, "save", full)
                break

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        left()
    monkeypatch.undo()
    assert [str(one.message) for one in said] == [
        f"Training was left after {LEFT} batches, and could not be saved there: {error}"
    ]
    assert states(tmp_path, "conditional") == {("training", LEFT - LEFT % SAVE_EVERY)}
    killing.train("conditional", tmp_path, resume=True)
    assert results(tmp_path, "conditional") == uninterrupted("conditional")


def test_a_second_control_c_in_the_loop_still_quits_at_once(tmp_path: Path) -> None:
    def pressed() -> None:
        for event in killing.follow("conditional", tmp_path):
            if at(LEFT)(event):
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        pressed()
    assert states(tmp_path, "conditional") == {("training", LEFT - LEFT % SAVE_EVERY)}


def test_a_process_that_forked_saves_nothing_in_its_parents_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = killing.follow("conditional", tmp_path)
    next(event for event in events if at(LEFT)(event))
    monkeypatch.setattr(os, "getpid", lambda: -1)
    events.close()  # type: ignore[attr-defined]
    assert states(tmp_path, "conditional") == {("training", LEFT - LEFT % SAVE_EVERY)}


SCRIPT = """
import sys
import killing

experiments, corpora = killing.PROCEDURES["conditional"], killing.corpora("conditional")
events = killing.train_fleet(experiments, corpora, [sys.argv[1]])
for event in events:
    if event.learner.count == int(sys.argv[2]):
        break
"""


@pytest.mark.parametrize("ending", ["0", pytest.param("1 / 0", marks=pytest.mark.slow)])
def test_the_end_of_the_program_leaves_training_that_a_name_still_holds(ending: str, tmp_path: Path) -> None:
    out, path = killing.outs(tmp_path, "conditional")[0], [str(TESTS), *sys.path]
    command = [sys.executable, "-c", f"{SCRIPT}\n{ending}", str(out), str(LEFT)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert ("ZeroDivisionError" in done.stderr) == (ending != "0")
    assert "ignored" not in done.stderr
    assert states(tmp_path, "conditional") == {("interrupted", LEFT)}


def test_training_that_another_thread_leaves_is_saved_and_signals_mean_again_what_they_did(tmp_path: Path) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        events = killing.follow("conditional", tmp_path)
        next(event for event in events if at(LEFT)(event))
        thread = threading.Thread(target=events.close)  # type: ignore[attr-defined]
        thread.start()
        thread.join()
        assert states(tmp_path, "conditional") == {("interrupted", LEFT)}
        signal.raise_signal(signal.SIGTERM)
        assert heard == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_signal_that_nobody_asked_for_within_one_watch_is_heard_by_the_one_around_it() -> None:
    with Watch() as outer:
        with Watch():
            signal.raise_signal(signal.SIGTERM)
        assert outer.number == signal.SIGTERM


def test_a_sweep_that_is_left_saves_what_trains_and_holds_nothing(tmp_path: Path) -> None:
    asked = small(seed=range(3))
    sweeping.drive(tmp_path / "whole", asked)
    threads = threading.active_count()

    def left() -> None:
        for report in sweeping.follow(tmp_path / "out", asked):
            if isinstance(report, Progressed) and report.batch == 5:
                break

    left()
    folder = SweepFolder(tmp_path / "out")
    found = [RunFolder(path).status for path in (tmp_path / "out" / "runs").iterdir()]
    assert {(status["state"], status["batch"]) for status in found} == {("interrupted", 5)}
    assert threading.active_count() == threads
    with folder.locked():
        pass
    begun = [report.batch for report in sweeping.drive(tmp_path / "out", None) if isinstance(report, Begun)]
    assert begun == [5]
    assert sweeping.result(tmp_path / "out") == sweeping.result(tmp_path / "whole")
