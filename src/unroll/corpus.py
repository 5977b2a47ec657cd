"""From a path or a name to token ids, and the split into a train and a test set.

A corpus is read once, checked for what people really hand in (an HTML page, a Git-LFS pointer, UTF-16, Windows line
ends), and turned into ids. Its SHA-256 is that of the bytes read, so that `sha256sum` agrees.
"""

from __future__ import annotations

import codecs
import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unroll import randomness
from unroll.datasets import DATASETS, PAPER_BLOBS, git_blob
from unroll.errors import CorpusError, did_you_mean
from unroll.experiment import Experiment
from unroll.tokens import UNKNOWN, Ids, Vocabulary

TEST_TOKENS = 11_100
MANY_SYMBOLS = 1_000
RARE = 5
_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


@dataclass(frozen=True)
class Split:
    """The corpus rotated by `offset`: the first `train` tokens, then `test`."""

    offset: int
    train: int
    test: int


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
    name: str
    vocabulary: Vocabulary
    ids: Ids
    sha256: str
    encoding: str = "utf-8"
    min_count: int = 1
    notes: tuple[str, ...] = ()
    paper: str | None = None  # the name of the paper's data set, where this is its very file

    @classmethod
    def open(cls, source: str, kind: str = "chars", encoding: str = "utf-8", min_count: int = 1) -> Corpus:
        """The corpus behind a path, a folder or a name that `unroll data list` shows."""
        _require_encoding(encoding)
        path = Path(source)
        notes: list[str] = []
        if source in DATASETS:
            content, name = DATASETS[source].content(), source
        elif path.is_dir():
            content, name = _read_folder(path, encoding, notes), path.resolve().name
        elif path.is_file():
            content, name = path.read_bytes(), path.stem
            _refuse_impostors(content, source)
        else:
            raise CorpusError(
                f"No such file, folder or data set: {source}. "
                f"`unroll data list` shows the names.{did_you_mean(source, DATASETS)}"
            )
        text = _decode(content, encoding, source, notes)
        where = source if source in DATASETS else str(path.resolve())
        corpus = cls.from_text(text, name, kind, min_count, source=where, sha256=hashlib.sha256(content).hexdigest())
        paper = PAPER_BLOBS.get(git_blob(content))
        return replace(corpus, encoding=encoding, notes=(*notes, *corpus.notes), paper=paper)

    @classmethod
    def from_text(
        cls,
        text: str,
        name: str = "text",
        kind: str = "chars",
        min_count: int = 1,
        source: str = "",
        sha256: str = "",
    ) -> Corpus:
        """A corpus from a text in memory."""
        if not text:
            raise CorpusError(f"{source or name} is empty: there is nothing to train on.")
        vocabulary = Vocabulary.of(text, kind, min_count)
        ids = vocabulary.encode(text)
        sha256 = sha256 or hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        notes = tuple(_notes(text, ids, vocabulary, min_count))
        return cls(source, name, vocabulary, ids, sha256, min_count=min_count, notes=notes)

    @property
    def tokens(self) -> int:
        """How many tokens there are."""
        return len(self.ids)

    @property
    def unique(self) -> int:
        """How many different ones."""
        return len(self.vocabulary)

    def split(self, seed: int) -> Split:
        """Rotated by a seeded offset, the last 11,100 tokens (of a small corpus: the last tenth) are the test set."""
        test = TEST_TOKENS if self.tokens >= 10 * TEST_TOKENS else self.tokens // 10
        return Split(randomness.below(seed, "split", 0, self.tokens), self.tokens - test, test)

    def train_ids(self, seed: int) -> Ids:
        """The train set, in order."""
        split = self.split(seed)
        return np.roll(self.ids, -split.offset)[: split.train]

    def test_ids(self, seed: int) -> Ids:
        """The test set, in order."""
        split = self.split(seed)
        return self.ids[(split.offset + split.train + np.arange(split.test)) % self.tokens]

    def described_in(self, experiment: Experiment) -> Experiment:
        """The experiment with this corpus's facts filled in."""
        return replace(
            experiment,
            corpus=self.source,
            kind=self.vocabulary.kind,
            encoding=self.encoding,
            min_count=self.min_count,
            sha256=self.sha256,
            tokens=self.tokens,
            unique=self.unique,
        )

    def unigram_perplexity(self, split_seed: int = 0) -> float:
        """Of the test set, under the train set's frequencies: what knowing nothing but frequencies gives."""
        return float(np.exp(-np.log(self._frequencies(split_seed)[self.test_ids(split_seed)]).mean()))

    def bigram_perplexity(self, split_seed: int = 0) -> float:
        """Of the test set, each token given the one before; unseen pairs fall back on the frequencies."""
        train, test = self.train_ids(split_seed), self.test_ids(split_seed)
        seen, times = np.unique(train[:-1].astype(np.int64) * self.unique + train[1:], return_counts=True)
        wanted = test[:-1].astype(np.int64) * self.unique + test[1:]
        place = np.minimum(np.searchsorted(seen, wanted), len(seen) - 1)
        pairs = np.where(seen[place] == wanted, times[place], 0)
        firsts = np.bincount(train[:-1], minlength=self.unique)[test[:-1]]
        conditional = (pairs + self._frequencies(split_seed)[test[1:]]) / (firsts + 1)
        return float(np.exp(-np.log(conditional).mean()))

    def _frequencies(self, split_seed: int) -> NDArray[np.float64]:
        counts = np.bincount(self.train_ids(split_seed), minlength=self.unique) + 1.0
        return np.asarray(counts / counts.sum())


