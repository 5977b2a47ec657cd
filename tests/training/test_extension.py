"""A run that has finished and is made longer equals, bit for bit, one that was that long from the start.

Compared: weights, the optimiser's moments, carried states, loss sums; metrics and status but for clocks; every file.
"""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import going_on
import pytest
from going_on import CARRIED, corpus, experiment, result

from unroll import Experiment, resume, train, train_fleet
from unroll.base import atomic_files
from unroll.base.errors import ConfigurationError, RunError
from unroll.runs.folder import RunFolder
from unroll.training import extension
from unroll.training.bookkeeping import evaluation_points

KEPT: dict[str, Experiment] = {
    "multi-loss": experiment(keep_optimiser=True),
    "single-loss": experiment(loss="last", keep_optimiser=True),
    "scheme 4 with dropout": experiment(**CARRIED, keep_optimiser=True),
    "scheme 4, reset at random, carried states scored": experiment(
        **CARRIED, reset=0.3, evaluate_carried=True, keep_optimiser=True
    ),
    "k1 > k2": experiment(**CARRIED, k1=9, cell="gru", keep_optimiser=True),
    "shuffle, both procedures": experiment(shuffle=True, evaluate="both", keep_optimiser=True),
    "RNN, RMSprop, float64": experiment(cell="rnn", optimiser="rmsprop", precision="float64", keep_optimiser=True),
    "two layers, plain kernel": experiment(layers=2, kernel="stacked", keep_optimiser=True),
}
SHORT, LONG = 12, 25


@pytest.mark.parametrize("name", KEPT)
def test_an_extended_run_is_one_that_was_long_from_the_start(name: str, tmp_path: Path) -> None:
    short = replace(KEPT[name], batches=SHORT)
    train(short, tmp_path / "run", corpus())
    resume(tmp_path / "run", LONG, corpus=corpus())
    train(replace(short, batches=LONG), tmp_path / "long", corpus())
    assert result(tmp_path / "run") == result(tmp_path / "long")


@pytest.mark.parametrize("short", [11, 12, 13])
def test_the_line_of_the_old_end_is_there_only_where_the_longer_run_has_one(short: int, tmp_path: Path) -> None:
    grid = evaluation_points(LONG)
    assert [11 in grid, 12 in grid, 13 in grid] == [True, False, False]
    run = train(experiment(short, keep_optimiser=True), tmp_path / "run", corpus())
    assert (run.metrics[-1]["batch"], len(run.metrics[-1]["perplexity"])) == (short, 2)
    longer = resume(tmp_path / "run", LONG, corpus=corpus())
    assert [line["batch"] for line in longer.metrics] == list(grid)
    whole = train(experiment(LONG), tmp_path / "long", corpus())
    assert [line["loss"] for line in longer.metrics] == [line["loss"] for line in whole.metrics]


def test_a_run_is_extended_again_and_again(tmp_path: Path) -> None:
    train(experiment(5, keep_optimiser=True), tmp_path / "run", corpus())
    for batches in (6, 11, LONG):
        resume(tmp_path / "run", batches, corpus=corpus())
    train(experiment(LONG, keep_optimiser=True), tmp_path / "long", corpus())
    assert result(tmp_path / "run") == result(tmp_path / "long")


def test_exist_resume_makes_a_finished_run_longer_where_it_can(tmp_path: Path) -> None:
    for batches in (5, LONG):
        run = train(experiment(batches, keep_optimiser=True), tmp_path / "run", corpus(), exist="resume")
        assert (run.status["state"], run.status["batch"]) == ("finished", batches)


def test_a_run_can_be_asked_to_keep_its_optimiser_until_it_ends(tmp_path: Path) -> None:
    events = train_fleet([experiment()], [corpus()], [tmp_path / "run"])
    next(event for event in events if event.batch == 4)
    events.close()
    resume(tmp_path / "run", corpus=corpus(), keep_optimiser=True)
    assert resume(tmp_path / "run", LONG, corpus=corpus()).status["batch"] == LONG


