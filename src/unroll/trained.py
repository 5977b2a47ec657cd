"""What one does with a run: load it, measure its perplexity, draw from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unroll import cells, devices, kernels, midi, plugins, precisions, randomness
from unroll.corpus import Corpus
from unroll.decoding import Decoding
from unroll.errors import ConfigurationError, CorpusError, RunError
from unroll.evaluation import Perplexity, perplexities, token_nll
from unroll.experiment import SEEDS, Experiment
from unroll.generation import generate
from unroll.initialisation import parameter_shapes
from unroll.kernels import States
from unroll.model import Model
from unroll.run import RunFolder
from unroll.tokens import Vocabulary

DIVERGED = "The model gives no finite probabilities: its weights have diverged. Choose another run."


@dataclass(frozen=True)
class Run:
    """A trained (or half-trained) run, read from its folder."""

    folder: RunFolder
    experiment: Experiment
    vocabulary: Vocabulary
    status: dict[str, Any]
    metrics: list[dict[str, Any]]
    model: Model
    carried: States | None  # the last carried states, a row each; None where states are learned
    notes: tuple[str, ...]

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self.folder.path

    @cached_property
    def corpus(self) -> Corpus:
        """The corpus it was trained on, if that is still where it was."""
        e = self.experiment
        advice = f"The corpus of {self.path} is not at hand. Give a text with --corpus, or a --prompt."
        try:
            corpus = Corpus.named(e)
        except CorpusError as error:
            raise RunError(f"{advice} ({error})") from None
        if corpus.sha256 != e.sha256:
            raise RunError(f"{advice} ({e.corpus} holds another text now.)")
        return corpus


@dataclass(frozen=True)
class Sample:
    """A drawn text."""

    text: str
    tokens: list[int]
    logprobs: list[float]
    procedure: str
    seed: int


def load(path: str | Path, device: str = "auto") -> Run:
    """Read a run: its weights if it has ended, else its newest whole checkpoint."""
    folder = RunFolder(path)
    experiment, vocabulary = folder.experiment, folder.vocabulary
    notes: list[str] = []
    if (folder.path / "weights.safetensors").exists():
        from unroll.durable import unseal

        tensors, _ = unseal(folder.path / "weights.safetensors")
    else:
        newest = next(folder.good_checkpoints(notes), None)
        if newest is None:
            raise RunError(f"{path} holds neither weights.safetensors nor a whole checkpoint: nothing was trained yet.")
        tensors = newest.tensors
        notes.append(f"This run has not ended: its weights are those of batch {newest.batch:,}.")
    where = torch.device("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else devices.find(device)
    shapes = parameter_shapes(experiment, cells.load(experiment.cell, experiment.peepholes), len(vocabulary))
    if experiment.scheme.carries:
        states = cells.load(experiment.cell, experiment.peepholes).STATES
        row = (experiment.rows, experiment.hidden)
        shapes |= {f"carried.{layer}.{s}": row for layer in range(experiment.layers) for s in states}
    wrong = [
        f"{name} in the weights of {path} must be {list(shape)}. "
        f"Got {list(tensors[name].shape) if name in tensors else 'nothing'}."
        for name, shape in shapes.items()
        if name not in tensors or tuple(tensors[name].shape) != shape
    ]
    if wrong:
        raise RunError(*wrong)
    computed = experiment
    if precisions.why_not(experiment.precision, where):
        computed = replace(experiment, precision="float32")
        notes.append(f"It was trained in {experiment.precision}, which this device lacks: here it computes in float32.")
    kernel = kernels.choose(devices.outline(computed), where)
    model = Model.stacked([computed], [len(vocabulary)], [tensors], where, kernel)
    carried = None
    if experiment.scheme.carries:
        carried = tuple(
            tuple(tensors[f"carried.{layer}.{s}"].unsqueeze(0).to(where, model.dtype) for s in model.cell.STATES)
            for layer in range(experiment.layers)
        )
    return Run(folder, experiment, vocabulary, folder.status, folder.metrics, model, carried, tuple(notes))


def perplexity(
    run: Run,
    sample: str | None = None,
    corpus: Corpus | str | Path | None = None,
    start: str = "first",
    test_tokens: int | None = None,
    between: Callable[[], None] = lambda: None,
) -> list[Perplexity]:
    """The perplexity of a run on its test set, or on another corpus taken whole.

    `sample` is the procedure (the scheme's own by default). `start` is `first`, for one number, or `carried`, for one
    a row of the carried states that the run ended with.
    """
    if start not in ("first", "carried"):
        raise ConfigurationError(f"start must be first or carried. Got {start!r}.")
    if start == "carried" and run.carried is None:
        raise ConfigurationError(
            "--start carried needs a run with a carried state (scheme 4); this one learned its first state."
        )
    procedure = procedure_of(run, sample)
    if start == "carried" and procedure != "progressive":
        raise ConfigurationError(
            "--start carried is for progressive: a window begins at the first state by definition."
        )
    if test_tokens is not None and test_tokens < 1:
        raise ConfigurationError(f"test_tokens must be at least 1. Got {test_tokens}.")
    first = run.carried if start == "carried" else None
    ids = torch.from_numpy(text_ids(run, corpus)[:test_tokens].astype(np.int64)).to(run.model.device)
    (nll,) = token_nll(run.model, [ids], run.experiment.scheme.k2, procedure, first, between)
    return perplexities(nll)


def procedure_of(run: Run, sample: str | None) -> str:
    """The procedure asked for, or the scheme's own."""
    procedure = sample or run.experiment.scheme.sample
    wrong = plugins.problem("unroll.samplers", procedure, "sample")
    if wrong:
        raise ConfigurationError(wrong)
    return procedure


def text_ids(run: Run, corpus: Corpus | str | Path | None) -> np.ndarray[Any, Any]:
    """The ids to score: the run's own test set, or another corpus whole, read with the run's vocabulary."""
    text = run.corpus if corpus is None else read_as(run, corpus)
    ids = text.test_ids(run.experiment.split_seed) if text.sha256 == run.experiment.sha256 else text.ids
    return run.vocabulary.translate(ids, text.vocabulary)


def read_as(run: Run, corpus: Corpus | str | Path) -> Corpus:
    """A text, read as the run's own corpus was; but rare symbols that the run knows are kept."""
    e = run.experiment
    if isinstance(corpus, Corpus):
        return corpus
    return Corpus.open(str(corpus), e.kind, e.encoding, 1, e.ext, e.exclude, e.ascii)


def sample(
    run: Run,
    prompt: str | None = None,
    length: int = 500,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    sample: str | None = None,
) -> Sample:
    """Draw `length` tokens after a prompt; the same seed gives the same text."""
    decoding = Decoding(temperature, top_k, top_p)
    drawn = list(stream(run, prompt, length, decoding, seed, sample))
    ids, logprobs = [i for i, _ in drawn], [p for _, p in drawn]
    procedure = sample or run.experiment.scheme.sample
    return Sample(run.vocabulary.decode(np.array(ids, np.int64)), ids, logprobs, procedure, seed)


def stream(
    run: Run, prompt: str | None, length: int, decoding: Decoding, seed: int = 0, sample: str | None = None
) -> Iterator[tuple[int, float]]:
    """The same, a token at a time: its id and its log-probability."""
    problems = []
    if length < 1:
        problems.append(f"length must be at least 1. Got {length}.")
    if not 0 <= seed < SEEDS:
        problems.append(f"seed must be between 0 and 2^63 − 1. Got {seed}.")
    procedure = sample or run.experiment.scheme.sample
    problems += filter(None, [plugins.problem("unroll.samplers", procedure, "sample")])
    if prompt == "":
        problems.append("The prompt is empty. Leave --prompt out to start from a stretch of the test set.")
    if problems:
        raise ConfigurationError(*problems)
    ids = seed_sequence(run, seed) if prompt is None else prompt_ids(run, prompt)
    prompts_BN = torch.from_numpy(ids.astype(np.int64)).to(run.model.device).unsqueeze(0)
    drawing = generate(run.model, prompts_BN, run.experiment.scheme.k2, procedure, decoding, [seed])
    for drawn, _ in zip(drawing, range(length), strict=False):
        (token,), (logprob,) = drawn.ids, drawn.logprobs
        if not math.isfinite(logprob):
            raise RunError(DIVERGED)
        yield token, logprob


def prompt_ids(run: Run, prompt: str) -> np.ndarray[Any, Any]:
    """A prompt's ids; notes may be given by name (C4 E4 G4), by number, or as a MIDI file."""
    if run.vocabulary.kind == "words" and f" {prompt.split(' ')[0]}" in run.vocabulary.symbols:
        # A word has the space before it: at the start of a prompt it is meant as it stands inside a text.
        return run.vocabulary.encode(f" {prompt}")
    if run.vocabulary.kind != "notes":
        return run.vocabulary.encode(prompt)
    is_file = prompt.lower().endswith(midi.SUFFIXES) and Path(prompt).is_file()
    pitches = midi.read_notes(prompt) if is_file else midi.parse_notes(prompt)
    return run.vocabulary.encode(" ".join(str(pitch) for pitch in pitches))


def seed_sequence(run: Run, seed: int) -> np.ndarray[Any, Any]:
    """k2 tokens of the test set at a seeded offset, as the paper bootstraps its samples."""
    test, k2 = run.corpus.test_ids(run.experiment.split_seed), run.experiment.scheme.k2
    offset = randomness.below(seed, "seed sequence", 0, len(test) - k2 + 1)
    return test[offset : offset + k2]
