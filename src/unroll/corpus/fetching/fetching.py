"""The paper's four data sets: downloaded on request or brought as a file, and in the cache whole or not at all.

    NAME.txt        the data set
    NAME.json       where it came from
    NAME.part       a download that stopped; the next one goes on from there
    NAME.part.json  what it is a part of
    NAME.lock       held while NAME is fetched

The git blob id alone decides whether a file is the paper's own. Any other is a reconstruction, and only by hand.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from unroll.base import atomic_files, locks, plain_files
from unroll.base.cache import cache_folder
from unroll.base.errors import ConfigurationError, CorpusError, did_you_mean
from unroll.corpus.datasets import DATASETS, PAPER_BLOBS
from unroll.corpus.fetching.downloading import Part, Progress, read_json, require_space, saving
from unroll.corpus.fetching.web import Fault, can_ask, without_password

BASE = "https://raw.githubusercontent.com/cedricdeboom/character-level-rnn-datasets/master/datasets/"
RETRIES = 3
BACK_OFF = 0.5  # seconds before the first retry, doubled for each further one
TIMEOUT = (10.0, 30.0)  # seconds to connect, and until all headers are there, and between two pieces
PACE = (1 << 15, 30.0)  # bytes of content that must come, and in how many seconds
PER_TOKEN = 8  # bytes at most: UTF-8 has characters of four, and a note with its space takes four; and twice that
_BLOBS = {name: blob for blob, name in PAPER_BLOBS.items()}


@dataclass(frozen=True)
class PaperFile:
    """A data set as the paper's authors publish it, with the counts that the paper prints."""

    name: str
    file: str
    blob: str
    tokens: int
    unique: int
    note: str = ""
    size: int | None = None  # in bytes, where somebody had the file and looked

    @property
    def url(self) -> str:
        """Where the authors keep it."""
        return BASE + self.file

    @property
    def at_most(self) -> int:
        """How many bytes it can have."""
        return PER_TOKEN * self.tokens if self.size is None else self.size


PAPER = {
    paper.name: paper
    for paper in (
        PaperFile("english", "shakespeare.txt", _BLOBS["english"], 6_347_705, 85),
        PaperFile("finnish", "finnish.txt", _BLOBS["finnish"], 10_976_530, 106),
        PaperFile("linux", "linux.txt", _BLOBS["linux"], 6_546_665, 97, size=6_546_665),
        PaperFile(
            "music", "music.txt", _BLOBS["music"], 1_553_852, 90, "Whether the paper counts line ends is not known."
        ),
    )
}


@dataclass(frozen=True)
class Installed:
    """A data set that can be read now, from the cache or from $UNROLL_DATA."""

    name: str
    path: Path
    paper: bool
    origin: str


@dataclass(frozen=True)
class Digest:
    """What identifies a file's content."""

    blob: str
    sha256: str
    bytes: int

    @classmethod
    def of(cls, path: Path) -> Digest:
        """Read piece by piece: a corpus may be larger than the memory."""
        with plain_files.open_to_read(path) as file:
            size = os.fstat(file.fileno()).st_size
            blob, sha256 = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False), hashlib.sha256()
            for piece in _pieces(file, size):
                blob.update(piece)
                sha256.update(piece)
        return cls(blob.hexdigest(), sha256.hexdigest(), size)


def _pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    """What a file held when it was opened, and nothing that is added on the way."""
    while size > 0 and (piece := file.read(min(size, 1 << 20))):
        size -= len(piece)
        yield piece


def installed(name: str) -> Installed | None:
    """The data set of this name: the paper's own file wherever there is one, and $UNROLL_DATA before the cache."""
    if name not in PAPER:
        return None
    cached = _inspect(name, _folder() / f"{name}.txt")
    if cached and cached.paper:
        return cached
    given = os.environ.get("UNROLL_DATA")
    names = dict.fromkeys((f"{name}.txt", PAPER[name].file)) if given else ()
    found = [_inspect(name, Path(given or "", each)) for each in names]
    return max((each for each in (*found, cached) if each), key=lambda each: each.paper, default=None)


