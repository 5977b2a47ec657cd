"""What cannot work is said before any work is done: the corpus, the fleet, the disk, a run that is resumed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from unroll.base.errors import CorpusError, RunError
from unroll.corpus.batches import Schedule
from unroll.corpus.corpus import Corpus
from unroll.corpus.open_corpora import open_corpus
from unroll.experiment.experiment import Experiment, differences
from unroll.model import optimisers
from unroll.model.initial_values import parameter_count
from unroll.runs.checkpoints import KEPT
from unroll.runs.folder import RunFolder
from unroll.training import fleet, relocate


def refuse_hopeless(experiments: Sequence[Experiment], corpora: Sequence[Corpus]) -> None:
    """What cannot work is said before any work is done."""
    fleet.require(experiments, [c.unique for c in corpora])
    wrong = []
    for experiment, corpus in zip(experiments, corpora, strict=True):
        split, k2 = corpus.split(experiment.split_seed), experiment.scheme.k2
        test = min(split.test, experiment.test_tokens or split.test)
        if split.test <= k2:
            wrong.append(
                f"The test set needs more than k2 = {k2} tokens and has {split.test}: a corpus needs at least "
                f"{10 * (k2 + 1):,} tokens, this one has {corpus.tokens:,}. Lower --k2, or bring more text."
            )
        elif test <= k2:
            wrong.append(f"test_tokens must be more than k2 = {k2}. Got {test}. Raise --test-tokens, or lower --k2.")
        try:
            Schedule(experiment, split.train)
        except CorpusError as error:
            wrong += error.problems
    if wrong:
        raise CorpusError(*wrong)


def resume(
    out: str | Path,
    batches: int | None = None,
    device: str | None = None,
    threads: int | None = None,
    corpus: Corpus | None = None,
) -> tuple[Experiment, Corpus, list[str]]:
    """What is needed to go on with a run: its experiment, its corpus, and what the user should know."""
    folder = RunFolder(out)
    experiment = folder.experiment
    state = folder.status["state"]
    if state in ("finished", "stopped"):
        longer = (
            " Its checkpoints are gone, so it cannot be trained further; start anew with --batches." if batches else ""
        )
        raise RunError(f"{out} has already {state} after {folder.status['batch']:,} batches.{longer}")
    if batches is not None and batches < experiment.batches:
        raise RunError(f"--batches may only be raised on resume: the run has {experiment.batches:,}, got {batches:,}.")
    changed, changes = relocate.here(experiment, device, threads, folder.status)
    notes = [f"{'; '.join(changes)}: the run goes on, but not bit for bit as it would have."] if changes else []
    if corpus is None and not experiment.corpus:
        raise RunError(f"{out} was trained on a text in memory. Give that text, as corpus=.")
    text = open_corpus(experiment) if corpus is None else corpus
    return replace(changed, batches=batches or experiment.batches), text, notes


def refuse_another(folder: RunFolder, experiment: Experiment, corpus: Corpus) -> None:
    """A run goes on as it began: it may get longer, or move to another machine."""
    changes = differences(folder.experiment, experiment)
    wrong = [f"{change}. {folder.path} goes on as it began: start a new run." for change in changes]
    if folder.vocabulary != corpus.vocabulary:
        wrong.append(f"{folder.path / 'vocabulary.json'} is not the vocabulary of the corpus. Copy the whole folder.")
    if wrong:
        raise RunError(*wrong)


def weights_bytes(experiment: Experiment, unique: int) -> int:
    """What the weights of a run take on the disk."""
    return parameter_count(experiment, unique) * (8 if experiment.precision == "float64" else 4)


def checkpoints_bytes(experiment: Experiment, unique: int) -> int:
    """What the checkpoints of a run take at most: those that are kept and the one being written, moments and all."""
    tensors = 1 + len(optimisers.load(experiment.optimiser).MOMENTS)
    return (KEPT + 1) * tensors * weights_bytes(experiment, unique)


def refuse_full_disk(out: str | Path, needed: int) -> None:
    """Say so before training, not hours into it."""
    place = Path(out).absolute()
    while not os.path.exists(place):  # which takes a name that is too long as one that is not there
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < needed:
        megabytes = f"{free // 10**6:,} MB free; this run may need {-(-needed // 10**6):,} MB"
        raise RunError(f"{place} has {megabytes}. Choose another --out.")
