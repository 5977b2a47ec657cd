"""A loaded run: read from its folder, and asked for its perplexity."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from unroll.base import plugins
from unroll.base.errors import ConfigurationError, CorpusError, RunError
from unroll.corpus import parts
from unroll.corpus.corpus import Corpus
from unroll.corpus.tokens import Ids, Vocabulary
from unroll.engines import devices, kernels, precisions
from unroll.engines.choice import engine_of
from unroll.experiment import provenance
from unroll.experiment.experiment import Experiment
from unroll.model import cells
from unroll.model.initial_values import parameter_shapes
from unroll.model.model import Model
from unroll.model.network import States
from unroll.runs import card, curve, metric_lines, selection
from unroll.runs.checkpoints import BEST_BATCH
from unroll.runs.folder import RunFolder
from unroll.runs.known_text import KnownText, known_text
from unroll.runs.perplexities import Perplexity, perplexities, token_nll

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Run:
    """A trained (or half-trained) run, read from its folder."""

    folder: RunFolder
    experiment: Experiment
    vocabulary: Vocabulary
    status: dict[str, Any]
    metrics: list[dict[str, Any]]  # a line an evaluation, with flat columns as well: `pandas.DataFrame(run.metrics)`
    model: Model
    carried: States | None  # the last carried states, a row each; None where states are learned
    notes: tuple[str, ...]
    weights: str = selection.LAST  # or best

    def __repr__(self) -> str:
        return card.line(self)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return card.page(self)

    @cached_property
    def card_text(self) -> str:
        """The short text on the card, drawn once."""
        return card.sample_text(self)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the perplexity curve, on axes of matplotlib's or on new ones, and return the axes."""
        return curve.plot(self.experiment, self.status, self.metrics, ax)

    @property
    def best(self) -> selection.Best | None:
        """The best evaluation so far: its batch, its perplexity, and the set that it was chosen on."""
        return selection.best(self.metrics, self.experiment)

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.folder.path

    @cached_property
    def corpus(self) -> Corpus:
        """The corpus that the run was trained on, if it is still there."""
        e = self.experiment
        advice = f"The corpus of {self.path} is not at hand. Bring it back, or give --corpus or --prompt if you can."
        if not e.corpus:
            raise RunError(f"{advice} (It was trained on a text that was in memory only.)")
        try:
            corpus = Corpus.named(e, self.vocabulary)
        except CorpusError as error:
            raise RunError(f"{advice} ({error})") from None
        if corpus.sha256 != e.sha256:
            raise RunError(f"{advice} ({e.corpus} holds another text now.)")
        for words in parts.changed(corpus, e):
            raise RunError(f"{advice} ({words})")
        return corpus


def require_run(run: object) -> None:
    """Refuse anything but a loaded run: giving a folder's path instead is an easy slip."""
    if not isinstance(run, Run):
        raise ConfigurationError(f"A run is what unroll.load(FOLDER) reads. Got {run!r}.")