def test_keeping_the_optimiser_changes_nothing_that_training_sees(tmp_path: Path) -> None:
    kept, plain = (train(experiment(keep_optimiser=k), tmp_path / str(k), corpus()) for k in (True, False))
    assert kept.experiment.identity == plain.experiment.identity
    assert kept.metrics[-1]["perplexity"] == plain.metrics[-1]["perplexity"]
    names = {path.name for path in kept.path.iterdir()} - {path.name for path in plain.path.iterdir()}
    assert names == {"optimiser.safetensors"}


def test_a_run_that_kept_nothing_is_refused_with_what_else_would_do(tmp_path: Path) -> None:
    train(experiment(), tmp_path / "run", corpus())
    before = result(tmp_path / "run")
    with pytest.raises(RunError, match=r"already finished after 12 batches and kept nothing.*keep_optimiser=") as error:
        resume(tmp_path / "run", LONG, corpus=corpus())
    assert "unroll.train_from" in str(error.value)
    assert result(tmp_path / "run") == before


def test_a_run_that_stopped_is_not_extended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sick = experiment(60, learning_rate=1e20, keep_optimiser=True, dropout=0.0)
    run = train(sick, tmp_path / "run", corpus())
    assert run.status["state"] == "stopped"
    with pytest.raises(RunError, match=r"already stopped after .* what stopped is not extended"):
        resume(tmp_path / "run", 90, corpus=corpus())


def test_a_run_whose_settings_depend_on_its_length_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(experiment(keep_optimiser=True), tmp_path / "run", corpus())
    monkeypatch.setattr(extension, "why_not", lambda experiment: "its learning rate falls until the last batch")
    before = result(tmp_path / "run")
    with pytest.raises(RunError, match="cannot be extended: its learning rate falls until the last batch"):
        resume(tmp_path / "run", LONG, corpus=corpus())
    assert result(tmp_path / "run") == before
    assert extension.note(experiment(keep_optimiser=True)) == (
        "This run cannot be extended after its end: its learning rate falls until the last batch."
    )


def test_a_fleet_gets_longer_as_a_whole_also_where_it_was_killed_between_two_of_its_runs(tmp_path: Path) -> None:
    def runs(batches: int) -> list[Experiment]:
        return [experiment(batches, **CARRIED, seed=seed, keep_optimiser=True) for seed in (1, 2)]

    def outs(name: str) -> list[Path]:
        return [tmp_path / f"{name}{seed}" for seed in (1, 2)]

    list(train_fleet(runs(SHORT), [corpus()] * 2, outs("short")))
    extension.open_again(RunFolder(outs("short")[0]), runs(LONG)[0], together=2)  # and here it is killed
    list(train_fleet(runs(LONG), [corpus()] * 2, outs("short"), resume=True))
    list(train_fleet(runs(LONG), [corpus()] * 2, outs("long")))
    assert [result(out) for out in outs("short")] == [result(out) for out in outs("long")]
    with pytest.raises(RunError, match="side by side with 1 others, and alone is another training"):
        resume(outs("short")[0], 2 * LONG, corpus=corpus())


def test_all_of_a_fleet_keep_their_optimisers_or_none(tmp_path: Path) -> None:
    runs = [experiment(seed=seed, keep_optimiser=seed == 1) for seed in (1, 2)]
    with pytest.raises(ConfigurationError, match="gets longer as a whole"):
        next(train_fleet(runs, [corpus(), corpus()], [tmp_path / "a", tmp_path / "b"]))
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("piece", ["progress.loss_sum", "optimiser.v.out.W", "out.W"])
def test_what_was_kept_must_be_whole_and_of_the_end(piece: str, tmp_path: Path) -> None:
    run = train(experiment(keep_optimiser=True), tmp_path / "run", corpus())
    tensors, facts = atomic_files.unseal(run.folder.kept_path)
    held = {name: value for name, value in tensors.items() if name != piece}
    run.folder.kept_path.write_bytes(atomic_files.seal(held, facts))
    before = result(tmp_path / "run")
    with pytest.raises(RunError, match="is not of the end of this run"):
        resume(tmp_path / "run", LONG, corpus=corpus())
    assert result(tmp_path / "run") == before


