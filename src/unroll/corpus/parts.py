"""A validation or a test set in a file of its own, beside the text that is trained on.

Its tokens have the ids of the training text's vocabulary. A symbol that the training text lacks becomes the unknown
symbol where the vocabulary has one, and is refused elsewhere.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from unroll.base.errors import CorpusError, SymbolError
from unroll.corpus import encoding as encodings
from unroll.corpus import sources
from unroll.corpus.chosen_files import Choice
from unroll.corpus.recorded_size import Extent, Recorded
from unroll.corpus.tokens import Ids, Vocabulary
from unroll.experiment.experiment import Experiment

if TYPE_CHECKING:
    from unroll.corpus.corpus import Corpus

VALIDATION, TEST = "validation", "test"
ROLES = (VALIDATION, TEST)


@dataclass(frozen=True)
class PartFiles:
    """The files of the parts, as a person names them or as a run recorded them."""

    validation: str | None = None
    test: str | None = None

    @classmethod
    def of(cls, experiment: Experiment) -> PartFiles:
        """The files that an experiment names."""
        return cls(experiment.validation_file, experiment.test_file)


@dataclass(frozen=True, eq=False)
class Part:
    """A set of tokens that are not trained on, and the file that they came from."""

    where: str
    ids: Ids
    sha256: str
    bytes: int

    @property
    def tokens(self) -> int:
        """How many tokens there are."""
        return len(self.ids)


def read(path: str, role: str, vocabulary: Vocabulary, choice: Choice, recorded: Recorded | None = None) -> Part:
    """Read a part's file with the vocabulary of the text that is trained on."""
    where = os.path.realpath(path)  # no name of a data set, and not standard input
    try:
        regular = stat.S_ISREG(os.stat(where).st_mode)
    except (OSError, ValueError) as error:
        raise CorpusError(
            f"The {role} set {path} cannot be read: {getattr(error, 'strerror', None) or error}. "
            f"Give a file with --{role}-file."
        ) from None
    if not regular:
        raise CorpusError(f"--{role}-file takes a regular file. Got {path}.")
    source = sources.find(where, replace(choice, ext=(), exclude=()), vocabulary.kind, True, recorded)
    own, facts, ids, _ = encodings.encode(source, vocabulary.kind, choice.encoding, 1, vocabulary.separator)
    try:
        translated = vocabulary.translate(ids, own)
    except SymbolError as error:
        raise SymbolError(
            f"The {role} set {path} has symbols that training does not know. {error} "
            "With --min-count 2 a symbol that occurs once becomes one unknown symbol, and so do these."
        ) from None
    return Part(where, translated, facts.sha256, source.extent.bytes)


def with_parts(corpus: Corpus, files: PartFiles, experiment: Experiment | None = None) -> Corpus:
    """A corpus with these files as its parts; no more of them is read than `experiment` recorded, if it did."""
    held: dict[str, Any] = {}
    for role in ROLES:
        path: str | None = getattr(files, role)
        if path is not None:
            held[f"{role}_part"] = read(path, role, corpus.vocabulary, corpus.choice, _recorded(experiment, role))
    return replace(corpus, **held) if held else corpus


def _recorded(experiment: Experiment | None, role: str) -> Recorded | None:
    """What a run recorded of a part: it may come from a stranger, who wrote down what to read."""
    if experiment is None or not experiment.sha256:
        return None
    size, tokens = (getattr(experiment, f"{role}_file_{name}") or 0 for name in ("bytes", "tokens"))
    return Recorded(Extent(1, max(0, size)), max(0, tokens))


def facts_of(corpus: Corpus, experiment: Experiment) -> dict[str, Any]:
    """The fields of an experiment that say which parts its corpus has."""
    said: dict[str, Any] = {}
    for role in ROLES:
        part: Part | None = getattr(corpus, f"{role}_part")
        if part is None and getattr(experiment, f"{role}_file") is not None:
            raise CorpusError(
                f"{role}_file is set, and the corpus that was given has no {role} file. "
                f"Open it with Corpus.open(…, {role}_file=…)."
            )
        said |= {
            f"{role}_file": part.where if part else None,
            f"{role}_file_sha256": part.sha256 if part else None,
            f"{role}_file_bytes": part.bytes if part else None,
            f"{role}_file_tokens": part.tokens if part else None,
        }
    return said


def changed(corpus: Corpus, experiment: Experiment) -> Iterator[str]:
    """In words, each part that is not the one that a run recorded."""
    for role in ROLES:
        part: Part | None = getattr(corpus, f"{role}_part")
        had = getattr(experiment, f"{role}_file_sha256")
        if had and (part is None or part.sha256 != had):
            has = f"it has SHA-256 {part.sha256[:16]}…" if part else "there is none"
            yield f"{experiment.corpus} has another {role} set than this run: {has}, the run had {had[:16]}…."
