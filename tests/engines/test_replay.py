"""A replay repeats torch's operations and compiled code on the present values of the same tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import CPU, check_identical, random_tensor, snapshot, tiny, tiny_corpus, torch_threads

from unroll import Experiment
from unroll.engines.choice import engine_of
from unroll.engines.cpu import buffer_pool
from unroll.engines.cpu.compiled_update import CompiledUpdate
from unroll.engines.cpu.partial_sums import PartialSums
from unroll.engines.cpu.replay import RecordedCalls
from unroll.training.learner import Learner

# Everything that changes the course of a step: states' origins, loss weights, gaps, several k1, dropout.
FLEETS: dict[str, list[dict[str, Any]]] = {
    "learned": [{}, {"seed": 1}],
    "carried": [{"state": "carried", "reset": "epoch"}],
    "both": [{"state": "carried"}, {"seed": 2}, {"seed": 3, "k1": 3}],
    "a gap": [{"state": "carried", "k1": 9}],
    "dropout": [{"dropout": 0.3}, {"dropout": 0.1, "seed": 1}],
    "layers": [{"layers": 3, "hidden": 33}],
    "few rows": [{"rows": 3, "shuffle": True, "loss": "last"}],
    "bfloat16": [{"precision": "bfloat16"}],
    "rmsprop": [{"optimiser": "rmsprop", "precision": "float64"}],
    "no dense layer": [{"dense": 0, "dropout": 0.3}, {"dense": 0, "seed": 1}],
    "no dense layer, bfloat16": [{"dense": 0, "precision": "bfloat16", "state": "carried"}],
    "GRU": [{"cell": "gru", "state": "carried", "k1": 9, "layers": 2, "rows": 40}],
    "RNN of few rows": [{"cell": "rnn", "layers": 2, "rows": 3}, {"cell": "rnn", "layers": 2, "rows": 3, "seed": 1}],
}


def plain_step(learner: Learner) -> None:
    """Take one step as it is written, with nothing recorded."""
    assert isinstance(learner.update, CompiledUpdate)
    learner.number.fill_(learner.count)
    learner.update.begin(learner.count + 1)
    learner.advance(learner.batches[learner.count])
    learner.count += 1


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("fleet", FLEETS)
def test_a_replayed_step_is_the_step_bit_for_bit(fleet: str, threads: int) -> None:
    runs = [tiny(**{"batches": 9 + m} | changes) for m, changes in enumerate(FLEETS[fleet])]
    corpora = [tiny_corpus(seed=m) for m in range(len(runs))]
    with torch_threads(threads):
        replayed, plain = (Learner(runs, corpora, engine_of(CPU, "compiled")) for _ in range(2))
        for _ in range(12):  # the first run ends before
            replayed.step()
            plain_step(plain)
            for m in range(len(runs)):
                check_identical(snapshot(replayed, m), snapshot(plain, m))


def broken(run: Experiment) -> list[Learner]:
    """Two runs, the first of which diverges at its third batch; replayed, and step by step."""
    learners = [Learner([run, run], [tiny_corpus()] * 2, engine_of(CPU, "compiled")) for _ in range(2)]
    for learner, step in zip(learners, (Learner.step, plain_step), strict=True):
        for n in range(5):
            if n == 2:
                with torch.no_grad():
                    learner.model.parameters["dense.W"][0, 0, 0] = torch.nan
            step(learner)
    return learners


def test_a_replayed_step_finds_a_run_that_diverged_and_freezes_it() -> None:
    replayed, plain = broken(tiny(state="carried"))
    assert [replayed.look().stopped(m) for m in range(2)] == [(3, "the loss was not finite"), None]
    for m in range(2):
        # A NaN does not equal itself.
        check_identical(*({k: v.nan_to_num(7.5) for k, v in snapshot(x, m).items()} for x in (replayed, plain)))


def test_a_step_is_recorded_again_for_another_number_of_threads_and_training_goes_on() -> None:
    learner, alone = (Learner([tiny(rows=40)], [tiny_corpus()], engine_of(CPU, "compiled")) for _ in range(2))
    for n in range(6):
        with torch_threads(1 + n % 3):
            learner.step()
            plain_step(alone)
    check_identical(snapshot(learner, 0), snapshot(alone, 0))


def test_a_step_that_is_recorded_again_uses_the_memory_of_the_first_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer_pool, "_pool", buffer_pool._Pool())
    learner = Learner([tiny(rows=40)], [tiny_corpus()], engine_of(CPU, "compiled"))
    held = []
    for threads in (2, 1, 2, 1, 2):
        with torch_threads(threads):
            learner.step()
        held.append(buffer_pool._pool.bytes())
    assert max(held) < 1.5 * held[0]


def test_a_replay_computes_from_the_values_of_now() -> None:
    x, total = random_tensor(8, 4, seed=0), torch.zeros(4, dtype=torch.float64)
    recorded = RecordedCalls()
    with recorded:
        y = torch.where(x > 0, x, x.new_zeros(8, 4)).t().contiguous()
        sums = PartialSums(2, [(4, 8)], x.dtype)
        for (thread_sum,) in sums.by_thread:
            thread_sum.copy_(y)
        (both,) = sums.totals()
        total += both.sum(1)
    x.copy_(random_tensor(8, 4, seed=1))
    recorded.replay()
    assert torch.equal(y, x.clamp(min=0).t())
    assert torch.equal(both, 2 * y)
    total.zero_()
    recorded.replay()
    assert torch.equal(total, (2 * y).sum(1))


def test_a_value_that_python_looked_at_cannot_be_recorded() -> None:
    x = torch.ones(1)
    with pytest.raises(NotImplementedError, match="_local_scalar_dense"), RecordedCalls():
        x.item()
    recorded = RecordedCalls()
    with recorded:  # after a failure the next recording works
        x += 1
    recorded.replay()
    assert x.item() == 3
