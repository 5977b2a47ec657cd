"""How a run begins from another's weights: its text read with their vocabulary, and its first values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import torch

from unroll.base.errors import ConfigurationError, SymbolError, counted
from unroll.corpus import given_vocabulary
from unroll.corpus.corpus import Corpus
from unroll.corpus.given_vocabulary import Lacking
from unroll.corpus.tokens import UNKNOWN
from unroll.experiment.experiment import Experiment
from unroll.model import cells
from unroll.model.precisions import PRECISIONS
from unroll.training.learner import Learner
from unroll.training.parent import Parent

if TYPE_CHECKING:
    from torch import Tensor

NewSymbols = Literal["refuse", "add"]
NEW_SYMBOLS = ("refuse", "add")


@dataclass(frozen=True)
class Start:
    """A run that begins from a parent's weights."""

    experiment: Experiment
    corpus: Corpus
    tensors: dict[str, Tensor]  # weights and, where the optimiser goes on, its moments; without the added symbols
    notes: tuple[str, ...]  # what the user should know
    words: str  # what it begins from, on a line


def start(parent: Parent, experiment: Experiment, corpus: Corpus, new_symbols: str = "refuse") -> Start:
    """Read the corpus with the parent's vocabulary, and put down where the run comes from."""
    if new_symbols not in NEW_SYMBOLS:
        raise ConfigurationError(
            f"new_symbols must be one of {', '.join(NEW_SYMBOLS)}. Got {new_symbols!r}. Set --new-symbols."
        )
    before, own = parent.vocabulary, parent.experiment
    if corpus.vocabulary.kind != before.kind:
        raise SymbolError(
            f"{corpus.name} is read as {corpus.vocabulary.kind}, and {parent.path} knows {before.kind}. "
            f"Bring a text of {before.kind}."
        )
    new = given_vocabulary.lacking(before, corpus)
    vocabulary, notes = before, list(parent.notes)
    if new.symbols and new_symbols == "add":
        vocabulary = given_vocabulary.longer(before, corpus, new, own.min_count)
    elif new.symbols and UNKNOWN in before.symbols:
        notes.append(f"{_amount(new, corpus)} that {parent.path} does not know become {UNKNOWN}: {new}.")
    elif new.symbols:
        raise SymbolError(
            f"{corpus.name} has {_amount(new, corpus)} that {parent.path} does not know: {new}. "
            "--new-symbols add gives them rows of their own; or take them out of the text."
        )
    text = given_vocabulary.read_with(corpus, vocabulary, own.min_count)
    added = vocabulary.symbols[len(before) :]
    described = replace(
        experiment,
        parent=own.identity,
        parent_weights=parent.digest,
        added_symbols=len(added),
        updates_before=parent.updates if parent.moments else None,
    )
    tensors = {**parent.weights, **parent.moments}
    if own.scheme.learns and not experiment.scheme.learns:
        notes.append("Its learned first states are left: where states are carried, a text starts from zeros.")
        tensors |= {name: torch.zeros_like(parent.weights[name]) for name in _first_states(own)}
    if PRECISIONS[experiment.precision].kept.itemsize < PRECISIONS[own.precision].kept.itemsize:
        notes.append(f"Its weights are {own.precision}: they are rounded to {experiment.precision}.")
    return Start(text.described_in(described), text, tensors, tuple(notes), _words(parent, described, added))


def _amount(new: Lacking, corpus: Corpus) -> str:
    return f"{counted(len(new.symbols), 'symbol')} ({new.tokens:,} of {corpus.tokens:,} tokens)"


def _first_states(experiment: Experiment) -> list[str]:
    states = cells.load(experiment.cell, experiment.peepholes).STATES
    return [f"layers.{layer}.{state}0" for layer in range(experiment.layers) for state in states]


def _words(parent: Parent, experiment: Experiment, added: Sequence[str]) -> str:
    symbols = counted(len(parent.vocabulary), "symbol")
    more = f" and {counted(len(added), 'new one')} ({given_vocabulary.in_order(added)})" if added else ""
    updates = experiment.updates_before
    optimiser = f"its optimiser goes on after {updates:,} updates" if updates else "the optimiser begins anew"
    which = "best weights" if parent.is_best else "weights"
    zeros = "; carried states begin at zero" if experiment.scheme.carries else ""
    return (
        f"From {parent.path}: its {which} after {parent.batch:,} batches, its {symbols}{more}; {optimiser}{zeros}. "
        "What is not given is as it was there, but for --batches, evaluations and what ends a run early."
    )


def require(experiments: Sequence[Experiment], starts: Sequence[Start | None]) -> None:
    """Refuse a run whose experiment says that it begins from weights, where there are none."""
    for experiment, begun in zip(experiments, starts or [None] * len(experiments), strict=True):
        if experiment.parent is not None and begun is None:
            raise ConfigurationError(
                "This experiment names a parent: it was begun from another run's weights. Begin from that run with "
                "`unroll train --from`."
            )


def put(learner: Learner, starts: Sequence[Start | None]) -> None:
    """Put the first values in their slots. Added symbols have those that a run from nothing would begin with."""
    for m, begun in enumerate(starts):
        if begun is None:
            continue
        held = learner.snapshot(m)
        for name, value in begun.tensors.items():
            held[name][tuple(slice(n) for n in value.shape)] = value
        learner.restore(m, held)
