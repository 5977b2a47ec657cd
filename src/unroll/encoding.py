"""From bytes to ids, in two passes over a stream: count the symbols, then look them up.

Neither pass holds the text. A large corpus's ids go into the cache, keyed by the hash of its content and of how it is
read, and are memory-mapped from there; an index from the files' names, sizes, times and inodes saves hashing it
again.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unroll import tokens
from unroll.cache import cache_folder
from unroll.datasets import PAPER_BLOBS, git_blob
from unroll.durable import PARTIAL, sync_folder, write
from unroll.errors import CorpusError, SaveError
from unroll.sources import Source
from unroll.tokens import UNKNOWN, Ids, Vocabulary

CACHED_FROM = 1 << 25  # bytes: smaller corpora are encoded in less time than it takes to notice
SAMPLED = 1 << 16  # bytes that a kind is guessed from
VERSION = 1  # of the cache's layout
_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


@dataclass(frozen=True)
class Facts:
    """What is known of a corpus beside its ids."""

    kind: str
    symbols: tuple[str, ...]
    counts: tuple[int, ...]  # of each symbol, in id order
    tokens: int
    sha256: str
    paper: str | None  # the paper's data set of which this is the very file
    windows_ends: int
    marks: int


def encode(source: Source, kind: str, encoding: str, min_count: int) -> tuple[Facts, Ids]:
    """The facts and the ids of a source; from the cache where that has them."""
    if kind == "auto":
        kind = source.kind or tokens.guess_kind(b"".join(_first(source.pieces(), SAMPLED)))
    wanted = f"{VERSION} {kind} {encoding} {min_count}"
    large = source.size >= CACHED_FROM and bool(source.fingerprint)
    folder = cache_folder() / "corpora"
    index = folder / f"{_digest(source.fingerprint + wanted)}.json"
    if large and index.exists():
        found = _cached(folder, index)
        if found:
            return found
    hashed = _Hashed(source, marked=not tokens.reads_bytes(kind) and _is_utf8(encoding))
    counts = tokens.load(kind).counts(_read(hashed.pieces(), kind, encoding, source))
    if not counts:
        raise CorpusError(f"{source.where or source.title} is empty: it holds no tokens.")
    vocabulary = Vocabulary.counted(counts, kind, min_count)
    arrays = vocabulary.encode_pieces(_read(hashed.plain(), kind, encoding, source))
    name = f"{_digest(hashed.sha256 + wanted)}.ids"
    ids: Ids = _store(folder, name, arrays) if large else np.concatenate(list(arrays))
    kept = [counts.get(symbol, 0) for symbol in vocabulary.symbols]
    if UNKNOWN in vocabulary.symbols:
        kept[vocabulary.symbols.index(UNKNOWN)] += sum(counts.values()) - sum(kept)
    facts = Facts(
        kind,
        vocabulary.symbols,
        tuple(kept),
        len(ids),
        hashed.sha256,
        PAPER_BLOBS.get(hashed.blob),
        hashed.windows_ends,
        hashed.marks,
    )
    if large:
        write(index, json.dumps({"ids": name, "facts": asdict(facts)}).encode())
    return facts, ids


class _Hashed:
    """The source's pieces, without their mark, hashed and looked at as they pass by."""

    def __init__(self, source: Source, marked: bool) -> None:
        self.source, self.marked = source, marked  # whether a mark at the start would be no text
        self.windows_ends = self.marks = 0
        self.sha256 = self.blob = ""

    def pieces(self) -> Iterator[bytes]:
        """The first pass."""
        sha256 = hashlib.sha256()
        # A git blob's id begins with its size, which dropping bytes may change: small sources are gathered for it.
        small: list[bytes] | None = [] if self.source.size < CACHED_FROM else None
        last = b""
        for place, piece in enumerate(self.source.pieces()):
            sha256.update(piece)
            if small is not None:
                small.append(piece)
            if b"\r" in piece or last == b"\r":  # a look for one byte is ten times as fast as a count of two
                self.windows_ends += piece.count(b"\r\n") + (last == b"\r" and piece[:1] == b"\n")
            last = piece[-1:] or last
            yield self._unmarked(piece) if place == 0 else piece
        self.sha256 = sha256.hexdigest()
        if small is not None:
            self.blob = git_blob(b"".join(small))

    def plain(self) -> Iterator[bytes]:
        """The second pass."""
        for place, piece in enumerate(self.source.pieces()):
            yield self._unmarked(piece) if place == 0 else piece

    def _unmarked(self, first: bytes) -> bytes:
        if self.marked and first.startswith(codecs.BOM_UTF8):
            self.marks = 1
            return first.removeprefix(codecs.BOM_UTF8)
        return first


