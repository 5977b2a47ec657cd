"""Machine code is made before the first batch: it changes nothing, and no clock counts it."""

from __future__ import annotations

import gc
import time
from pathlib import Path

import pytest
import torch
from helpers import CPU, tiny, tiny_corpus

from unroll import train_fleet
from unroll.corpus.batches import Batch
from unroll.engines.choice import engine_of
from unroll.engines.cuda.replay import uncollected
from unroll.training.events import Evaluated
from unroll.training.learner import Learner

CARRIED = {"state": "carried", "k1": 3, "dropout": 0.25}


@pytest.mark.parametrize("changes", [{}, CARRIED], ids=["learned", "carried"])
def test_preparing_records_the_one_step_there_is_and_changes_nothing(changes: dict[str, object]) -> None:
    class Counting(Learner):
        taken = 0

        def advance(self, batch: Batch) -> None:
            self.taken += 1
            super().advance(batch)

    asked = [tiny(seed=seed, **changes) for seed in (0, 1)]
    prepared, plain = (Counting(asked, [tiny_corpus()] * 2, engine_of(CPU, "compiled")) for _ in range(2))
    prepared.prepare()
    assert (prepared.taken, plain.taken) == (1, 0)
    for _ in range(3):
        prepared.step()
        plain.step()
        prepared.prepare()
    assert (prepared.taken, plain.taken) == (1, 1)
    for m in range(2):
        own, other = prepared.snapshot(m), plain.snapshot(m)
        assert all(torch.equal(own[name], other[name]) for name in own | other)


def test_what_is_made_once_is_no_training_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    took: list[float] = []

    def slow(self: Learner) -> None:
        began = time.perf_counter()
        time.sleep(0.5)
        took.append(time.perf_counter() - began)

    monkeypatch.setattr(Learner, "prepare", slow)
    began = time.perf_counter()
    events = list(train_fleet([tiny()], [tiny_corpus()], [tmp_path / "run"]))
    whole = time.perf_counter() - began
    last = [event for event in events if isinstance(event, Evaluated)][-1]
    assert len(took) == 1
    assert last.metrics["seconds"] + sum(took) < whole


def test_a_run_that_has_ended_prepares_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list(train_fleet([tiny()], [tiny_corpus()], [tmp_path / "run"]))
    prepared: list[Learner] = []
    monkeypatch.setattr(Learner, "prepare", prepared.append)
    list(train_fleet([tiny()], [tiny_corpus()], [tmp_path / "run"], resume=True))
    assert prepared == []


@pytest.mark.parametrize("before", [True, False])
def test_nothing_is_collected_while_a_step_is_recorded(before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    collections: list[str] = []
    monkeypatch.setattr(gc, "callbacks", [])
    gc.callbacks.append(lambda phase, _: collections.append(phase))
    thresholds, was = gc.get_threshold(), gc.isenabled()
    try:
        (gc.enable if before else gc.disable)()
        gc.set_threshold(1)
        collections.clear()
        with uncollected():
            garbage = [[] for _ in range(1000)]
            collected = list(collections)
        assert collected == []
        assert len(garbage) == 1000
        assert gc.isenabled() == before
    finally:
        gc.set_threshold(*thresholds)
        (gc.enable if was else gc.disable)()