def load(path: str | Path | Run, device: str = "auto", weights: str = selection.LAST) -> Run:
    """Read a run: its weights if it has ended, else its newest whole checkpoint.

    With weights="best" they are those of its best evaluation: by the validation set, or chosen on the test set where
    there is none.
    """
    if weights not in selection.WEIGHTS:
        raise ConfigurationError(f"weights must be one of {', '.join(selection.WEIGHTS)}. Got {weights!r}.")
    path = path.path if isinstance(path, Run) else path
    if not isinstance(path, str | os.PathLike):
        raise ConfigurationError(f"A run is read from its folder's path. Got {path!r}.")
    folder = RunFolder(path)
    experiment = folder.experiment
    vocabulary = folder.vocabulary
    notes: list[str] = []
    if folder.has_weights():
        tensors, facts = folder.weights() if weights == selection.LAST else folder.best_weights()
    else:
        newest = next(folder.good_checkpoints(notes, goes_on=False), None)
        if newest is None:
            missing = f"{path} holds neither weights.safetensors nor a whole checkpoint"
            raise RunError(*notes, f"{missing}." if notes else f"{missing}: nothing was trained yet.")
        tensors = newest.last if weights == selection.LAST else newest.best
        facts = newest.facts
        if not tensors:
            raise RunError(
                f"{path} has no best weights yet: no evaluation was finite, or a version that kept none trained it. "
                "Use the last weights, with --weights last."
            )
        what = "its weights are those of" if weights == selection.LAST else "these were its best weights at"
        notes.append(f"This run has not ended: {what} batch {newest.batch:,}.")
    folder.require_vocabulary(facts)
    _, changes = folder.described()
    if changes:
        notes.append(f"{folder.path / 'run.toml'} was changed after the training: {'; '.join(changes)}.")
    if "run" in facts:
        notes += provenance.changes(facts["run"], experiment)
    status = folder.status
    if status["state"] == "stopped":
        kept = f" These are the weights of batch {status['batch']:,}." if weights == selection.LAST else ""
        notes.append(f"Training stopped early. {status.get('reason', '')}{kept}")
    elif status.get("reason"):
        notes.append(f"Training ended early. {status['reason']}")
    where = devices.find(devices.best() if device == "auto" else device)
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
    if precisions.why_not(experiment.precision, where) or not kernels.best(devices.outline(experiment), where):
        computed = replace(experiment, precision="float32")
        notes.append(f"It was trained in {experiment.precision}, which is not to be had here: it computes in float32.")
    kernel = kernels.choose(devices.outline(computed), where)
    model = Model.stacked([computed], [len(vocabulary)], [tensors], engine_of(where, kernel))
    carried = None
    if experiment.scheme.carries:
        carried = tuple(
            tuple(tensors[f"carried.{layer}.{s}"].unsqueeze(0).to(where, model.dtype) for s in model.cell.STATES)
            for layer in range(experiment.layers)
        )
    metrics = [metric_lines.flat(line) for line in folder.metrics]
    if weights == selection.BEST:
        # Of a run that was killed there may be later evaluations than those that its last checkpoint knows.
        batch = int(facts.get(BEST_BATCH) or facts["batch"])
        notes.append(
            f"These are the best weights: {selection.at_batch(metrics, experiment, batch) or f'batch {batch}'}."
        )
    return Run(folder, experiment, vocabulary, status, metrics, model, carried, tuple(notes), weights)


def perplexity(
    run: Run,
    sample: str | None = None,
    corpus: Corpus | str | Path | None = None,
    start: str = "first",
    test_tokens: int | None = None,
    between: Callable[[], None] = lambda: None,
    unknown: str = "refuse",
) -> list[Perplexity]:
    """The perplexity of a run on its test set, or on another corpus taken whole.

    `sample` is the procedure (the scheme's own by default). `start` is `first`, for one number, or `carried`, for one
    a row of the carried states that the run ended with. `unknown="skip"` leaves out what the run does not know.
    """
    require_run(run)
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
    ids = torch.from_numpy(read_text(run, corpus, unknown).ids[:test_tokens].astype(np.int64)).to(run.model.device)
    (nll,) = token_nll(run.model, [ids], run.experiment.scheme.k2, procedure, first, between)
    return perplexities(nll)


def procedure_of(run: Run, sample: str | None) -> str:
    """The procedure that was asked for, or the scheme's own."""
    procedure = sample or run.experiment.scheme.sample
    wrong = plugins.problem("conditioning", procedure, "sample")
    if wrong:
        raise ConfigurationError(wrong)
    return procedure


def text_ids(run: Run, corpus: Corpus | str | Path | None) -> np.ndarray[Any, Any]:
    """The ids to score: the run's own test set; of another corpus its test file, or else all of it."""
    text, ids = _scored(run, corpus)
    return run.vocabulary.translate(ids, text.vocabulary)


def read_text(run: Run, corpus: Corpus | str | Path | None, unknown: str = "refuse") -> KnownText:
    """The same ids, with those that the run does not know refused or left out."""
    text, ids = _scored(run, corpus)
    return known_text(run.vocabulary, ids, text.vocabulary, unknown)


def _scored(run: Run, corpus: Corpus | str | Path | None) -> tuple[Corpus, Ids]:
    text = run.corpus if corpus is None else read_as(run, corpus)
    return text, text.test_ids(run.experiment.split_seed) if scores_test_set(run, text) else text.ids


def scores_test_set(run: Run, text: Corpus) -> bool:
    """Whether only a text's test set is scored: of the run's own text, and of one with a test file."""
    if text.test_part or run.experiment.test_file_sha256:
        return text.test_part is not None
    return text.sha256 == run.experiment.sha256


def read_as(run: Run, corpus: Corpus | str | Path) -> Corpus:
    """Read a text as the run's own corpus was read, but keep rare symbols that the run knows."""
    e = run.experiment
    if isinstance(corpus, Corpus):
        return corpus
    # Nobody chose the run's kind for another folder, which must therefore be of that kind clearly.
    trained_on = os.path.realpath(corpus) == e.corpus
    return Corpus.open(
        str(corpus), e.kind, e.encoding, 1, e.ext, e.exclude, e.ascii, separator=e.separator, asked=trained_on
    )