def _read(pieces: Iterable[bytes], kind: str, encoding: str, source: Source) -> Iterator[Any]:
    """Pieces as a kind reads them: bytes as they are, or text; what does not fit is told with its place."""
    first = True
    if tokens.reads_bytes(kind):
        yield from pieces
        return
    decoder = codecs.getincrementaldecoder(encoding)()
    before = characters = 0
    for piece in pieces:
        if first:
            _refuse_impostors(piece, source, encoding)
            first = False
        held = len(decoder.getstate()[0])
        try:
            text = decoder.decode(piece)
        except UnicodeError as error:
            raise _misfit(source, encoding, error, before - held) from None
        if b"\0" in piece and "\0" in text:
            place = characters + text.index("\0")
            raise CorpusError(
                f"{source.where} is not text: it holds a NUL character at position {place:,}. "
                "Bytes of any kind can be trained on with --kind bytes."
            )
        before, characters = before + len(piece), characters + len(text)
        yield text
    try:
        rest = decoder.decode(b"", final=True)
    except UnicodeError as error:
        raise _misfit(source, encoding, error, before - len(decoder.getstate()[0])) from None
    if rest:
        yield rest


def _misfit(source: Source, encoding: str, error: UnicodeError, before: int) -> CorpusError:
    what = str(error)  # UTF-16 without its mark, for one, goes wrong at no byte
    if isinstance(error, UnicodeDecodeError):
        byte = error.object[error.start] if error.start < len(error.object) else 0
        what = f"byte 0x{byte:02X} at offset {before + error.start:,}"
    # A trained run reads other texts as it read its own, so the advice must be right for those too.
    return CorpusError(
        f"{source.where} is not {encoding}: {what}. Convert it, or train with what it is: "
        "--encoding latin-1, cp1252, utf-16-le, …; or as it is, with --kind bytes."
    )


def _refuse_impostors(first: bytes, source: Source, encoding: str) -> None:
    """A file that is not what its owner thinks it is."""
    mark = next((mark for mark in _MARKS if first.startswith(mark)), None)
    if mark and _is_utf8(encoding):
        raise CorpusError(
            f"{source.where} is UTF-16 (it starts with its byte-order mark). "
            "Convert it, or train with --encoding utf-16."
        )
    if not source.single:
        return
    if first.startswith(b"version https://git-lfs.github.com/spec/"):
        raise CorpusError(f"{source.where} is a Git-LFS pointer, not the text. Run `git lfs pull` where it came from.")
    if first[:512].lstrip().lower().startswith((b"<!doctype html", b"<html")):
        raise CorpusError(
            f"{source.where} is a saved HTML page. Save the raw text instead; "
            "to train on HTML itself, put the file in a folder and name the folder."
        )


def _is_utf8(encoding: str) -> bool:
    return codecs.lookup(encoding).name == "utf-8"


def require_encoding(encoding: str) -> None:
    """Refuse what Python cannot make text with, such as `hex`, which it knows as well."""
    try:
        "a".encode(encoding)
        codecs.getincrementaldecoder(encoding)
    except UnicodeError:
        return
    except (LookupError, ValueError):
        raise CorpusError(f"--encoding {encoding!r} is not known to Python. Use utf-8, utf-16, latin-1, …") from None


def _store(folder: Path, name: str, arrays: Iterable[Ids]) -> Ids:
    """Write ids to the cache as they come, whole or not at all, and map them into memory."""
    path = folder / name
    temporary = path.with_name(f"{name}.{os.getpid()}{PARTIAL}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            dtype = None
            for ids in arrays:
                dtype = ids.dtype
                file.write(ids.data)
            file.flush()
            os.fsync(file.fileno())
        path_typed = path.with_suffix(f".{dtype}")
        os.replace(temporary, path_typed)
        sync_folder(folder)
    except OSError as error:
        raise SaveError(
            f"Could not write the encoded corpus to {folder}: {error.strerror or error}. "
            "Choose another folder with the environment variable UNROLL_CACHE."
        ) from None
    finally:
        with suppress(OSError):
            temporary.unlink()
    return _mapped(path_typed)


def _mapped(path: Path) -> Ids:
    # Mapped copy-on-write: torch wants memory that could be written, and nobody writes.
    return np.memmap(path, dtype=path.suffix[1:], mode="c")


def _cached(folder: Path, index: Path) -> tuple[Facts, Ids] | None:
    """What the cache holds; None where it is damaged, so that it is made again."""
    try:
        content = json.loads(index.read_text("utf-8"))
        stored: dict[str, Any] = content["facts"]
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in stored.items()}
        facts = Facts(**values)
        (path,) = folder.glob(Path(content["ids"]).stem + ".*int*")
        ids = _mapped(path)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (facts, ids) if len(ids) == facts.tokens else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def _first(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    for piece in pieces:
        yield piece[:size]
        size -= len(piece)
        if size <= 0:
            return
