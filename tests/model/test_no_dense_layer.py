"""A model without a dense layer is softmax on h: what anybody writes with nn.LSTM and nn.Linear, in every number."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import CPU, check_all_close, check_close, tiny, tiny_corpus
from torch import Tensor, nn

from unroll import Experiment, load, perplexity, sample, score, train, train_fleet
from unroll.base.errors import ConfigurationError
from unroll.engines.choice import engine_of
from unroll.engines.cuda import compiler
from unroll.engines.cuda.engine import CudaEngine
from unroll.engines.cuda.steppers import device_steps
from unroll.engines.torch.engine import TorchEngine
from unroll.experiment.experiment import read_toml, write_toml
from unroll.model import cells
from unroll.model.dropout import Dropout
from unroll.model.head import Affine, Head
from unroll.model.initial_values import initial_parameters, parameter_shapes
from unroll.training import memory
from unroll.training.learner import Learner

STEPS, V = 10, 7
KERNELS = ["reference", "stacked", "host", "compiled"]


class Usual(nn.Module):
    """nn.LSTM on one-hot vectors, nn.Linear on its h, and first states that are learned."""

    def __init__(self, experiment: Experiment, values: dict[str, Tensor]) -> None:
        super().__init__()
        H, layers = experiment.hidden, experiment.layers
        self.lstm, self.linear = nn.LSTM(V, H, layers).double(), nn.Linear(H, V).double()
        self.first = nn.ParameterList(torch.zeros(layers, H, dtype=torch.float64) for _ in "hc")
        with torch.no_grad():
            for ours, (parameter, turned) in self.named(layers).items():
                parameter.copy_(values[ours].t() if turned else values[ours])
            for layer in range(layers):  # torch has a second bias, which one bias makes up for
                getattr(self.lstm, f"bias_hh_l{layer}").zero_().requires_grad_(False)

    def named(self, layers: int) -> dict[str, tuple[Tensor, bool]]:
        """torch's parameters by our names, and whether they are ours transposed."""
        named = {"out.W": (self.linear.weight, True), "out.b": (self.linear.bias, False)}
        for n in range(layers):
            for ours, theirs in (("W_x", "weight_ih"), ("W_h", "weight_hh"), ("b", "bias_ih")):
                named[f"layers.{n}.{ours}"] = getattr(self.lstm, f"{theirs}_l{n}"), ours != "b"
        return named

    def forward(self, ids_TB: Tensor) -> Tensor:
        state = tuple(s.unsqueeze(1).expand(-1, ids_TB.shape[1], -1).contiguous() for s in self.first)
        h_TBH, _ = self.lstm(nn.functional.one_hot(ids_TB.long(), V).double(), state)
        return self.linear(h_TBH)


def direct(**changes: Any) -> Experiment:
    return tiny(**{"dense": 0, "peepholes": "off", "clip": math.inf, "learning_rate": 0.01} | changes)


def begun(experiment: Experiment, kernel: str) -> Learner:
    """A learner whose biases are not 0, which would hide a mistake in their order."""
    learner = Learner([experiment], [tiny_corpus()], engine_of(CPU, kernel))
    with torch.no_grad():
        for seed, name in enumerate(("layers.0.b", "out.b")):
            known = learner.model.parameters[name][:, : V if name == "out.b" else None]
            known.copy_(torch.from_numpy(np.random.default_rng(seed).normal(0, 0.3, known.shape)))
    return learner


def watched(learner: Learner) -> dict[str, Tensor]:
    """What reaches the optimiser, by parameter; a replayed step writes to the same memory."""
    seen: dict[str, Tensor] = {}
    change = learner.update.change

    def watching(gradients: dict[str, Tensor], alive_M: Tensor) -> None:
        seen.update({name: gradient.clone() for name, gradient in gradients.items()})
        change(gradients, alive_M)

    learner.update.change = watching  # type: ignore[method-assign]
    return seen


@pytest.mark.parametrize("loss", ["equal", "last"])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kernel", KERNELS)
def test_losses_gradients_and_ten_steps_of_adam_are_those_of_nn_lstm_and_nn_linear(
    kernel: str, layers: int, loss: str
) -> None:
    experiment = direct(layers=layers, batches=STEPS, loss=loss)
    learner = begun(experiment, kernel)
    gradients = watched(learner)
    usual = Usual(experiment, learner.model.values(0))
    optimiser = torch.optim.Adam([p for p in usual.parameters() if p.requires_grad], lr=experiment.learning_rate)
    for step in range(STEPS):
        batch, K = learner.batches[step], experiment.scheme.scored
        optimiser.zero_grad()
        logits_KBV = usual(batch.inputs_MTB[0])[-K:]
        mean = nn.functional.cross_entropy(logits_KBV.flatten(0, 1), batch.targets_MKB[0].long().flatten())
        (mean * sum(experiment.scheme.weights)).backward()
        learner.step()
        (ours,) = learner.take_losses([0])
        assert ours == pytest.approx(mean.item(), rel=1e-12)
        held = learner.model.values(0, gradients)
        for name, (parameter, turned) in usual.named(layers).items():
            assert parameter.grad is not None
            expected = parameter.grad.t() if turned else parameter.grad
            check_close(held[name], expected, 1e-12, f"step {step}, gradient of {name}")
        optimiser.step()
    ended = learner.model.values(0)
    for name, (parameter, turned) in usual.named(layers).items():
        check_close(ended[name], parameter.t() if turned else parameter, 1e-12, name)
    for layer in range(layers):
        for name, first in zip(("h0", "c0"), usual.first, strict=True):
            check_close(ended[f"layers.{layer}.{name}"], first[layer], 1e-12, name)


