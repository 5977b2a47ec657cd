"""From a path or a name to token ids, and the split into a train, a validation and a test set."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from unroll.base import randomness
from unroll.base.errors import CorpusError
from unroll.corpus import encoding as encodings
from unroll.corpus import given_vocabulary, kneser_ney, parts, sources, split_folders, tables
from unroll.corpus.cached_ids import Facts
from unroll.corpus.chosen_files import Choice
from unroll.corpus.file_stream import Source
from unroll.corpus.parts import Part, PartFiles
from unroll.corpus.recorded_size import Extent, Recorded
from unroll.corpus.tokens import UNKNOWN, Ids, Vocabulary
from unroll.experiment.experiment import Experiment

TEST_TOKENS = 11_100
MANY_SYMBOLS = 1_000
RARE = 5  # times
CHUNK = 1 << 22  # tokens looked at together where a corpus is too large to hold
COUNTED = 1 << 23  # tokens that n-grams are counted in: a sorted table of them is held in memory


@dataclass(frozen=True)
class Split:
    """How many tokens each set has. What no file holds is cut from the corpus, rotated by `offset`: the first `train`
    tokens, then `validation`, then `test`.
    """

    offset: int
    train: int
    test: int
    validation: int = 0


@dataclass(frozen=True, eq=False)
class Corpus:
    """Token ids, the vocabulary that reads them, and where they came from.

    >>> corpus = Corpus.from_text("to be or not to be " * 100)
    >>> corpus.tokens, corpus.unique
    (1900, 7)
    >>> corpus.split(seed=0).test
    190
    """

    source: str
    name: str  # with what should always be said beside it: "english (reconstruction)"
    vocabulary: Vocabulary
    ids: Ids
    sha256: str  # of the bytes read, so that `sha256sum` of a file agrees
    encoding: str = "utf-8"
    min_count: int = 1
    choice: Choice = field(default_factory=Choice)
    notes: tuple[str, ...] = ()
    paper: str | None = None  # the name of the paper's data set, where this is its very file
    extent: Extent = field(default_factory=Extent)  # of the files that were read
    validation_part: Part | None = None  # a validation set in a file of its own
    test_part: Part | None = None
    unread: PartFiles = field(default_factory=PartFiles)  # of parts that wait for a vocabulary

    @classmethod
    def open(
        cls,
        source: str,
        kind: str = "auto",
        encoding: str = "utf-8",
        min_count: int = 1,
        ext: tuple[str, ...] = (),
        exclude: tuple[str, ...] = (),
        ascii: bool = False,
        separator: str | None = None,
        asked: bool = True,
        validation_file: str | None = None,
        test_file: str | None = None,
        own_validation: bool = True,
    ) -> Corpus:
        """The corpus behind a path, a folder or a name that `unroll data list` shows; `-` is standard input.

        The kind of a folder is the one that most of its bytes have, unless a person has `asked` for a kind. A folder
        with a train, a validation and a test file is a corpus in these parts; files that are named go before its own,
        and without `own_validation` its validation file is not read.
        """
        choice = Choice(tuple(ext), tuple(exclude), ascii, encoding)
        encodings.require_encoding(encoding)
        where, files, notes = split_folders.opened(
            source, choice, PartFiles(validation_file, test_file), own_validation
        )
        corpus = cls._read(where, kind, min_count, choice, separator, asked)
        return replace(corpus, notes=(*notes, *corpus.notes)).in_parts(files)

    @classmethod
    def from_text(
        cls, text: str | Iterable[str], name: str = "text", kind: str = "chars", min_count: int = 1
    ) -> Corpus:
        """A corpus from a text in memory, or from several texts, end to end."""
        content = (text if isinstance(text, str) else "".join(text)).encode("utf-8", "surrogatepass")
        source = Source("", name, len(content), lambda: iter((content,)))
        return cls._encoded(source, kind, min_count, Choice())

    @classmethod
    def from_ids(cls, ids: Iterable[object], name: str = "ids", min_count: int = 1) -> Corpus:
        """A corpus from ids in memory: numbers, or names without white space; "\\n" ends a line.

        >>> Corpus.from_ids([7001, 8113, 7001, 12]).vocabulary.symbols
        ('12', '7001', '8113')
        """
        fields = [str(field) for field in ids]
        wrong = next((field for field in fields if field != "\n" and field.split() != [field]), None)
        if wrong is not None:
            raise CorpusError(f"An id has at least one character and no white space. Got {wrong[:40]!r}.")
        return cls.from_text(" ".join(fields), name, "ids", min_count)

    @classmethod
    def from_bytes(
        cls,
        content: bytes,
        name: str,
        kind: str,
        encoding: str = "utf-8",
        ascii: bool = False,
        separator: str | None = None,
    ) -> Corpus:
        """A corpus from what would stand in a file, checked as a file is."""
        choice = Choice(ascii=ascii, encoding=encoding)
        return cls._encoded(sources.in_memory(content, name, choice, kind), kind, 1, choice, separator, asked=False)

    @classmethod
    def with_every_symbol(cls, experiment: Experiment) -> Corpus:
        """The corpus that an experiment names, with its rare symbols: another vocabulary says which are known.

        Files of a validation and a test set are read when that vocabulary is there (`given_vocabulary.read_with`).
        """
        e = experiment
        choice = Choice(e.ext, e.exclude, e.ascii, e.encoding)
        encodings.require_encoding(e.encoding)
        where, files, notes = split_folders.opened(e.corpus, choice, PartFiles.of(e), e.validation is None)
        corpus = cls._read(where, e.kind, 1, choice, e.separator)
        return replace(corpus, notes=(*notes, *corpus.notes), unread=files)

    @classmethod
    def named(cls, experiment: Experiment, vocabulary: Vocabulary | None = None) -> Corpus:
        """The corpus that an experiment names, read as it says; no more of it than the experiment recorded, if it did.

        A run may come from a stranger, who wrote down what to read. One that began from another's weights has a
        `vocabulary` that is not the corpus's own.
        """
        e, files = experiment, PartFiles.of(experiment)
        if not e.sha256:
            return cls.open(
                e.corpus, e.kind, e.encoding, e.min_count, e.ext, e.exclude, e.ascii, e.separator,
                validation_file=files.validation, test_file=files.test, own_validation=e.validation is None,
            )  # fmt: skip
        choice = Choice(e.ext, e.exclude, e.ascii, e.encoding)
        recorded = Recorded(Extent(max(0, e.files), max(0, e.bytes)), max(0, e.tokens))
        given = e.parent is not None and vocabulary is not None
        corpus = cls._read(e.corpus, e.kind, 1 if given else e.min_count, choice, e.separator, recorded=recorded)
        if vocabulary is None or not given:
            return corpus.in_parts(files, e)
        if corpus.sha256 != e.sha256:
            return corpus  # whoever asked for another text says so, and nothing of what this one holds
        return given_vocabulary.read_with(corpus, vocabulary, e.min_count).in_parts(files, e)

    @classmethod
    def _read(
        cls,
        source: str,
        kind: str,
        min_count: int,
        choice: Choice,
        separator: str | None,
        asked: bool = True,
        recorded: Recorded | None = None,
    ) -> Corpus:
        encodings.require_encoding(choice.encoding)
        opened = sources.find(source, choice, kind, asked, recorded)
        return cls._encoded(opened, kind, min_count, choice, separator, asked and recorded is None)

    @classmethod
    def _encoded(
        cls, source: Source, kind: str, min_count: int, choice: Choice, separator: str | None = None, asked: bool = True
    ) -> Corpus:
        vocabulary, facts, ids, cache_notes = encodings.encode(source, kind, choice.encoding, min_count, separator)
        # Who reads a text with a trained run can choose no other kind.
        table = tables.note(source.called, encodings.sample(source), facts.kind, separator) if asked else None
        notes = (*source.notes, *([table] if table else []), *_notes(facts, min_count), *cache_notes)
        return cls(
            source.where,
            source.title,
            vocabulary,
            ids,
            facts.sha256,
            choice.encoding,
            min_count,
            choice,
            notes,
            facts.paper,
            source.extent,
        )

    def in_parts(self, files: PartFiles, experiment: Experiment | None = None) -> Corpus:
        """The same with a validation and a test set from files, and a name that says more than `train`."""
        whole = parts.with_parts(self, files, experiment)
        return whole if whole is self else replace(whole, name=split_folders.title_of(self.source) or self.name)

    @property
    def tokens(self) -> int:
        """How many tokens there are to train on and to cut sets from."""
        return len(self.ids)

    @property
    def unique(self) -> int:
        """How many different ones."""
        return len(self.vocabulary)

    def split(self, seed: int, validation: int | None = None) -> Split:
        """Rotated by a seeded offset, the last 11,100 tokens (of a small corpus: the last tenth) are the test set.

        The `validation` tokens before them are the validation set. A set that has a file of its own is not cut off.
        """
        whole = self.tokens
        cut = 0 if self.test_part else TEST_TOKENS if whole >= 10 * TEST_TOKENS else whole // 10
        cut_before = 0 if self.validation_part else min(validation or 0, whole - cut)
        offset = randomness.below(seed, "split", 0, whole) if cut or cut_before else 0
        test = self.test_part.tokens if self.test_part else cut
        valid = self.validation_part.tokens if self.validation_part else cut_before
        return Split(offset, whole - cut - cut_before, test, valid)

    def train_ids(self, seed: int, validation: int | None = None) -> Ids:
        """The train set, in order, copied."""
        return np.concatenate(list(self._train_chunks(seed, validation)))

    def test_ids(self, seed: int) -> Ids:
        """The test set, in order."""
        if self.test_part:
            return self.test_part.ids
        split = self.split(seed)
        return self._rotated(split.offset + split.train, split.test)

    def validation_ids(self, seed: int, validation: int | None = None) -> Ids:
        """The validation set, in order; empty where there is none."""
        if self.validation_part:
            return self.validation_part.ids
        split = self.split(seed, validation)
        return self._rotated(split.offset + split.train, split.validation)

    def _rotated(self, first: int, count: int) -> Ids:
        """Tokens from one on, past the end from the beginning."""
        return np.asarray(self.ids[(first + np.arange(count)) % self.tokens])

    def _train_chunks(self, seed: int, validation: int | None = None) -> list[Ids]:
        """The train set in order, a chunk at a time, without copying."""
        split = self.split(seed, validation)
        end = min(split.offset + split.train, self.tokens)
        stretches = [self.ids[split.offset : end], self.ids[: split.train - (end - split.offset)]]
        return [ids[at : at + CHUNK] for ids in stretches for at in range(0, len(ids), CHUNK)]

    def described_in(self, experiment: Experiment) -> Experiment:
        """The experiment with this corpus's facts filled in."""
        return replace(
            experiment,
            corpus=self.source,
            title=self.name,
            kind=self.vocabulary.kind,
            encoding=self.encoding,
            separator=self.vocabulary.separator,
            min_count=self.min_count,
            ext=self.choice.ext,
            exclude=self.choice.exclude,
            ascii=self.choice.ascii,
            sha256=self.sha256,
            files=self.extent.files,
            bytes=self.extent.bytes,
            tokens=self.tokens,
            unique=self.unique,
            **parts.facts_of(self, experiment),
        )

    def rare(self, below: int = RARE) -> list[str]:
        """The symbols that occur fewer times than `below`."""
        counts = np.zeros(self.unique, np.int64)
        for begin in range(0, self.tokens, CHUNK):
            counts += np.bincount(self.ids[begin : begin + CHUNK], minlength=self.unique)
        return [symbol for symbol, count in zip(self.vocabulary.symbols, counts, strict=True) if count < below]

    def unigram_perplexity(self, split_seed: int = 0) -> float:
        """What frequencies alone give: the test set's perplexity under those of the train set."""
        return float(np.exp(-np.log(self._frequencies(split_seed)[self.test_ids(split_seed)]).mean()))

    def bigram_perplexity(self, split_seed: int = 0) -> float:
        """The test set's perplexity where each token is predicted from the one before it (Kneser-Ney)."""
        return self.ngram_perplexity(2, split_seed)

    def ngram_perplexity(self, order: int, split_seed: int = 0) -> float:
        """The test set's perplexity under interpolated Kneser-Ney; a long train set is counted from its end."""
        train, test = self.train_end(COUNTED, split_seed), self.test_ids(split_seed)
        likely = kneser_ney.probabilities(train, test, self.unique, min(order, len(train)))
        return float(np.exp(-np.log(likely).mean()))

    def train_end(self, most: int, seed: int = 0) -> Ids:
        """The last tokens of the train set, `most` of them or all, copied."""
        chunks: list[Ids] = []
        for chunk in reversed(self._train_chunks(seed)):
            chunks.append(chunk[max(0, len(chunk) - most) :])
            most -= len(chunks[-1])
            if most <= 0:
                break
        return np.concatenate(chunks[::-1])

    def _frequencies(self, split_seed: int) -> NDArray[np.float64]:
        counts = np.ones(self.unique)
        for chunk in self._train_chunks(split_seed):
            counts += np.bincount(chunk, minlength=self.unique)
        return np.asarray(counts / counts.sum())


