"""From a torch module to a run: a folder that loads, predicts and samples as any other.

What `to_torch` made comes back to the last bit. Of models that others made, the parts are given: recurrent layers, a
decoder, an embedding. What our model cannot represent is refused, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from unroll.base.errors import ConfigurationError
from unroll.base.version import VERSION
from unroll.corpus.tokens import Vocabulary
from unroll.engines import devices
from unroll.experiment import corpus_place
from unroll.experiment.experiment import Experiment, write_toml
from unroll.experiment.scheme import Scheme
from unroll.model.precisions import PRECISIONS
from unroll.runs.exchange.parts import Parts
from unroll.runs.exchange.sequence_model import SequenceModel
from unroll.runs.folder import RunFolder
from unroll.runs.loaded import Run, load

ORIGIN = "torch"  # what status.json says of where the weights are from


def from_torch(
    module: nn.Module,
    vocabulary: Vocabulary | Sequence[str] | Mapping[str, int] | None = None,
    *,
    out: str | Path,
    decoder: nn.Module | None = None,
    embedding: nn.Embedding | None = None,
    scheme: Scheme | None = None,
    kind: str = "chars",
) -> Run:
    """A run in the new folder `out`, with the weights of a torch module.

    `module` is what `to_torch` made; or it is an nn.LSTM, nn.GRU or nn.RNN. Then `decoder` maps h to logits (an
    nn.Linear, or two of them with a ReLU or leaky ReLU between); `embedding` is what tokens pass through first, if
    anything; `vocabulary` is the symbols in id order, or a dictionary from symbols to ids; `kind` says what a symbol
    is; and `scheme` says how the run samples, with which k2.
    """
    if isinstance(module, SequenceModel):
        given = {"vocabulary": vocabulary, "decoder": decoder, "embedding": embedding, "scheme": scheme}
        if extra := [name for name, value in given.items() if value is not None]:
            raise ConfigurationError(
                f"A module that to_torch made holds all that it needs. Leave out {', '.join(extra)}."
            )
        values = module.values()
        experiment, vocabulary = module.experiment, module.vocabulary
    else:
        _require_layers(module)
        assert isinstance(module, nn.RNNBase)
        if vocabulary is None or decoder is None:
            raise ConfigurationError(
                "Recurrent layers alone are no model. Give vocabulary, the symbols in id order, and decoder, the "
                "nn.Linear that makes logits of h."
            )
        vocabulary = as_vocabulary(vocabulary, kind)
        parts = Parts.of(module, decoder, embedding, len(vocabulary))
        experiment, values = parts.as_run(scheme or Scheme(), kind)
    return _written(experiment, vocabulary, values, out)


def as_vocabulary(symbols: Vocabulary | Sequence[str] | Mapping[str, int], kind: str) -> Vocabulary:
    """A vocabulary from what people have: symbols in id order, or a dictionary from symbols to ids."""
    if isinstance(symbols, Vocabulary):
        return symbols
    if isinstance(symbols, Mapping):
        ids = sorted(symbols.values())
        if ids != list(range(len(ids))):
            raise ConfigurationError(f"The ids of a vocabulary must be 0 to {len(ids) - 1}, each once. Got {ids[:9]}…")
        symbols = sorted(symbols, key=symbols.__getitem__)
    return Vocabulary.from_json(json.dumps({"kind": kind, "symbols": list(symbols)}), "the vocabulary")


def _require_layers(module: nn.Module) -> None:
    """A whole model of somebody's own says in its `forward` what it computes, and that cannot be read off it."""
    if isinstance(module, nn.RNNBase):
        return
    parts = [
        (name, part) for name, part in module.named_modules() if isinstance(part, nn.RNNBase | nn.Linear | nn.Embedding)
    ]
    held = ", ".join(f"{name} ({type(part).__name__})" for name, part in parts) if isinstance(module, nn.Module) else ""
    raise ConfigurationError(
        f"A module must be what to_torch made, or an nn.LSTM, nn.GRU or nn.RNN. Got {type(module).__name__}"
        + (f", which holds {held}. Give its parts: " if held else ". Give the parts of a model: ")
        + "from_torch(model.lstm, symbols, decoder=model.linear, embedding=model.embedding, out=…)."
    )


def _written(experiment: Experiment, vocabulary: Vocabulary, values: Mapping[str, Tensor], out: str | Path) -> Run:
    """The run's folder, and the run read from it."""
    # A module that to_torch made may be in half precision by now, which is exact in float32.
    widest = torch.float64 if any(v.dtype == torch.float64 for v in values.values()) else torch.float32
    if PRECISIONS[experiment.precision].kept != widest:
        experiment = replace(experiment, precision=str(widest).removeprefix("torch."))
    weights = {name: value.to(widest).clone(memory_format=torch.contiguous_format) for name, value in values.items()}
    if wrong := [name for name, value in weights.items() if not torch.isfinite(value).all()]:
        raise ConfigurationError(
            f"These weights are not all finite: {', '.join(wrong)}. Bring in a model that is whole."
        )
    folder = RunFolder(out)
    folder.make()
    with folder.locked():
        folder.describe(experiment, vocabulary)
        folder.finish(weights, _facts(experiment, vocabulary), _status(experiment))
    return load(out)


def _facts(experiment: Experiment, vocabulary: Vocabulary) -> dict[str, str]:
    """What the weights carry, as after a training of no batches."""
    return {
        "identity": experiment.identity,
        "run": write_toml(corpus_place.nameless(experiment)),
        "vocabulary": vocabulary.digest,
        "seconds": "0.0",
        "evaluating": "0.0",
        "origin": ORIGIN,
    }


def _status(experiment: Experiment) -> dict[str, object]:
    device = devices.find("cpu")
    return {
        "state": "finished",
        "batch": 0,
        "batches": experiment.batches,
        "seconds": 0.0,
        "evaluating": 0.0,
        "fleet": 1,
        "identity": experiment.identity,
        "device": devices.describe(device),
        "kernel": experiment.kernel,
        "threads": experiment.threads or torch.get_num_threads(),
        "torch": torch.__version__,
        "unroll": VERSION,
        "origin": ORIGIN,
    }
