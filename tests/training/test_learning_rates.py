"""Runs whose learning rates move: each has its own, alone as in a fleet, resumed as uninterrupted, and says them."""

from __future__ import annotations

import csv
import math
import random
import shutil
from pathlib import Path
from typing import Any

import killing
import pytest
import torch
from commands import TINY, unroll
from helpers import CPU, check_identical, tiny, tiny_corpus

from unroll import Experiment, resume, train
from unroll.base.errors import RunError
from unroll.engines.choice import engine_of
from unroll.model import schedules
from unroll.runs.folder import RunFolder
from unroll.training.events import Warned
from unroll.training.learner import Learner
from unroll.training.learning_rates import STRETCH, LearningRates
from unroll.training.loop import train_fleet

FLEETS = ("schedules by count", "schedules by shape")


def test_every_schedule_is_in_a_fleet() -> None:
    runs = [run for fleet in FLEETS for run in killing.PROCEDURES[fleet]]
    assert {e.schedule.partition(",")[0] for e in runs} == {
        "constant", "step", "exponential", "linear", "cosine", "plateau",
    }  # fmt: skip


@pytest.mark.parametrize("fleet", FLEETS)
def test_a_fleet_of_unlike_schedules_trains_each_run_as_alone_to_the_last_bit(fleet: str, tmp_path: Path) -> None:
    runs, corpora = killing.PROCEDURES[fleet], killing.corpora(fleet)
    assert len({c.unique for c in corpora}) == 3
    outs = [tmp_path / f"together {m}" for m in range(len(runs))]
    for _ in train_fleet(runs, corpora, outs):
        pass
    for m, run in enumerate(runs):
        train(run, tmp_path / f"alone {m}", corpora[m])
        together, alone = RunFolder(outs[m]), RunFolder(tmp_path / f"alone {m}")
        check_identical(together.weights()[0], alone.weights()[0])
        lines = [[{**line, "seconds": 0, "fleet": 0} for line in each.metrics] for each in (together, alone)]
        assert lines[0] == lines[1]
        if run.schedule.startswith("plateau"):
            assert together.metrics[-1]["learning_rate"] < run.learning_rate, "the plateau was reached"


def test_a_validation_set_is_watched_rather_than_the_test_set() -> None:
    experiment = tiny(schedule="plateau,patience=1", batches=9)
    rates = LearningRates([experiment], torch.zeros(1))
    line = {"batch": 3, "perplexity": {"windowed": 7.0}}
    rates.note(0, [line, {**line, "validation": {"windowed": 6.0}}, {**line, "validation": {"windowed": None}}])
    assert rates.histories == [[(3, 7.0), (3, 6.0), (3, math.inf)]]


@pytest.mark.parametrize("kernel", ["compiled", "stacked"])
def test_every_step_is_made_with_the_rate_of_its_batch(kernel: str) -> None:
    runs = [
        tiny(schedule="cosine", batches=9, warm_up=4),
        tiny(schedule="step,every=2", batches=5, seed=1),
        tiny(batches=9, seed=2),
    ]
    learner = Learner(runs, [tiny_corpus()] * 3, engine_of(CPU, kernel))
    learner.prepare()
    seen = []
    for _ in range(9):
        learner.step()
        seen.append(learner.fleet.learning_rate_M.tolist())
    cosine, step = schedules.of(runs[0]), schedules.of(runs[1])
    assert cosine is not None
    assert step is not None
    assert seen == [[cosine.at(batch, ()), step.at(min(batch, 5), ()), 0.001] for batch in range(1, 10)]
    assert len({rates[0] for rates in seen}) == 9


def test_a_rate_that_moves_moves_a_recorded_step_too() -> None:
    def end(**settings: Any) -> torch.Tensor:
        learner = Learner([tiny(batches=6, **settings)], [tiny_corpus()], engine_of(CPU, "compiled"))
        learner.prepare()
        for _ in range(6):
            learner.step()
        return learner.model.values(0)["out.W"]

    moved, plain = end(schedule="step,every=3,by=0"), end()
    learner = Learner([tiny(batches=3)], [tiny_corpus()], engine_of(CPU, "compiled"))
    for _ in range(3):
        learner.step()
    assert torch.equal(moved, learner.model.values(0)["out.W"]), "from batch 4 on the rate is 0"
    assert not torch.equal(moved, plain)