def test_there_are_no_dense_weights_and_every_other_layer_begins_as_beside_a_dense_layer() -> None:
    bare, whole = direct(hidden=40, layers=2, dense=0), direct(hidden=40, layers=2, dense=60)
    cell = cells.load("lstm", "off")
    values, beside = (initial_parameters(e, cell, 50) for e in (bare, whole))
    assert list(values) == list(parameter_shapes(bare, cell, 50)) == [n for n in beside if not n.startswith("dense.")]
    assert all(np.array_equal(values[name], beside[name]) for name in values if name != "out.W")
    limit = math.sqrt(6 / (40 + 50))
    assert values["out.W"].shape == (40, 50)
    assert np.abs(values["out.W"]).max() <= limit
    assert values["out.W"].std() == pytest.approx(limit / math.sqrt(3), rel=0.05)


def test_dense_0_is_said_in_run_toml_and_below_0_is_refused() -> None:
    asked = Experiment(dense=0)
    assert read_toml(write_toml(asked)) == asked
    assert asked.identity != Experiment().identity
    with pytest.raises(ConfigurationError, match=r"dense must be between 0 \(none\) and 1,000,000\. Got -1"):
        Experiment(dense=-1)


def test_work_and_memory_are_those_of_the_layers_that_there_are() -> None:
    bare, whole = (Experiment(hidden=128, dense=dense) for dense in (0, 1024))
    # 6,400 positions, forward and back, of h·W with 128 × 96 weights; with a dense layer 1,024 × (128 + 96).
    assert memory.batch_work(whole, 85) - memory.batch_work(bare, 85) == 3 * 6400 * (1024 * (128 + 96) - 128 * 96)
    assert 0 < memory.run_bytes(bare, 85) < memory.run_bytes(whole, 85)


@pytest.mark.parametrize(
    ("kernel", "precision"), [("host", "float32"), ("compiled", "float32"), ("compiled", "bfloat16")]
)
def test_a_run_is_trained_left_resumed_scored_and_sampled_as_any_other(
    kernel: str, precision: str, tmp_path: Path
) -> None:
    """Left after any batch and resumed, it ends bit-identical."""
    corpus = tiny_corpus(tokens=600)
    experiment = direct(
        precision=precision, kernel=kernel, batches=12, dropout=0.2, state="carried", sample="progressive", hidden=9
    )
    whole = train(experiment, tmp_path / "whole", corpus)
    for batch in (1, 7):
        out = tmp_path / str(batch)
        for event in (events := train_fleet([experiment], [corpus], [out], save_every=1)):
            if event.learner.count == batch:
                break
        events.close()
        for _ in train_fleet([experiment], [corpus], [out], resume=True):
            pass
        resumed = load(out, "cpu")
        assert all(torch.equal(v, whole.model.values(0)[n]) for n, v in resumed.model.values(0).items())
    assert "dense.W" not in whole.model.parameters
    assert len(score(whole, corpus.vocabulary.decode(corpus.ids[:40]))) == 39
    for procedure in ("windowed", "progressive"):
        drawn = sample(whole, prompt="abc", length=30, seed=3, sample=procedure)
        assert len(drawn.text) == 30
        assert perplexity(whole, procedure, corpus)[0].perplexity == pytest.approx(V, rel=0.3)


def test_runs_of_a_fleet_end_as_each_alone() -> None:
    runs = [direct(seed=m, dropout=rate, learning_rate=0.01 * (m + 1)) for m, rate in enumerate((0.0, 0.3, 0.5))]
    corpora = [tiny_corpus(m, symbols=n) for m, n in enumerate((14, 16, 15))]
    for kernel in ("stacked", "compiled"):
        together = Learner(runs, corpora, engine_of(CPU, kernel))
        for _ in range(STEPS // 2):
            together.step()
        for m, run in enumerate(runs):
            alone = Learner([run], corpora[m : m + 1], engine_of(CPU, kernel))
            for _ in range(STEPS // 2):
                alone.step()
            check_all_close(together.snapshot(m), alone.snapshot(0), 1e-9, f"{kernel}, run {m}")
            assert (together.model.parameters["out.W"][m, :, corpora[m].unique :] == 0).all()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_gpus_engine_hands_this_head_on_and_says_so(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cuda")
    plain = TorchEngine(device, "stacked")
    engine = CudaEngine(device, "stacked", plain)
    assert engine.unknown(direct()) == ["softmax directly on h (dense 0)"]
    assert engine.unknown(direct(dense=6)) == []
    generator = torch.Generator().manual_seed(0)
    h, W, b = (torch.randn(*shape, generator=generator) for shape in ((2, 9, 5), (2, 5, V), (2, V)))
    targets = torch.randint(V, (2, 9), generator=generator)
    dropout = Dropout(torch.zeros(2), ((0, 0),) * 2, torch.zeros(2, 2, dtype=torch.int32), torch.tensor(0), False)
    given = Head(Affine(W, b), None), h, targets, precision, dropout
    assert torch.equal(engine.nll(*given), plain.nll(*given))
    # On a device that could, sampling has code for a model with a dense layer alone.
    monkeypatch.setattr(compiler, "why_not", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    for experiment, known in ((direct(dense=6), True), (direct(), False)):
        learner = Learner([replace(experiment, precision="float32")], [tiny_corpus()], engine_of(CPU, "stacked"))
        learner.model.device = device
        assert device_steps.supports(learner.model, "windowed") is known
