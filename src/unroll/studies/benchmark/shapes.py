"""What is trained: an architecture under a training procedure.

Shapes: T time, B rows, K scored positions, H hidden, D dense, V vocabulary.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from unroll.base.errors import ConfigurationError
from unroll.corpus.corpus import Corpus
from unroll.experiment.experiment import Experiment
from unroll.experiment.scheme import TRAINING_PROCEDURES, Scheme

ARCHITECTURES = ("1x128", "1x512", "2x128", "2x512")
VOCABULARY = 85
TOKENS = 2_000_000
BATCHES = 100_000  # more than anybody measures: a run that ended would be timed all the same, but prove less


@dataclass(frozen=True)
class Shape:
    """Everything that the time of a training step depends on, but for who takes it."""

    layers: int = 1
    hidden: int = 512
    procedure: str = "multi-loss"
    k1: int = 40
    k2: int = 100
    rows: int = 64
    dense: int = 1024
    vocabulary: int = VOCABULARY

    @property
    def architecture(self) -> str:
        """As `--architectures` names it: layers × γ."""
        return f"{self.layers}x{self.hidden}"

    @property
    def scheme(self) -> Scheme:
        """The training procedure with its k1 and k2."""
        loss, state = TRAINING_PROCEDURES[self.procedure]
        sample = "progressive" if state == "carried" else "windowed"
        return Scheme(loss=loss, state=state, sample=sample, k1=self.k1, k2=self.k2)

    def experiment(self, **settings: Any) -> Experiment:
        """The same in Unroll's own words."""
        return Experiment(
            scheme=self.scheme,
            batches=BATCHES,
            layers=self.layers,
            hidden=self.hidden,
            rows=self.rows,
            dense=self.dense,
            **settings,
        )


def parse_architecture(text: str) -> tuple[int, int]:
    """Layers and γ.

    >>> parse_architecture("2x512")
    (2, 512)
    """
    match = re.fullmatch(r"([1-9]\d?)[x×]([1-9]\d{0,4})", text.strip())
    if not match:
        raise ConfigurationError(
            f"An architecture is layers x hidden, as in {', '.join(ARCHITECTURES)}. Got {text!r}. Set --architectures."
        )
    return int(match[1]), int(match[2])


def random_corpus(vocabulary: int = VOCABULARY, tokens: int = TOKENS) -> Corpus:
    """A text in which every symbol occurs; what it says does not matter for speed, but it must not be all alike."""
    generator = np.random.default_rng(0)
    ids = generator.integers(vocabulary, size=tokens)
    ids[:vocabulary] = np.arange(vocabulary)
    return Corpus.from_text("".join(map(chr, (ids + ord("!")).tolist())), name="random")
