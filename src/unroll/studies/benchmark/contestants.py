"""Unroll and its peers behind one `step()`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from unroll.corpus.corpus import Corpus
from unroll.engines import devices
from unroll.engines.choice import engine_of
from unroll.studies.benchmark import peers
from unroll.studies.benchmark.shapes import Shape
from unroll.training.learner import Learner

Build = Callable[[Shape, Corpus, torch.device, str], peers.Eager | peers.Graphed]


class PeerKind(NamedTuple):
    """One way to train without Unroll: its title, how to build it, and where it runs."""

    title: str
    build: Build
    precision: str
    on_cpu: bool


PEERS = {
    "lstm-eager": PeerKind("nn.LSTM, eager", peers.lstm_eager, "float32", True),
    "lstm-graphed": PeerKind("nn.LSTM, graphed", peers.lstm_graphed, "tf32", False),
    "cudnn-half": PeerKind("cuDNN half, padded, graphed", peers.cudnn_half, "float16", False),
    "flashrnn": PeerKind("flashrnn, graphed", peers.flash, "bfloat16", False),
}
UNROLL = {"unroll": "Unroll, alone", "unroll-fleet": "Unroll, fleet"}
TITLES = UNROLL | {name: kind.title for name, kind in PEERS.items()}


@dataclass(frozen=True)
class Entry:
    """A contestant that will be timed on a shape."""

    shape: Shape
    contestant: str
    precision: str
    runs: int = 1

    @property
    def label(self) -> str:
        """What `--only` is matched against."""
        size = f" {self.runs}" if self.contestant == "unroll-fleet" else ""
        return f"{self.shape.architecture} {self.shape.procedure} {self.contestant}{size} {self.precision}"


class ReadyContestant(NamedTuple):
    """A contestant that is ready."""

    step: Callable[[], None]
    loss: Callable[[], float | None]
    kernel: str


class ContestantBuilder:
    """Builds contestants, and holds what they share."""

    def __init__(self, corpus: Corpus, device: torch.device, kernel: str = "auto") -> None:
        self.corpus = corpus
        self.device = device
        self.kernel = kernel

    def build(self, entry: Entry) -> ReadyContestant:
        """Build a contestant, with its weights drawn and its data on the device."""
        if entry.contestant in UNROLL:
            return self._unroll(entry)
        trainer = PEERS[entry.contestant].build(entry.shape, self.corpus, self.device, entry.precision)
        kernel = "flashrnn" if entry.contestant == "flashrnn" else "torch" if devices.is_host(self.device) else "cuDNN"
        return ReadyContestant(trainer.step, lambda: float(trainer.peer.last_loss), kernel)

    def _unroll(self, entry: Entry) -> ReadyContestant:
        # One seed, so that starting values are drawn once; different splits, so that no two runs read the same tokens.
        settings = {"precision": entry.precision, "device": str(self.device), "kernel": self.kernel}
        runs = [devices.resolve(entry.shape.experiment(split_seed=m, **settings)) for m in range(entry.runs)]
        learner = Learner(runs, [self.corpus] * entry.runs, engine_of(self.device, runs[0].kernel))
        return ReadyContestant(learner.step, lambda: learner.look().loss(0), learner.engine.kernel)
