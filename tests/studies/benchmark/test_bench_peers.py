"""Peers are the same model on the same batches; otherwise a comparison of speeds is worth little."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from bench_cases import CPU, tiny_corpus, tiny_shape
from torch import Tensor

from unroll import Corpus
from unroll.engines.choice import engine_of
from unroll.studies.benchmark import peers, replay
from unroll.studies.benchmark.contestants import PEERS, ContestantBuilder, Entry
from unroll.studies.benchmark.shapes import Shape
from unroll.training.learner import Learner

PROCEDURES = ["multi-loss", "single-loss", "conditional"]


def flashrnn(Wx: Tensor, R: Tensor, b: Tensor, states: Tensor, function: str) -> tuple[Tensor, Tensor]:
    """The package's function, as its own documentation states shapes and gates, in plain torch."""
    assert function == "lstm"
    B, T, _, N, D = Wx.shape
    assert (R.shape, b.shape, states.shape) == ((4, N, D, D), (4, N, D), (2, B, 1, N, D))
    (h, c), over_time = states[:, :, 0], []
    for t in range(T):
        i, f, z, o = (Wx[:, t] + torch.einsum("gnde,bne->bgnd", R, h) + b).unbind(1)
        c = f.sigmoid() * c + i.sigmoid() * z.tanh()
        h = o.sigmoid() * c.tanh()
        over_time.append(torch.stack((h, c)))
    whole = torch.stack(over_time, dim=2)
    return whole, whole[:, :, -1:]


@pytest.fixture
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType("flashrnn")
    module.flashrnn = flashrnn
    monkeypatch.setitem(sys.modules, "flashrnn", module)


@pytest.fixture(autouse=True)
def _plain_products() -> Iterator[None]:
    """torch's own half-precision products: oneDNN's take instructions that a virtual machine may claim and not have."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    yield
    torch._C._set_mkldnn_enabled(before)


def build(name: str, shape: Shape, corpus: Corpus, precision: str) -> peers.Eager | peers.Graphed:
    """A peer without the recording, which a CPU cannot make."""
    if name == "lstm-eager":
        return peers.lstm_eager(shape, corpus, CPU, precision)
    made: Any = PEERS[name].build
    trainer: peers.Graphed = made(shape, corpus, CPU, precision, record=False)
    trainer.peer.windows.number.zero_()
    return trainer


@torch.no_grad()
def copy_weights(learner: Learner, peer: peers.Peer) -> None:
    """Copy Unroll's values into a peer: its matrices are transposed, its bias is one of the two, and padding stays."""
    values = learner.model.values(0)
    hidden = peer.shape.hidden

    def put(target: Tensor, value: Tensor) -> None:
        target.zero_()
        target[tuple(slice(n) for n in value.shape)] = value

    recurrent = peer.recurrent
    for layer in range(peer.shape.layers):
        W_x, W_h, b = (values[f"layers.{layer}.{name}"] for name in ("W_x", "W_h", "b"))
        if isinstance(recurrent, peers.FlashRecurrent):
            put(recurrent.above[layer - 1].weight if layer else recurrent.table, W_x.T if layer else W_x)
            put(recurrent.R[layer], W_h.T.reshape(4, 1, hidden, hidden))
            put(recurrent.b[layer], b.view(4, 1, hidden))
        else:
            module, layer_of_module = divmod(layer, recurrent.layers_each)
            for name, value in (("weight_ih", W_x.T), ("weight_hh", W_h.T), ("bias_ih", b), ("bias_hh", b[:0])):
                put(getattr(recurrent.modules_in_order[module], f"{name}_l{layer_of_module}"), value)
        module, layer_of_module = divmod(layer, recurrent.layers_each)
        for index, name in enumerate(("h0", "c0")):
            peer.first[module][index, layer_of_module, 0] = values[f"layers.{layer}.{name}"]
    for index, name in ((0, "dense"), (2, "out")):
        put(peer.head[index].weight, values[f"{name}.W"].T)
        put(peer.head[index].bias, values[f"{name}.b"])


def pair(name: str, shape: Shape, precision: str, rate: float) -> tuple[Learner, peers.Eager | peers.Graphed]:
    corpus = tiny_corpus(shape)
    experiment = shape.experiment(peepholes="off", precision=precision, learning_rate=rate, forget_bias=0.3)
    learner = Learner([experiment], [corpus], engine_of(CPU, "reference"))
    trainer = build(name, shape, corpus, precision)
    copy_weights(learner, trainer.peer)
    return learner, trainer


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("procedure", PROCEDURES)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("name", list(PEERS))
def test_with_equal_weights_a_peers_loss_is_unrolls(name: str, layers: int, procedure: str) -> None:
    shape = tiny_shape(layers=layers, procedure=procedure)
    learner, trainer = pair(name, shape, "float32", rate=1e-30)
    for number in range(4):
        learner.step()
        assert float(trainer.peer.loss().detach()) == pytest.approx(learner.take_losses([0])[0], rel=2e-6), (
            f"batch {number}"
        )


