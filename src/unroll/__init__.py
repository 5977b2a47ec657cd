"""Unroll: recurrent models of discrete sequences, under explicit schemes.

The names below appear in the order in which data flows. They are loaded when first used, so that `unroll --help` does
not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from unroll.version import VERSION as __version__

if TYPE_CHECKING:
    from unroll.corpus import Corpus
    from unroll.decoding import Decoding
    from unroll.drift import Drift, perplexity_since_reset
    from unroll.errors import UnrollError
    from unroll.evaluation import Perplexity
    from unroll.experiment import PRESETS, Experiment
    from unroll.grids import grid
    from unroll.memorisation import Memorised, memorised
    from unroll.sampling import Request, Sample, Token, sample, sample_all, stream
    from unroll.scheme import SCHEMES, Scheme
    from unroll.scoring import Scored, score, surprisals
    from unroll.sweep import train_all
    from unroll.trained import Run, load, perplexity
    from unroll.training import train, train_fleet

_HOMES = {
    "Scheme": "scheme",
    "SCHEMES": "scheme",
    "Experiment": "experiment",
    "PRESETS": "experiment",
    "grid": "grids",
    "Corpus": "corpus",
    "train": "training",
    "train_fleet": "training",
    "train_all": "sweep",
    "Run": "trained",
    "load": "trained",
    "Perplexity": "evaluation",
    "perplexity": "trained",
    "Drift": "drift",
    "perplexity_since_reset": "drift",
    "Decoding": "decoding",
    "Request": "sampling",
    "Sample": "sampling",
    "Token": "sampling",
    "sample": "sampling",
    "sample_all": "sampling",
    "stream": "sampling",
    "Memorised": "memorisation",
    "memorised": "memorisation",
    "score": "scoring",
    "surprisals": "scoring",
    "Scored": "scoring",
    "UnrollError": "errors",
}

__all__ = [
    "PRESETS",
    "SCHEMES",
    "Corpus",
    "Decoding",
    "Drift",
    "Experiment",
    "Memorised",
    "Perplexity",
    "Request",
    "Run",
    "Sample",
    "Scheme",
    "Scored",
    "Token",
    "UnrollError",
    "__version__",
    "grid",
    "load",
    "memorised",
    "perplexity",
    "perplexity_since_reset",
    "sample",
    "sample_all",
    "score",
    "stream",
    "surprisals",
    "train",
    "train_all",
    "train_fleet",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'unroll' has no attribute {name!r}")
    return getattr(importlib.import_module(f"unroll.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