def test_a_flipped_bit_in_what_was_kept_is_noticed_and_the_run_stays_as_it_was(tmp_path: Path) -> None:
    run = train(experiment(keep_optimiser=True), tmp_path / "run", corpus())
    content = bytearray(run.folder.kept_path.read_bytes())
    content[-5] ^= 1
    run.folder.kept_path.write_bytes(content)
    with pytest.raises(RunError, match=r"optimiser\.safetensors is damaged"):
        resume(tmp_path / "run", LONG, corpus=corpus())
    assert resume(tmp_path / "run").status["state"] == "finished"


def test_a_control_without_the_moments_that_were_kept_another_run_comes_out(tmp_path: Path) -> None:
    """The comparison above would notice: what is kept is needed."""
    run = train(experiment(keep_optimiser=True), tmp_path / "run", corpus())
    tensors, facts = atomic_files.unseal(run.folder.kept_path)
    forgetful = {name: value.zero_() if name.startswith("optimiser.") else value for name, value in tensors.items()}
    run.folder.kept_path.write_bytes(atomic_files.seal(forgetful, facts))
    resume(tmp_path / "run", LONG, corpus=corpus())
    train(experiment(LONG, keep_optimiser=True), tmp_path / "long", corpus())
    assert result(tmp_path / "run") != result(tmp_path / "long")


def killed_at(folder: Path, template: Path, at: int) -> dict[str, Any]:
    """Extend a copy of a run, killed at a moment; then as a person would go on. What came out."""
    shutil.copytree(template, folder)
    outcome = going_on.run("extend", folder, at)
    assert outcome.killed, (at, outcome)
    state = json.loads((folder / "run" / "status.json").read_text())["state"]
    assert state in ("finished", "interrupted", "training"), at
    again = going_on.run("extend", folder)
    assert (again.code, again.raised) == (0, None), (at, outcome.moment)
    return result(folder / "run")


def extensible(folder: Path) -> tuple[Path, dict[str, Any], int]:
    """A finished run of scheme 4, what it comes to once it is longer, and how many moments that has."""
    template = folder / "template"
    template.mkdir()
    (template / "text.txt").write_text(going_on.text(going_on.LETTERS))
    named = experiment(**CARRIED, corpus=str(template / "text.txt"), keep_optimiser=True)
    train(named, template / "run")
    shutil.copytree(template, folder / "whole")
    count = len(going_on.moments_of("extend", folder / "whole"))
    train(replace(named, batches=LONG), folder / "long")
    expected = result(folder / "long")
    assert result(folder / "whole" / "run") == expected
    return template, expected, count


def test_an_extension_killed_at_any_moment_of_its_first_steps_ends_bit_identical(tmp_path: Path) -> None:
    template, expected, _ = extensible(tmp_path)
    for at in (2, 5, 7, 8):
        assert killed_at(tmp_path / f"at {at}", template, at) == expected, at


@pytest.mark.slow
def test_an_extension_killed_at_any_moment_ends_bit_identical(tmp_path: Path) -> None:
    template, expected, count = extensible(tmp_path)
    between = range(16, count - 12)
    chosen = {*range(1, 16), *range(count - 12, count + 1), *random.Random(0).sample(between, min(20, len(between)))}
    for at in sorted(chosen):
        assert killed_at(tmp_path / f"at {at}", template, at) == expected, at
        shutil.rmtree(tmp_path / f"at {at}")


def test_evaluations_that_are_spread_over_all_batches_are_said_to_lie_elsewhere() -> None:
    assert extension.note(experiment(keep_optimiser=True)) is None
    assert "--evaluations" in str(extension.note(experiment(keep_optimiser=True, evaluations=4)))
    assert extension.note(experiment()) == extension.HOW_TO_KEEP
