"""Unroll: recurrent models of discrete sequences, under explicit schemes.

The names below appear in the order in which data flows. They are loaded when first used, so that `unroll --help` does
not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from unroll.base.version import VERSION as __version__

if TYPE_CHECKING:
    from unroll.base.errors import Interrupted, UnrollError
    from unroll.base.plugins import register
    from unroll.corpus.corpus import Corpus
    from unroll.experiment.decoding import Decoding
    from unroll.experiment.experiment import PRESETS, Experiment
    from unroll.experiment.grids import grid
    from unroll.experiment.scheme import SCHEMES, Scheme
    from unroll.runs.drift import Drift, perplexity_since_reset
    from unroll.runs.exchange.from_torch import from_torch
    from unroll.runs.exchange.onnx_file import to_onnx
    from unroll.runs.exchange.recurrent import Recurrent
    from unroll.runs.exchange.sequence_model import SequenceModel, to_torch
    from unroll.runs.hidden_states import HiddenStates, hidden_states
    from unroll.runs.loaded import Run, load, perplexity
    from unroll.runs.memorisation import Memorised, memorised
    from unroll.runs.perplexities import Perplexity
    from unroll.runs.scoring import Scored, score, surprisals
    from unroll.sampling.api import Request, Sample, Token, sample, sample_all, stream
    from unroll.sweep.advice.advise import advise
    from unroll.sweep.advice.shown import Advice
    from unroll.sweep.comparison.compare import compare
    from unroll.sweep.comparison.shown import Comparison
    from unroll.sweep.sweep import train_all
    from unroll.training.events import Ended, Evaluated, Evaluating, Resumed, Stepped, Warned
    from unroll.training.from_weights import train_from
    from unroll.training.loop import resume, train, train_fleet

_HOMES = {
    "Scheme": "experiment.scheme",
    "SCHEMES": "experiment.scheme",
    "Experiment": "experiment.experiment",
    "PRESETS": "experiment.experiment",
    "grid": "experiment.grids",
    "Corpus": "corpus.corpus",
    "train": "training.loop",
    "resume": "training.loop",
    "Stepped": "training.events",
    "Evaluated": "training.events",
    "Evaluating": "training.events",
    "Resumed": "training.events",
    "Ended": "training.events",
    "Warned": "training.events",
    "train_fleet": "training.loop",
    "train_from": "training.from_weights",
    "train_all": "sweep.sweep",
    "compare": "sweep.comparison.compare",
    "Comparison": "sweep.comparison.shown",
    "advise": "sweep.advice.advise",
    "Advice": "sweep.advice.shown",
    "Run": "runs.loaded",
    "load": "runs.loaded",
    "Perplexity": "runs.perplexities",
    "perplexity": "runs.loaded",
    "Drift": "runs.drift",
    "perplexity_since_reset": "runs.drift",
    "Decoding": "experiment.decoding",
    "Request": "sampling.api",
    "Sample": "sampling.api",
    "Token": "sampling.api",
    "sample": "sampling.api",
    "sample_all": "sampling.api",
    "stream": "sampling.api",
    "Memorised": "runs.memorisation",
    "memorised": "runs.memorisation",
    "score": "runs.scoring",
    "surprisals": "runs.scoring",
    "Scored": "runs.scoring",
    "HiddenStates": "runs.hidden_states",
    "hidden_states": "runs.hidden_states",
    "SequenceModel": "runs.exchange.sequence_model",
    "to_torch": "runs.exchange.sequence_model",
    "from_torch": "runs.exchange.from_torch",
    "to_onnx": "runs.exchange.onnx_file",
    "Recurrent": "runs.exchange.recurrent",
    "register": "base.plugins",
    "UnrollError": "base.errors",
    "Interrupted": "base.errors",
}

__all__ = [
    "PRESETS",
    "SCHEMES",
    "Advice",
    "Comparison",
    "Corpus",
    "Decoding",
    "Drift",
    "Ended",
    "Evaluated",
    "Evaluating",
    "Experiment",
    "HiddenStates",
    "Interrupted",
    "Memorised",
    "Perplexity",
    "Recurrent",
    "Request",
    "Resumed",
    "Run",
    "Sample",
    "Scheme",
    "Scored",
    "SequenceModel",
    "Stepped",
    "Token",
    "UnrollError",
    "Warned",
    "__version__",
    "advise",
    "compare",
    "from_torch",
    "grid",
    "hidden_states",
    "load",
    "memorised",
    "perplexity",
    "perplexity_since_reset",
    "register",
    "resume",
    "sample",
    "sample_all",
    "score",
    "stream",
    "surprisals",
    "to_onnx",
    "to_torch",
    "train",
    "train_all",
    "train_fleet",
    "train_from",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'unroll' has no attribute {name!r}")
    return getattr(importlib.import_module(f"unroll.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
