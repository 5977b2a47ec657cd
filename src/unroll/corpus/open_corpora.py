"""Corpora, opened once each and shared by all runs that read them."""

from __future__ import annotations

from collections.abc import Iterable

from unroll.base.errors import ConfigurationError, InputError, RunError
from unroll.corpus import parts
from unroll.corpus.corpus import Corpus
from unroll.corpus.tokens import Vocabulary
from unroll.experiment.experiment import Experiment

Key = tuple[object, ...]


def open_corpus(experiment: Experiment, vocabulary: Vocabulary | None = None) -> Corpus:
    """The corpus that an experiment names, checked against its hash where it has one.

    A run that began from another's weights reads it with its own vocabulary.
    """
    if not experiment.corpus:
        raise ConfigurationError("This experiment names no corpus: give one, as a path or a name.")
    corpus = Corpus.named(experiment, vocabulary)
    if experiment.sha256 and corpus.sha256 != experiment.sha256:
        raise RunError(
            f"{experiment.corpus} is not the corpus that this run was trained on: "
            f"it has SHA-256 {corpus.sha256[:16]}…, {corpus.tokens:,} tokens and {corpus.unique} symbols, the run had "
            f"{experiment.sha256[:16]}…, {experiment.tokens:,} and {experiment.unique}. Bring that text back."
        )
    changes = [f"{words} Bring that file back." for words in parts.changed(corpus, experiment)]
    if changes:
        raise RunError(*changes)
    return corpus


class Library:
    """What has been opened so far."""

    def __init__(self, corpora: Iterable[Corpus] = ()) -> None:
        self._open: dict[Key, Corpus] = {}
        self._wrong: dict[Key, InputError] = {}  # so that what cannot be read is tried once
        for corpus in corpora:
            self._add(corpus)

    def open(self, experiment: Experiment) -> Corpus:
        """The corpus that an experiment names, checked against its hash where it has one."""
        key = _key(experiment)
        if key in self._wrong:
            raise self._wrong[key]
        if key not in self._open:
            try:
                self._open[key] = self._add(open_corpus(experiment))
            except InputError as error:
                self._wrong[key] = error
                raise
        return self._open[key]

    @property
    def opened(self) -> tuple[Corpus, ...]:
        """The corpora that are open."""
        return tuple(self._open.values())

    def _add(self, corpus: Corpus) -> Corpus:
        """Under the name that experiments have once its facts are filled in; the same text under two stays one."""
        return self._open.setdefault(_key(corpus.described_in(Experiment())), corpus)


def _key(e: Experiment) -> Key:
    read = e.corpus, e.kind, e.encoding, e.min_count, e.ext, e.exclude, e.ascii, e.separator, e.sha256
    beside = e.validation_file, e.validation_file_sha256, e.test_file, e.test_file_sha256
    # Tokens that are cut off leave the validation file of a folder aside, when the folder is read first.
    return *read, *beside, e.validation is not None and not e.sha256