def fetch(
    name: str,
    from_file: Path | None = None,
    url: str | None = None,
    progress: Progress | None = None,
    *,
    retries: int = RETRIES,
    timeout: tuple[float, float] = TIMEOUT,
    pace: tuple[int, float] = PACE,
    sleep: Callable[[float], None] = time.sleep,
) -> Installed:
    """Install a data set: the paper's own from its URL (or a mirror's), or any file, as what its blob id says it is.

    `progress` gets bytes done and bytes in all, where known; what is done never decreases. A download that was stopped
    goes on from where it was. Where the paper's own file is installed there is nothing to do. A server that sends more
    than the file can have is cut off, and so is one that is silent for longer than `timeout` or slower than `pace`.
    """
    _require(name, from_file, url)
    paper, reached = PAPER[name], 0

    def report(done: int, total: int | None) -> None:
        nonlocal reached
        reached = max(reached, done)
        if progress:
            progress(reached, total)

    if from_file is None and (here := installed(name)) and here.paper:
        return here
    with _held(name) as folder:
        if from_file is not None:
            return _bring(paper, folder, Path(from_file), report)
        if (here := installed(name)) and here.paper:  # another process was faster
            return here
        part = Part(folder / f"{name}.part", url or paper.url, report, paper.at_most, timeout, pace)
        return _download(paper, part, retries, sleep)


def _folder() -> Path:
    return cache_folder() / "datasets"


def _inspect(name: str, path: Path) -> Installed | None:
    note = read_json(path.with_suffix(".json")) if path.parent == _folder() else {}
    try:
        if not path.is_file():
            return None
        # A file that can be neither the paper's nor what the note is about is not read: it may be of any size.
        size = path.stat().st_size
        blob = Digest.of(path).blob if size <= PAPER[name].at_most or size == note.get("bytes") else None
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror or error}.") from None
    origin = note.get("origin")
    # A note about another content says nothing about this one.
    known = blob is not None and note.get("blob") == blob and isinstance(origin, str) and origin.isprintable()
    return Installed(name, path, blob == PAPER[name].blob, str(origin if known else path))


def _require(name: str, from_file: Path | None, url: str | None) -> None:
    if name in DATASETS:
        raise ConfigurationError(f"{name} is made on this machine: there is nothing to fetch.")
    if name not in PAPER:
        raise ConfigurationError(f"Cannot fetch {name}. Known: {', '.join(PAPER)}.{did_you_mean(name, PAPER)}")
    if from_file is not None and url is not None:
        raise ConfigurationError("A data set comes from a file or from a URL. Got both: leave one out.")
    if url is not None and not (re.match(r"https?://[^/\s]+/", url) and url.isprintable()):
        shown = without_password(url)
        shown = shown if shown.isprintable() else ascii(shown)
        raise ConfigurationError(f"A URL begins with http:// or https:// and a host. Got {shown}. For a file: --from.")


@contextmanager
def _held(name: str) -> Iterator[Path]:
    """The folder, with this name in it held by this process; another one waits."""
    folder = _folder()
    with ExitStack() as stack:
        with saving(lock := folder / f"{name}.lock"):
            folder.mkdir(parents=True, exist_ok=True)
            handle = stack.enter_context(plain_files.open_to_hold(lock))
            locks.take(handle.fileno(), wait=True)
        yield folder


def _install(paper: PaperFile, temporary: Path, found: Digest, origin: str) -> Installed:
    """Put a file in place that has been checked. A note without its file means nothing, so the note goes first."""
    target, own = temporary.with_name(f"{paper.name}.txt"), found.blob == paper.blob
    note = asdict(found) | {"origin": origin, "paper": own, "fetched": datetime.now(UTC).date().isoformat()}
    with saving(target):
        with plain_files.open_to_append(temporary) as file:
            os.fsync(file.fileno())
        atomic_files.write(target.with_suffix(".json"), json.dumps(note, indent=2).encode() + b"\n")
        os.replace(temporary, target)
        atomic_files.sync_folder(target.parent)
    return Installed(paper.name, target, own, origin)


