"""What travels between the driver of a sweep and the workers of a Ray cluster, and in what form.

A corpus goes into Ray's object store once, by what it holds, and from there to each node once; everything else that
names it carries a reference. A run's files travel as they are on disk, in formats that carry their own digests, with
a digest over each that is compared on arrival; on a disk that both sides share, a large file stays where it is.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from unroll.base import untrusted
from unroll.corpus.corpus import Corpus
from unroll.corpus.parts import Part
from unroll.experiment.experiment import Experiment
from unroll.runs.folder import CHECKPOINTS, SIZES, RunFolder
from unroll.sweep.launchers import Job

LARGE = ".safetensors"
CHECKPOINT = re.compile(rf"{CHECKPOINTS}/batch-[0-9]{{9,10}}\.safetensors")
# A run's files in the order in which they are put in place: what a file counts or speaks of is there before it.
ORDER = (
    "vocabulary.json", "metrics.jsonl", "samples.jsonl", CHECKPOINTS, "best.safetensors", "weights.safetensors",
    "status.json",
)  # fmt: skip


@dataclass(frozen=True)
class Parcel:
    """A file of a run: its content, or the path under which it lies on a disk that both sides see."""

    name: str  # seen from the run's folder
    sha256: str | None  # of the content
    content: bytes | None
    path: str | None = None

    @property
    def is_checkpoint(self) -> bool:
        """Whether it is one of the run's checkpoints."""
        return bool(CHECKPOINT.fullmatch(self.name))

    @property
    def rank(self) -> int:
        """Its place in the order in which files are put in place."""
        name = CHECKPOINTS if self.is_checkpoint else self.name
        return ORDER.index(name) if name in ORDER else len(ORDER)

    def is_known(self) -> bool:
        """Whether a run has a file of that name: nothing else is ever written."""
        return self.is_checkpoint or (self.name in SIZES and self.name != "run.toml")


@dataclass(frozen=True)
class Copies:
    """The files of a run that are new since the last time, and the batches whose checkpoints it now keeps."""

    run: int  # its place in the fleet
    experiment: Experiment  # as its run.toml has it
    parcels: tuple[Parcel, ...]
    kept: tuple[int, ...]

    @property
    def ends(self) -> bool:
        """Whether the run has ended: its weights are among them."""
        return any(parcel.name == "weights.safetensors" for parcel in self.parcels)


@dataclass(frozen=True)
class Arrived:
    """A worker has taken up an errand."""

    where: str  # host, process, processor: in words
    node: str  # Ray's name of the node


@dataclass(frozen=True)
class Apart:
    """The node does not see the sweep's folder: this errand needs its files by value."""


@dataclass(frozen=True)
class Unfit:
    """The node must not train: it has these versions."""

    node: str
    versions: str


@dataclass(frozen=True)
class Stopped:
    """The worker was asked to stop, and has saved."""

    signal: int


@dataclass(frozen=True)
class Full:
    """The worker's own disk refused."""

    reason: str


@dataclass(frozen=True)
class Done:
    """The errand is over; nothing comes after this."""


@dataclass(frozen=True)
class Shared:
    """A folder on a disk that the nodes may share, and what must be read in it."""

    folder: str
    nonce: str


@dataclass(frozen=True)
class Errand:
    """One attempt to train a fleet."""

    attempt: str  # no other attempt ever has this name
    job: Job
    versions: Mapping[str, str]
    shared: Shared | None  # where the attempt has a folder of its own; without it in the node's own scratch space
    begun: tuple[dict[str, bytes], ...]  # the files of runs that have begun, where they travel by value
    every: float  # seconds between two messages


def contents(folder: RunFolder) -> dict[str, bytes]:
    """The files that a worker needs to go on with a run; none where it has not begun."""
    if not folder.is_run():
        return {}
    names = ["vocabulary.json", "status.json", "metrics.jsonl", "samples.jsonl"]
    if folder.has_ended():
        names.append("weights.safetensors")
    else:
        checkpoints = untrusted.is_folder(folder.path / CHECKPOINTS)
        names += [f"{CHECKPOINTS}/batch-{batch:09d}.safetensors" for batch in folder.checkpoints() if checkpoints]
    found: dict[str, bytes] = {}
    for name in names:
        if untrusted.present(folder.path / name):
            with untrusted.open_file(folder.path / name) as file:
                found[name] = file.read()
    return found


def digest(content: bytes) -> str:
    """The digest that travels with a content."""
    return hashlib.sha256(content).hexdigest()


# --- corpora ------------------------------------------------------------------------------------------------------


class _Packer(pickle.Pickler):
    """Writes a value with the number of each corpus in it, instead of the corpus."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.corpora: list[Corpus] = []

    def persistent_id(self, thing: Any) -> int | None:
        if not isinstance(thing, Corpus):
            return None
        for number, known in enumerate(self.corpora):
            if known is thing:
                return number
        self.corpora.append(thing)
        return len(self.corpora) - 1


class _Unpacker(pickle.Unpickler):
    def __init__(self, content: bytes, corpora: Callable[[int], Corpus]) -> None:
        super().__init__(io.BytesIO(content))
        self._corpora = corpora

    def persistent_load(self, number: Any) -> Corpus:
        return self._corpora(number)


def pack(value: Any) -> tuple[bytes, list[Corpus]]:
    """A value as bytes, and the corpora in it, which travel apart."""
    content = io.BytesIO()
    packer = _Packer(content)
    packer.dump(value)
    return content.getvalue(), packer.corpora


def unpack(content: bytes, get: Callable[[Any], Any], references: Sequence[Any]) -> Any:
    """The value; each corpus is fetched where it is named."""
    fetched: dict[int, Corpus] = {}

    def corpus(number: int) -> Corpus:
        if number not in fetched:
            fetched[number] = get(references[number])
        return fetched[number]

    return _Unpacker(content, corpus).load()


def in_memory(corpus: Corpus) -> Corpus:
    """A corpus whose ids are plain arrays: those that are mapped from a file travel by what they hold."""

    def plain(part: Part | None) -> Part | None:
        return part and replace(part, ids=np.asarray(part.ids))

    validation, test = plain(corpus.validation_part), plain(corpus.test_part)
    return replace(corpus, ids=np.asarray(corpus.ids), validation_part=validation, test_part=test)


def identity(corpus: Corpus) -> tuple[Any, ...]:
    """What decides whether two corpora are one: what they hold and how they are called."""
    parts = [part and (part.where, part.sha256) for part in (corpus.validation_part, corpus.test_part)]
    vocabulary = corpus.vocabulary.digest
    return corpus.source, corpus.name, corpus.sha256, vocabulary, corpus.min_count, corpus.choice, *parts


def place(scratch: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a run that has begun into a folder where it goes on."""
    for name, content in files.items():
        path = scratch / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