def test_nothing_is_done_for_rates_that_do_not_move(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = Learner([tiny(), tiny(seed=1, learning_rate=0.01)], [tiny_corpus()] * 2, engine_of(CPU, "stacked"))
    monkeypatch.delattr(LearningRates, "set_for")
    learner.step()
    assert learner.fleet.learning_rate_M.tolist() == [0.001, 0.01]


def test_rates_are_sent_a_stretch_at_a_time_and_again_when_an_evaluation_may_change_them() -> None:
    experiment = tiny(schedule="plateau,patience=1,by=0.5", batches=3 * STRETCH, learning_rate=1.0)
    rate_M = torch.zeros(1, dtype=torch.float64)
    rates = LearningRates([experiment], rate_M)
    seen = []
    for batch in range(1, 2 * STRETCH):
        rates.set_for(batch)
        seen.append(float(rate_M))
        if batch in (10, 20, 30):
            rates.note(0, [{"batch": batch, "perplexity": {"windowed": 7.0}}])
    assert seen == [1.0] * 20 + [0.5] * 10 + [0.25] * (2 * STRETCH - 31)


def test_lines_of_metrics_say_the_rate_where_it_moves_and_only_there(tmp_path: Path) -> None:
    moving = train(tiny(schedule="linear", learning_rate=0.5, batches=5), tmp_path / "moving", tiny_corpus())
    assert [line["learning_rate"] for line in moving.metrics] == pytest.approx([0.5, 0.4, 0.3, 0.2, 0.1])
    assert all("learning_rate" not in line for line in train(tiny(), tmp_path / "still", tiny_corpus()).metrics)


def test_who_watches_the_test_set_says_so(tmp_path: Path) -> None:
    said = {}
    for name in ("plateau", "cosine"):
        events = list(train_fleet([tiny(schedule=name)], [tiny_corpus()], [tmp_path / name]))
        said[name] = [event.message for event in events if isinstance(event, Warned)]
    assert said["cosine"] == []
    assert said["plateau"] == ["the schedule plateau watches the test set: its perplexity decides the training."]


def interrupted(experiment: Experiment, out: Path, batch: int) -> None:
    """A run that was left after a batch, and saved there."""
    events = train_fleet([experiment], [tiny_corpus()], [out])
    for event in events:
        if event.learner.count == batch:
            break
    events.close()


@pytest.mark.parametrize("schedule", ["linear", "cosine", "exponential", "plateau"])
def test_a_run_whose_rates_depend_on_its_length_cannot_be_made_longer(schedule: str, tmp_path: Path) -> None:
    evaluations = {"evaluations": 4} if schedule == "plateau" else {}
    interrupted(tiny(batches=8, schedule=schedule, **evaluations), tmp_path / "run", 4)
    with pytest.raises(RunError, match=f"cannot be made longer: the schedule {schedule} depends on its 8 batches"):
        resume(tmp_path / "run", batches=9, corpus=tiny_corpus())
    assert resume(tmp_path / "run", batches=8, corpus=tiny_corpus()).status["state"] == "finished"


@pytest.mark.parametrize("schedule", ["step,every=3", "plateau,patience=1"])
def test_a_run_made_longer_equals_one_that_was_long_from_the_start(schedule: str, tmp_path: Path) -> None:
    short = tiny(batches=8, schedule=schedule, learning_rate=0.3)
    interrupted(short, tmp_path / "run", 6)
    long = resume(tmp_path / "run", batches=20, corpus=tiny_corpus())
    whole = train(tiny(batches=20, schedule=schedule, learning_rate=0.3), tmp_path / "whole", tiny_corpus())
    check_identical(long.model.values(0), whole.model.values(0))
    assert [line["learning_rate"] for line in long.metrics] == [line["learning_rate"] for line in whole.metrics]
    assert len({line["learning_rate"] for line in whole.metrics}) > 1


@pytest.mark.slow
@pytest.mark.parametrize("fleet", FLEETS)
def test_every_schedule_killed_at_random_moments_ends_bit_identical(fleet: str, tmp_path: Path) -> None:
    drawn, folder, resumes = random.Random(fleet), tmp_path / "killed", False
    for batch in sorted(drawn.sample(range(4, 40), 6)):
        moment = drawn.choice(["step", "any"])
        at = batch if moment == "step" else drawn.randrange(1, 80)
        outcome = killing.run(killing.Job(fleet, str(folder), resumes, moment, at))
        assert outcome.killed, outcome
        resumes = all(RunFolder(out).is_run() for out in killing.outs(folder, fleet))
        if not resumes:  # killed before there was a run: what a person would do is start again
            shutil.rmtree(folder)
    outcome = killing.run(killing.Job(fleet, str(folder), resumes))
    assert (outcome.code, outcome.raised) == (0, None)
    assert killing.results(folder, fleet) == killing.uninterrupted(fleet)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("to be or not to be, that is the question. " * 100)
    return path


def test_options_reach_the_run_and_a_word_too_many_is_refused(text: Path, tmp_path: Path) -> None:
    options = ["--schedule", "step, every=2,by=.1", "--warm-up", 2, "--optimiser", "sgd,momentum=0.9"]
    options += ["--weight-decay", 0.01, "--decay", "decoupled", "--clip-norm", 0.25]
    result = unroll("train", text, *TINY, "--batches", 4, *options, "--out", tmp_path / "run")
    assert result.code == 0, result.err
    assert "does not know" not in result.err
    e = RunFolder(tmp_path / "run").experiment
    assert (e.schedule, e.warm_up, e.optimiser) == ("step,every=2,by=0.1", 2, "sgd,momentum=0.9")
    assert (e.weight_decay, e.decay, e.clip_norm) == (0.01, "decoupled", 0.25)
    refused = unroll("train", text, *TINY, "--schedule", "cosine,end=0.1", "--out", tmp_path / "other")
    assert refused.code == 2
    assert "schedule = cosine knows the keys final. Got 'end=0.1'." in refused.err


def test_a_sweep_lists_schedules_whose_keys_have_commas_of_their_own(text: Path, tmp_path: Path) -> None:
    options = ["--schedule", "constant,step,every=2,by=0.1,cosine", "--optimiser", "adam,sgd,momentum=0.9"]
    options += ["--clip-norm", "inf,0.5", "--weight-decay", "0,0.1", "--batches", 2]
    result = unroll("sweep", text, *TINY, *options, "--out", tmp_path / "sweep", "--most", 24)
    assert result.code == 0, result.err
    with open(tmp_path / "sweep" / "table.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 2 * 2 * 2
    assert {row["schedule"] for row in rows} == {"constant", "step,every=2,by=0.1", "cosine"}
    assert {row["optimiser"] for row in rows} == {"adam", "sgd,momentum=0.9"}
    assert {(row["clip_norm"], row["weight_decay"]) for row in rows} == {
        ("inf", "0.0"), ("inf", "0.1"), ("0.5", "0.0"), ("0.5", "0.1"),
    }  # fmt: skip
