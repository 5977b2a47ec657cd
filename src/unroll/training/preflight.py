"""What cannot work is said before any work is done: the corpus, the fleet, the disk, a run that is resumed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from unroll.base.errors import ConfigurationError, CorpusError, RunError, counted
from unroll.base.wording import go_on_with_text
from unroll.corpus import given_vocabulary
from unroll.corpus.corpus import TEST_TOKENS, Corpus, least_tokens
from unroll.corpus.open_corpora import open_corpus
from unroll.experiment.experiment import Experiment, differences
from unroll.runs import sizes
from unroll.runs.checkpoints import KEPT
from unroll.runs.folder import RunFolder
from unroll.training import extension, fleet, relocate


def refuse_hopeless(experiments: Sequence[Experiment], corpora: Sequence[Corpus]) -> None:
    """Refuse, before any work is done, what cannot work: all reasons at once."""
    fleet.require(experiments, [c.unique for c in corpora])
    wrong = []
    if len({experiment.keep_optimiser for experiment in experiments}) > 1:
        raise ConfigurationError("keep_optimiser is for all runs of a fleet: it gets longer as a whole, or not at all.")
    for experiment, corpus in zip(experiments, corpora, strict=True):
        split, k2 = corpus.split(experiment.split_seed, experiment.validation), experiment.scheme.k2
        test = min(split.test, experiment.test_tokens or split.test)
        too_short = _sets_too_short(experiment, corpus) or _too_short(experiment, corpus)
        if too_short:
            wrong.append(too_short)
        elif test <= k2:
            wrong.append(f"test_tokens must be more than k2 = {k2}. Got {test}. Raise --test-tokens, or lower --k2.")
    if wrong:
        raise CorpusError(*wrong)


def _sets_too_short(experiment: Experiment, corpus: Corpus) -> str | None:
    """What to say of a validation or a test set of a person's own that is too short, or leaves too little to train."""
    split, k2, rows = corpus.split(experiment.split_seed, experiment.validation), experiment.scheme.k2, experiment.rows
    if not (experiment.validation or corpus.validation_part or corpus.test_part):
        return None
    asked = min(experiment.validation or 0, corpus.tokens)
    for role, tokens in (("validation", split.validation), ("test", split.test)):
        wanted = role == "test" or experiment.validation or corpus.validation_part
        if wanted and tokens <= k2:
            return (
                f"The {role} set needs more than k2 = {k2} tokens and has {tokens:,}. Lower --k2, or bring more text."
            )
    if split.train < rows * k2 + 1 or (asked and split.validation < asked):
        beside = f" beside {split.validation:,} tokens of validation" if asked else ""
        return (
            f"{rows:,} rows of windows of k2 + 1 = {k2 + 1:,} tokens need a train set of {rows * k2 + 1:,} tokens and "
            f"have {split.train:,}{beside}. Lower --k2{', --validation' if asked else ''} or --rows, or bring more "
            "text."
        )
    return None


def _too_short(experiment: Experiment, corpus: Corpus) -> str | None:
    """What to say of a corpus that is too short: only the part that needs more text than the other, and how much."""
    split, k2, rows = corpus.split(experiment.split_seed), experiment.scheme.k2, experiment.rows
    if corpus.test_part:
        return None
    if k2 >= TEST_TOKENS:
        return f"k2 must be below {TEST_TOKENS:,}, the tokens of the largest test set. Got {k2:,}. Lower --k2."
    for_train, for_test = least_tokens(train=rows * k2 + 1), least_tokens(test=k2 + 1)
    least = max(for_train, for_test)
    if corpus.tokens >= least:
        return None
    needs = f"a corpus needs at least {least:,} tokens, this one has {corpus.tokens:,}"
    if for_test >= for_train:
        test_set = f"The test set needs more than k2 = {k2} tokens and has {split.test}"
        return f"{test_set}: {needs}. Lower --k2, or bring more text."
    return (
        f"{rows:,} rows of windows of k2 + 1 = {k2 + 1:,} tokens need a train set of {rows * k2 + 1:,} tokens and have "
        f"{split.train:,}: {needs}. Lower --k2 or --rows, or bring more text."
    )