def least_tokens(train: int = 0, test: int = 0) -> int:
    """How many tokens a corpus needs so that its train and its test set have these; `test` is at most 11,100."""
    whole = train + max(train - 1, 0) // 9  # of which a tenth is the test set
    if whole >= 10 * TEST_TOKENS:
        whole = max(train + TEST_TOKENS, 10 * TEST_TOKENS)
    return max(whole, 10 * test)


def _notes(facts: Facts, min_count: int) -> list[str]:
    """What is allowed but should be known."""
    notes = []
    if facts.marks:
        notes.append("A byte-order mark (3 bytes) at the start was left out.")
    if facts.windows_ends and facts.kind in ("chars", "bytes", "words"):
        notes.append(
            f"{facts.windows_ends:,} Windows line ends (CRLF): each is two tokens. Convert it if that is not meant."
        )
    if len(facts.symbols) > MANY_SYMBOLS:
        rare = sum(count < RARE for count in facts.counts)
        notes.append(
            f"{len(facts.symbols):,} different symbols, {rare:,} of them fewer than {RARE} times. "
            f"--min-count {RARE} would make those one unknown symbol."
        )
    if min_count > 1 and UNKNOWN in facts.symbols:
        unknown = facts.counts[facts.symbols.index(UNKNOWN)]
        notes.append(f"{unknown:,} tokens rarer than --min-count {min_count} became {UNKNOWN}.")
    return notes