def _bring(paper: PaperFile, folder: Path, source: Path, report: Progress) -> Installed:
    try:
        if not source.is_file():
            what = "Not a plain file" if source.exists() and not source.is_dir() else "No such file"
            raise CorpusError(f"{what}: {source}.")
        given = Digest.of(source)
    except OSError as error:
        raise CorpusError(f"{source} cannot be read: {error.strerror or error}.") from None
    if given.bytes == 0:
        raise CorpusError(f"{source} is empty: there is nothing to train on.")
    here = _inspect(paper.name, folder / f"{paper.name}.txt")
    if here and here.paper:
        if given.blob == paper.blob:
            return here
        raise ConfigurationError(
            f"The paper's own {paper.name} is installed, and {source} is another text (git blob {given.blob}). "
            f"Train on it by its path, or delete {here.path} first."
        )
    with saving(folder):
        _clear_copies(paper.name, folder)
    require_space(folder / f"{paper.name}.txt", given.bytes)
    temporary, done = folder / f"{paper.name}.txt.{os.getpid()}-{secrets.token_hex(4)}{atomic_files.PARTIAL}", 0
    try:
        with saving(folder / f"{paper.name}.txt"):
            with plain_files.open_to_read(source) as incoming, plain_files.open_new(temporary) as outgoing:
                for piece in _pieces(incoming, given.bytes):
                    done += outgoing.write(piece)
                    report(done, given.bytes)
            if Digest.of(temporary) != given:
                raise OSError("what was read back is not what was written")
        return _install(paper, temporary, given, str(source.resolve()))
    finally:
        with suppress(OSError):
            temporary.unlink()


def _clear_copies(name: str, folder: Path) -> None:
    """What a killed process left of a copy; this one holds the name, so no other is making one."""
    for path in folder.iterdir():
        if re.fullmatch(rf"{name}\.txt(\.\d+-[0-9a-f]{{8}})?{re.escape(atomic_files.PARTIAL)}", path.name):
            with suppress(OSError):
                path.unlink()


def _download(paper: PaperFile, part: Part, retries: int, sleep: Callable[[float], None]) -> Installed:
    if not can_ask():
        raise ConfigurationError("Downloading needs the data extra: pip install 'unroll-rnn[data]'.")
    require_space(part.path, paper.tokens - part.size)  # what is known of its size before anything is asked
    failure, again, attempt = "", True, 0
    while again and attempt <= retries:
        if attempt:
            sleep(BACK_OFF * 2 ** (attempt - 1))
        attempt += 1
        try:
            part.go_on()
        except Fault as fault:
            failure, again = _by_hand(paper, str(fault), attempt, part.size), fault.again
            continue
        with saving(part.path):
            found = Digest.of(part.path)
        if found.blob == paper.blob:
            result = _install(paper, part.path, found, part.shown)
            part.clear()
            return result
        part.clear()
        again = part.resumed  # then it may be the old beginning that was wrong
        failure = (
            f"{part.shown} is not the paper's {paper.name}: expected git blob {paper.blob}, got {found.blob} "
            f"({found.bytes:,} bytes). Nothing was installed. "
            f"To use a file as a reconstruction: unroll data fetch {paper.name} --from FILE."
        )
    raise CorpusError(failure)


def _by_hand(paper: PaperFile, reason: str, attempts: int, kept: int) -> str:
    tried = f" after {attempts} attempts" if attempts > 1 else ""
    rest = f" {kept:,} bytes are kept: the same command goes on from there." if kept else ""
    return (
        f"Could not download {paper.name}{tried}: {reason}.{rest} To bring it by hand, get {paper.url} with a browser "
        f"or on another machine, and run `unroll data fetch {paper.name} --from FILE`, "
        f"or put it into a folder as {paper.file} and set $UNROLL_DATA to that folder."
    )