def resume(
    out: str | Path,
    batches: int | None = None,
    device: str | None = None,
    threads: int | None = None,
    corpus: Corpus | None = None,
    keep_optimiser: bool = False,
) -> tuple[Experiment, Corpus, list[str]]:
    """What is needed to go on with a run: its experiment, its corpus, and what the user should know."""
    folder = RunFolder(out)
    experiment = folder.experiment
    state = folder.status["state"]
    if state in ("finished", "stopped"):
        done = folder.status["batch"]
        if batches is None or batches <= extension.length(folder.status):
            reason = f" {folder.status['reason']}" if folder.status.get("reason") else ""
            raise RunError(f"{out} has already {state} after {done:,} batches.{reason}")
        extension.require(folder)
    if batches is not None and batches < experiment.batches:
        raise RunError(f"--batches may only be raised on resume: the run has {experiment.batches:,}, got {batches:,}.")
    if batches is not None and batches > experiment.batches and experiment.depends_on_length:
        raise RunError(
            f"This run cannot be made longer: the schedule {experiment.schedule} depends on its {experiment.batches:,} "
            f"batches, and with {batches:,} every batch so far would have had another learning rate. Leave out "
            "--batches, or start a new run."
        )
    changed, changes = relocate.here(experiment, device, threads, folder.status)
    notes = [f"{'; '.join(changes)}: the run goes on, but not bit for bit as it would have."] if changes else []
    if corpus is None and not experiment.corpus:
        raise RunError(f"{out} was trained on a text in memory. Give that text, as corpus=.")
    text = _opened(folder, experiment) if corpus is None else _with_its_symbols(corpus, folder)
    changed = replace(changed, keep_optimiser=changed.keep_optimiser or keep_optimiser)
    return replace(changed, batches=batches or experiment.batches), text, notes


def _with_its_symbols(corpus: Corpus, folder: RunFolder) -> Corpus:
    """A text in memory, read with the run's vocabulary where that is not the text's own."""
    experiment = folder.experiment
    if experiment.parent is None:
        return corpus
    return given_vocabulary.read_with(corpus, folder.vocabulary, experiment.min_count)


def _opened(folder: RunFolder, experiment: Experiment) -> Corpus:
    """The corpus of a run; where it is not at its place, the refusal says which text that is and how to give it."""
    try:
        return open_corpus(experiment, folder.vocabulary)
    except CorpusError as error:
        size = f"{counted(experiment.bytes, 'byte')} in {counted(experiment.files, 'file')}, " * bool(experiment.files)
        raise CorpusError(
            *error.problems,
            f"The run was trained on {experiment.title or experiment.corpus} ({size}{experiment.tokens:,} tokens, "
            f"SHA-256 {experiment.sha256[:16]}…). {go_on_with_text(folder.path)}",
        ) from None


def refuse_another(folder: RunFolder, experiment: Experiment, corpus: Corpus) -> None:
    """A run goes on as it began: it may get longer, or move to another machine."""
    changes = differences(folder.experiment, experiment)
    wrong = [f"{change}. {folder.path} goes on as it began: start a new run." for change in changes]
    if folder.vocabulary != corpus.vocabulary:
        wrong.append(f"{folder.path / 'vocabulary.json'} is not the vocabulary of the corpus. Copy the whole folder.")
    if wrong:
        raise RunError(*wrong)


def weights_bytes(experiment: Experiment, unique: int) -> int:
    """The disk space that the weights of a run take: the last ones and the best."""
    return 2 * _width(experiment) * sizes.weights_numbers(experiment, unique)


def checkpoints_bytes(experiment: Experiment, unique: int) -> int:
    """The disk space that checkpoints of a run take at most: those that are kept and the one being written."""
    return (KEPT + 1 + experiment.keep_optimiser) * _width(experiment) * sizes.checkpoint_numbers(experiment, unique)


def _width(experiment: Experiment) -> int:
    """Bytes of a number."""
    return 8 if experiment.precision == "float64" else 4


def refuse_full_disk(out: str | Path, needed: int) -> None:
    """Say so before training, not hours into it."""
    folder = Path(out).absolute()
    while not os.path.exists(folder):  # a name that is too long does not exist either
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < needed:
        megabytes = f"{free // 10**6:,} MB free; this run may need {-(-needed // 10**6):,} MB"
        raise RunError(f"{folder} has {megabytes}. Choose another --out.")
