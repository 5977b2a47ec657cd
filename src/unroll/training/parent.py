"""A run whose weights another run begins from: what is read of it, what the new run takes over, what may not differ.

The weights imply their shape and their vocabulary: those are the parent's. Its scheme, optimiser and settings of
training are the defaults of the new run. The length, the evaluations, the machine and what is about the text are not
taken over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from unroll.base.errors import ConfigurationError, RunError
from unroll.corpus.tokens import Vocabulary
from unroll.experiment.experiment import Experiment, from_options
from unroll.experiment.scheme import Scheme
from unroll.experiment.settings import settings_of
from unroll.model import cells, optimisers
from unroll.model.initial_values import parameter_shapes
from unroll.runs import selection
from unroll.runs.checkpoints import BEST_BATCH, Checkpoint
from unroll.runs.folder import RunFolder

if TYPE_CHECKING:
    from torch import Tensor

OptimiserState = Literal["new", "keep"]
OPTIMISER_STATES = ("new", "keep")
# What the weights imply, beside the vocabulary: another value would be another model's.
SHAPE = ("cell", "peepholes", "layers", "hidden", "dense")
READING = ("kind", "separator", "min_count")
TABLES = ("model", "optimiser", "training")  # of settings that the parent decides unless they are given
RECORDED = ("parent", "parent_weights", "added_symbols", "updates_before")
# The length, and what ends a run before it: it looked at the parent's own evaluations.
NOT_TAKEN = {"batches", "patience", "target", "minutes", "keep_optimiser", *RECORDED}


@dataclass(frozen=True)
class Parent:
    """A run as it is when another begins from it."""

    path: Path
    experiment: Experiment
    vocabulary: Vocabulary
    batch: int
    weights: dict[str, Tensor]
    moments: dict[str, Tensor]  # of the optimiser, where it goes on; else none
    notes: tuple[str, ...]
    is_best: bool = False  # the weights are those of its best evaluation

    @property
    def updates(self) -> int:
        """How many updates its optimiser has made."""
        return self.batch + (self.experiment.updates_before or 0)

    @property
    def digest(self) -> str:
        """A hash of what the new run begins from: symbols, weights and moments, and nothing that a clock said."""
        hashed = hashlib.sha256(self.vocabulary.digest.encode())
        for name, tensor in sorted({**self.weights, **self.moments}.items()):
            hashed.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
            hashed.update(tensor.contiguous().numpy().tobytes())
        return hashed.hexdigest()


def read(path: str | Path, optimiser_state: str = "new", weights_of: str = selection.LAST) -> Parent:
    """Read a run to begin from: its weights, last or best, if it has ended; else those of its newest checkpoint."""
    if weights_of not in (selection.LAST, selection.BEST):
        raise ConfigurationError(f"weights must be one of last, best. Got {weights_of!r}. Set --weights.")
    is_best = weights_of == selection.BEST
    if is_best and optimiser_state == "keep":
        raise ConfigurationError(
            "An optimiser goes on with the last weights, not with the best ones. Choose --weights last, or "
            "--optimiser-state new."
        )
    if optimiser_state not in OPTIMISER_STATES:
        raise ConfigurationError(
            f"optimiser_state must be one of {', '.join(OPTIMISER_STATES)}. Got {optimiser_state!r}. "
            "Set --optimiser-state."
        )
    folder = RunFolder(path)
    experiment, vocabulary, status = folder.experiment, folder.vocabulary, folder.status
    notes: list[str] = []
    newest = None if folder.has_weights() else _newest(folder, notes)
    if newest:
        tensors, facts, batch = newest.best if is_best else newest.last, newest.facts, newest.batch
        if is_best and not tensors:
            raise RunError(f"{path} has no best weights yet. Choose --weights last.")
        batch = int(facts[BEST_BATCH]) if is_best else batch
    else:
        tensors, facts = folder.best_weights() if is_best else folder.weights()
        batch = int(facts["batch"]) if is_best else status["batch"]
    folder.require_vocabulary(facts)
    trained, changes = folder.described()
    if changes:
        notes.append(f"{folder.path / 'run.toml'} was changed after the training: {'; '.join(changes)}.")
    if newest:
        notes.append(f"{path} has not ended: its weights are those of batch {batch:,}.")
    elif status["state"] == "stopped":
        notes.append(f"{path} stopped early. {status.get('reason', '')}")
    weights = _whole(folder.path, _shapes(experiment, vocabulary), tensors)
    moments: dict[str, Tensor] = {}
    if optimiser_state == "keep":
        held = newest or _kept(folder, batch, weights)
        kept = {f"optimiser.{m}.{name}": shape for m, name, shape in _moments(experiment, vocabulary)}
        moments = _whole(folder.path, kept, held.tensors)
    return Parent(folder.path, trained, vocabulary, batch, weights, moments, tuple(notes), is_best)


def _newest(folder: RunFolder, notes: list[str]) -> Checkpoint:
    newest = next(folder.good_checkpoints(notes, goes_on=False), None)
    if newest is None:
        raise RunError(*notes, f"{folder.path} holds no weights: nothing was trained yet, or it was not saved.")
    return newest


def _kept(folder: RunFolder, batch: int, weights: Mapping[str, Tensor]) -> Checkpoint:
    """What a run that has ended kept of its optimiser."""
    if batch < 1:
        raise RunError(f"{folder.path} has made no update: its optimiser has nothing to go on from. {NEW}")
    if not folder.has_kept():
        raise RunError(f"{folder.path} has ended, and kept nothing of its optimiser (--keep-optimiser). {NEW}")
    kept = folder.kept()
    if kept.batch != batch or any(not torch.equal(kept.tensors[name], weights[name]) for name in weights):
        raise RunError(f"{folder.kept_path} is not of these weights. Copy the whole folder; or: {NEW}")
    return kept


NEW = "Begin the optimiser anew: --optimiser-state new."


def _shapes(experiment: Experiment, vocabulary: Vocabulary) -> dict[str, tuple[int, ...]]:
    return parameter_shapes(experiment, cells.load(experiment.cell, experiment.peepholes), len(vocabulary))


def _moments(experiment: Experiment, vocabulary: Vocabulary) -> list[tuple[str, str, tuple[int, ...]]]:
    names = optimisers.load(experiment.optimiser).MOMENTS
    return [(moment, *pair) for moment in names for pair in _shapes(experiment, vocabulary).items()]


def _whole(path: Path, shapes: Mapping[str, tuple[int, ...]], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of these names; a RunError where one has another shape, or a number that is not finite."""
    wrong = [
        f"{name} in the weights of {path} must be {list(shape)}. "
        f"Got {list(tensors[name].shape) if name in tensors else 'nothing'}."
        for name, shape in shapes.items()
        if name not in tensors or tuple(tensors[name].shape) != shape
    ]
    if wrong:
        raise RunError(*wrong)
    if broken := [name for name in shapes if not torch.isfinite(tensors[name]).all()]:
        raise RunError(f"{path} holds numbers that are not finite, in {', '.join(broken)}. Begin from another run.")
    return {name: tensors[name] for name in shapes}