@pytest.mark.parametrize("procedure", PROCEDURES)
@pytest.mark.parametrize("layers", [1, 2])
def test_trained_with_equal_weights_a_peer_stays_with_unroll(layers: int, procedure: str) -> None:
    learner, trainer = pair(
        "lstm-eager", tiny_shape(layers=layers, procedure=procedure), "float64", peers.LEARNING_RATE
    )
    for name, p in trainer.peer.recurrent.named_parameters():
        # Two biases that are added move twice as far as one. Without this the models would differ.
        p.requires_grad_("bias_hh" not in name)
    losses = []
    for _ in range(6):
        learner.step()
        trainer.step()
        losses.append(learner.take_losses([0])[0])
        assert float(trainer.peer.last_loss) == pytest.approx(losses[-1], rel=1e-6)


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("procedure", PROCEDURES)
@pytest.mark.parametrize("name", list(PEERS))
def test_every_peer_learns_in_its_own_precision(name: str, procedure: str) -> None:
    shape = tiny_shape(layers=2, hidden=32, dense=64, rows=8, procedure=procedure)
    corpus = Corpus.from_text("".join(map(chr, range(97, 113))) * 60)
    torch.manual_seed(0)
    trainer = build(name, shape, corpus, PEERS[name].precision)
    losses = []
    for _ in range(150):
        trainer.step()
        losses.append(float(trainer.peer.last_loss))
    assert sum(losses[-5:]) / 5 < losses[0] - 0.2


def test_a_carried_state_goes_on_after_k1_and_begins_again_with_the_epoch() -> None:
    shape = tiny_shape(procedure="conditional")
    peer = build("lstm-eager", shape, tiny_corpus(shape), "float32").peer
    per_epoch = peer.windows.per_epoch
    first = float(peer.loss().detach())
    assert peer.carried[0].abs().sum() > 0
    rest = [float(peer.loss().detach()) for _ in range(per_epoch - 1)]
    assert first not in rest
    assert float(peer.loss().detach()) == first
    assert int(peer.windows.number) == 1


def test_half_precision_weights_are_their_masters_rounded() -> None:
    shape = tiny_shape()
    trainer = build("cudnn-half", shape, tiny_corpus(shape), "float16")
    assert isinstance(trainer, peers.Graphed)
    trainer.step()
    assert {m.dtype for m in trainer.masters} == {torch.float32}
    assert all(torch.equal(p, m.half()) for p, m in zip(trainer.trained, trainer.masters, strict=True))
    assert any(not torch.equal(p.float(), m) for p, m in zip(trainer.trained, trainer.masters, strict=True))


def test_unroll_in_the_race_is_the_learner_of_every_other_command() -> None:
    shape = tiny_shape()
    corpus = tiny_corpus(shape)
    contestant = ContestantBuilder(corpus, CPU, "reference").build(Entry(shape, "unroll-fleet", "float64", 3))
    learner = Learner([shape.experiment(precision="float64")], [corpus], engine_of(CPU, "reference"))
    for _ in range(3):
        contestant.step()
        learner.step()
    assert contestant.kernel == "reference"
    assert contestant.loss() == pytest.approx(learner.look().loss(0), rel=1e-12)


def test_a_recording_is_warmed_up_aside_then_recorded_once_then_only_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    class Stream:
        def __init__(self, name: str = "aside", priority: int = 0) -> None:
            self.name, self.priority = name, priority

        def wait_stream(self, other: Stream) -> None:
            seen.append(f"{self.name} waits for {other.name}")

    class Graph:
        def replay(self) -> None:
            seen.append("replay")

    @contextlib.contextmanager
    def within(what: object, stream: Stream | None = None) -> Iterator[None]:
        ahead = " ahead of others" if stream is not None and stream.priority < 0 else ""
        seen.append(f"in {getattr(what, 'name', type(what).__name__)}{ahead}")
        yield
        seen.append("out")

    main = Stream("main")
    for name, stand_in in {
        "Stream": Stream,
        "CUDAGraph": Graph,
        "stream": within,
        "graph": within,
        "device": contextlib.nullcontext,
        "current_stream": lambda: main,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    replaying = replay.replayed(lambda: seen.append("step"), torch.device("cuda", 0))
    replaying()
    warm = ["in aside", *["step"] * replay.WARM_UP, "out"]
    assert seen == [
        "aside waits for main",
        *warm,
        "main waits for aside",
        "in Graph ahead of others",
        "step",
        "out",
        "replay",
    ]