def _read_folder(folder: Path, encoding: str, notes: list[str]) -> bytes:
    """Every text file, each folder's own files sorted and then its subfolders; the rest is skipped and counted."""
    parts, skipped = [], 0
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for name in sorted(f for f in files if not f.startswith(".")):
            path = Path(place, name)
            try:
                content = path.read_bytes()
                content.decode(encoding)
            except (UnicodeDecodeError, OSError):
                skipped += 1
                continue
            if b"\0" in content and codecs.lookup(encoding).name == "utf-8":
                skipped += 1
                continue
            parts.append(content)
    if not any(parts):
        raise CorpusError(f"{folder} has no text in it ({skipped} files that are not text were skipped).")
    notes.append(f"{len(parts):,} text files read; {skipped:,} files skipped because they are not {encoding} text.")
    return b"".join(parts)


def _refuse_impostors(content: bytes, source: str) -> None:
    """A file that is not what its owner thinks it is."""
    if content.startswith(b"version https://git-lfs.github.com/spec/"):
        raise CorpusError(f"{source} is a Git-LFS pointer, not the text itself. Run `git lfs pull` where it came from.")
    if content[:512].removeprefix(codecs.BOM_UTF8).lstrip().lower().startswith((b"<!doctype html", b"<html")):
        raise CorpusError(
            f"{source} is a saved HTML page. Save the raw text instead; "
            "to train on HTML itself, put the file in a folder and name the folder."
        )


def _require_encoding(encoding: str) -> None:
    """Refuse what Python cannot make text with, such as `hex`, which it knows as well."""
    try:
        "a".encode(encoding)
    except UnicodeError:
        return
    except (LookupError, ValueError):
        raise CorpusError(f"--encoding {encoding!r} is not known to Python. Use utf-8, utf-16, latin-1, …") from None


def _decode(content: bytes, encoding: str, source: str, notes: list[str]) -> str:
    """Text from bytes; a mark at the start, and bytes that do not fit, are told with their place."""
    mark = next((mark for mark in _MARKS if content.startswith(mark)), None)
    if mark == codecs.BOM_UTF8 and codecs.lookup(encoding).name == "utf-8":
        content = content[len(mark) :]
        notes.append("A byte-order mark (3 bytes) at the start was left out.")
    elif mark and codecs.lookup(encoding).name == "utf-8":
        raise CorpusError(f"{source} is UTF-16 (it starts with its byte-order mark). Use --encoding {_MARKS[mark]}.")
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        byte = content[error.start] if error.start < len(content) else 0
        raise CorpusError(
            f"{source} is not {encoding}: byte 0x{byte:02X} at offset {error.start:,}. "
            "Say what it is with --encoding, for example latin-1, cp1252 or utf-16."
        ) from None
    if "\0" in text:
        raise CorpusError(f"{source} is not text: it holds a NUL character at position {text.index(chr(0)):,}.")
    return text


def _notes(text: str, ids: Ids, vocabulary: Vocabulary, min_count: int) -> list[str]:
    """What is allowed but should be known."""
    notes = []
    windows_ends = text.count("\r\n")
    if windows_ends:
        notes.append(
            f"{windows_ends:,} Windows line ends (CRLF): each is two tokens. Convert the file if that is not meant."
        )
    counts = np.bincount(ids, minlength=len(vocabulary))
    if len(vocabulary) > MANY_SYMBOLS:
        rare = int((counts < RARE).sum())
        notes.append(
            f"{len(vocabulary):,} different symbols, {rare:,} of them fewer than {RARE} times. "
            f"--min-count {RARE} would make those one unknown symbol."
        )
    if min_count > 1 and UNKNOWN in vocabulary.symbols:
        unknown = int(counts[vocabulary.symbols.index(UNKNOWN)])
        notes.append(f"{unknown:,} tokens rarer than --min-count {min_count} became {UNKNOWN}.")
    return notes