def experiment_of(
    parent: Parent, settings: Mapping[str, Any], scheme: Mapping[str, Any], optimiser_state: str = "new"
) -> Experiment:
    """The new run: the parent's model, and its other settings unless they are given.

    `scheme` holds fields of a Scheme that are given.
    """
    before = parent.experiment
    problems = contradictions(parent, settings, optimiser_state)
    taken = {
        each.name: getattr(before, each.name)
        for each, known in settings_of(Experiment)
        if (known.table in TABLES and each.name not in NOT_TAKEN) or each.name in (*READING, "split_seed")
    }
    fields_of_scheme = {each.name: getattr(before.scheme, each.name) for each in fields(Scheme)} | dict(scheme)
    try:
        experiment = from_options({**taken, **settings}, fields_of_scheme)
    except ConfigurationError as error:
        raise ConfigurationError(*problems, *error.problems) from None
    if problems:
        raise ConfigurationError(*problems)
    return experiment


def contradictions(parent: Parent, settings: Mapping[str, Any], optimiser_state: str) -> list[str]:
    """The settings that the parent's weights contradict, in words."""
    before = parent.experiment
    why = dict.fromkeys(SHAPE, "its weights have that shape") | dict.fromkeys(READING, "its vocabulary is kept")
    why["forget_bias"] = "the biases are those of its weights"
    if before.cell != "lstm":
        del why["peepholes"], why["forget_bias"]
    if optimiser_state == "keep":
        why["optimiser"] = "its optimiser goes on"
    wrong = []
    for name, reason in why.items():
        value = settings.get(name)
        if value is None or value == getattr(before, name) or (name == "kind" and value == "auto"):
            continue
        wrong.append(
            f"{name} is {getattr(before, name)} in {parent.path}, and {reason}. Got {value}. "
            f"Leave --{name.replace('_', '-')} out."
        )
    return wrong
