"""Runs trained side by side end as the same runs trained alone; for runs that cannot, the reason is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import CPU, check_all_close, every_cell, tiny, tiny_corpus

from unroll import Corpus, Experiment, Scheme, load, train, train_fleet
from unroll.base.errors import ConfigurationError
from unroll.engines.choice import engine_of
from unroll.training import fleet
from unroll.training.learner import Learner

TOLERANCE = 1e-9
BATCHES = 50


def unlike(cell: str, peepholes: str, **more: Any) -> tuple[list[Experiment], list[Corpus]]:
    """Runs that differ in everything that runs of a fleet may differ in."""
    shape = {"cell": cell, "peepholes": peepholes, "k2": 6, "batches": BATCHES, "layers": 2} | more
    # Different sizes are padded to one: 14 and 16 to 16.
    corpora = [tiny_corpus(0, symbols=14, tokens=200), tiny_corpus(1, symbols=16, tokens=260)]
    runs = [
        tiny(**shape, k1=2, seed=1, dropout=0.25),
        tiny(**shape, k1=6, seed=2, learning_rate=0.01, state="carried", rotation="continue", reset="never"),
        tiny(**shape, k1=4, seed=3, loss="linear", shuffle=True, split_seed=1),
        tiny(**shape, k1=3, seed=4, loss="exponential", state="carried", reset=0.3, dropout=0.5, forget_bias=1.0),
    ]
    return runs, [corpora[0], corpora[1], corpora[1], corpora[0]]


def trained(runs: Sequence[Experiment], corpora: Sequence[Corpus], steps: int = BATCHES) -> Learner:
    learner = Learner(runs, corpora, engine_of(CPU, "stacked"))
    for _ in range(steps):
        learner.step()
    return learner


@every_cell
def test_runs_side_by_side_end_as_they_do_alone(cell: str, peepholes: str) -> None:
    runs, corpora = unlike(cell, peepholes, optimiser="rmsprop" if peepholes == "lasagne" else "adam")
    together = trained(runs, corpora)
    for m, (run, corpus) in enumerate(zip(runs, corpora, strict=True)):
        alone = trained([run], [corpus])
        check_all_close(together.weights(m), alone.weights(0), TOLERANCE, f"run {m}")
        check_all_close(together.snapshot(m), alone.snapshot(0), TOLERANCE, f"run {m}")


@pytest.mark.parametrize("gap", [False, True], ids=["no-gap", "gap"])
def test_a_learned_run_beside_carried_ones_is_not_changed_by_their_gap(gap: bool) -> None:
    k1 = 7 if gap else 4
    runs = [tiny(k1=k1, state="carried"), tiny(k1=2, seed=1), tiny(k1=k1, seed=2, state="carried")]
    corpora = [tiny_corpus(seed) for seed in range(3)]
    together = trained(runs, corpora)
    for m in range(3):
        check_all_close(together.weights(m), trained([runs[m]], [corpora[m]]).weights(0), TOLERANCE)


def test_padding_stays_exactly_0() -> None:
    runs, corpora = unlike("lstm", "paper")
    learner = trained(runs, corpora)
    for m, corpus in enumerate(corpora):
        V = corpus.unique
        for held in (learner.model.parameters, *moments(learner)):
            assert (held["layers.0.W_x"][m, V:] == 0).all()
            assert (held["out.W"][m, :, V:] == 0).all()
            assert (held["out.b"][m, V:] == 0).all()
    assert learner.model.parameters["out.b"].shape == (4, 16)


def moments(learner: Learner) -> list[dict[str, torch.Tensor]]:
    return [{name: own[n] for name, own in learner.moments.items()} for n in range(len(learner.optimiser.MOMENTS))]


def test_padding_is_never_saved(tmp_path: Path) -> None:
    runs, corpora = unlike("lstm", "paper", batches=2)
    outs = [tmp_path / str(m) for m in range(len(runs))]
    for _ in train_fleet(runs, corpora, outs):
        pass
    for out, corpus in zip(outs, corpora, strict=True):
        run = load(out, device="cpu")
        assert len(run.vocabulary) == corpus.unique
        stored = run.model.values(0)
        assert stored["layers.0.W_x"].shape[0] == stored["out.W"].shape[1] == len(stored["out.b"]) == corpus.unique
    learner = trained(runs, corpora, 1)
    held = learner.snapshot(0)
    assert {v.shape[-1] for k, v in held.items() if k.endswith("out.b")} == {corpora[0].unique}


def test_runs_of_different_lengths_end_at_their_own_batch_as_they_would_alone(tmp_path: Path) -> None:
    corpus = tiny_corpus()
    runs = [tiny(batches=n, seed=n, state=s) for n, s in ((4, "learned"), (9, "carried"), (6, "learned"))]
    outs = [tmp_path / f"together {m}" for m in range(3)]
    for _ in train_fleet(runs, [corpus] * 3, outs):
        pass
    for m, run in enumerate(runs):
        together, alone = load(outs[m], "cpu"), train(run, tmp_path / f"alone {m}", corpus)
        assert together.status["batch"] == run.batches == together.metrics[-1]["batch"]
        assert together.status["state"] == "finished"
        check_all_close(together.model.values(0), alone.model.values(0), TOLERANCE, f"run {m}")
        for ours, theirs in zip(together.metrics, alone.metrics, strict=True):
            assert ours["batch"] == theirs["batch"]
            assert ours["loss"] == pytest.approx(theirs["loss"], rel=TOLERANCE)
            assert ours["perplexity"] == pytest.approx(theirs["perplexity"], rel=TOLERANCE)


def reasons(*runs: Experiment, vocabularies: Sequence[int] | None = None) -> list[str]:
    return fleet.why_not(runs, vocabularies or [20] * len(runs))


def test_runs_that_differ_in_what_a_fleet_may_mix_share_one() -> None:
    runs, corpora = unlike("gru", "off")
    assert reasons(*runs, vocabularies=[c.unique for c in corpora]) == []


DIFFERENT = {
    "cell": "gru", "peepholes": "off", "layers": 2, "hidden": 6, "dense": 9, "rows": 4, "optimiser": "rmsprop",
    "clip": 1.0, "precision": "float32", "decay": "decoupled",
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_a_fleet_must_share_is_named_with_both_values(name: str) -> None:
    one, other = tiny(), tiny(**{name: DIFFERENT[name]})
    (reason,) = reasons(one, other)
    assert reason == f"Runs of one fleet share {name}: here are {getattr(one, name)} and {DIFFERENT[name]}."


def test_k2_and_the_number_of_scored_positions_are_shared() -> None:
    assert reasons(tiny(k2=5, k3=2), tiny(k2=6, k3=2)) == ["Runs of one fleet share k2: here are 5 and 6."]
    assert reasons(tiny(), tiny(loss="last")) == ["Runs of one fleet share scored positions: here are 5 and 1."]
    assert reasons(tiny(loss="last"), tiny(k3=1)) == []


def test_carried_runs_share_their_gap() -> None:
    def carried(k1: int) -> Experiment:
        return tiny(k1=k1, state="carried")

    assert reasons(carried(2), carried(5), tiny(k1=9)) == []
    assert reasons(carried(7), carried(5)) == [
        "Carried runs of one fleet share the gap max(0, k1 − k2): here are [0, 2]."
    ]


@pytest.mark.parametrize(
    ("sizes", "fits"),
    # 86 alone is padded to 96 already, and 106 to 112.
    [((64, 80), True), ((64, 81), False), ((7, 16), True), ((7, 17), False), ((86, 106), True), ((200, 200), True)],
)
def test_vocabularies_are_padded_at_most_a_quarter_past_the_smallest_alone(sizes: tuple[int, int], fits: bool) -> None:
    found = reasons(tiny(), tiny(), vocabularies=sizes)
    assert (found == []) == fits
    if not fits:
        assert str(sizes[0]) in found[0]
        assert str(sizes[1]) in found[0]


def test_runs_that_cannot_share_a_fleet_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    runs = [tiny(), replace(tiny(layers=2, hidden=7), scheme=Scheme(k1=2, k2=9))]
    outs = [tmp_path / "a", tmp_path / "b"]
    with pytest.raises(ConfigurationError) as told:
        next(train_fleet(runs, [tiny_corpus(), tiny_corpus()], outs))
    assert len(told.value.problems) == 4  # layers, hidden, k2 and the positions scored
    assert not any(out.exists() for out in outs)
