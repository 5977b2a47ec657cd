"""From bytes to ids, in two passes over a stream: count the symbols, then look them up.

Neither pass holds the text. A large corpus's ids go into the cache (`cached_ids.py`), and are memory-mapped from there;
where the cache cannot be written they are held in memory, and that is said. Both passes are hashed: a text that changes
between them is refused.
"""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from unroll.base import cached_files
from unroll.base.errors import CorpusError, SaveError, SymbolError
from unroll.corpus import formats, tokens
from unroll.corpus.cached_ids import Facts, Shelf
from unroll.corpus.datasets import PAPER_BLOBS, git_blob
from unroll.corpus.file_stream import Source, changed
from unroll.corpus.tokens import UNKNOWN, Ids, Vocabulary, smallest_type
from unroll.experiment import provenance

CACHED_FROM = 1 << 25  # bytes: smaller corpora are encoded in less time than it takes to notice
SAMPLED = 1 << 16  # bytes that a kind is guessed from, and the look of a table
_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def _reading(kind: str, encoding: str, min_count: int, separator: str | None) -> str:
    """How a text is read, beside its kind's name: a kind of another package is known by its source as well."""
    between_fields = repr(separator) if separator else None
    return " ".join(filter(None, (encoding, str(min_count), between_fields, provenance.written("tokens", kind))))


def encode(
    source: Source, kind: str, encoding: str, min_count: int, separator: str | None = None
) -> tuple[Vocabulary, Facts, Ids, tuple[str, ...]]:
    """The vocabulary, facts and ids of a source, from the cache where it has them; and notes about the cache."""
    if kind == "auto":
        kind = "ids" if separator else source.kind or tokens.guess_kind(sample(source))
    reader = tokens.load(kind, separator)
    large = source.size >= CACHED_FROM and bool(source.fingerprint)
    shelf = Shelf(source.fingerprint, kind, _reading(kind, encoding, min_count, separator)) if large else None
    in_cache = shelf.find() if shelf else None
    if in_cache:
        return Vocabulary(in_cache[0].kind, in_cache[0].symbols, separator), *in_cache, ()
    hashed = _Hashed(source, marked=not tokens.reads_bytes(kind) and _is_utf8(encoding))
    counts = reader.counts(_read(hashed.pieces(), kind, encoding, source))
    if not counts:
        raise CorpusError(f"{source.called} is empty: it holds no tokens.")
    vocabulary = Vocabulary.counted(counts, kind, min_count, separator)
    kept = [counts.get(symbol, 0) for symbol in vocabulary.symbols]
    if UNKNOWN in vocabulary.symbols:
        kept[vocabulary.symbols.index(UNKNOWN)] += sum(counts.values()) - sum(kept)
    facts = Facts(
        kind,
        vocabulary.symbols,
        tuple(kept),
        sum(kept),
        hashed.sha256,
        PAPER_BLOBS.get(hashed.blob),
        hashed.crlf_count,
        hashed.marks,
    )

    def arrays() -> Iterator[Ids]:
        return _arrays(hashed, vocabulary, facts, encoding)

    return vocabulary, facts, *(_kept(shelf, facts, arrays, source) if shelf else (_held(arrays(), facts), ()))


def _arrays(hashed: _Hashed, vocabulary: Vocabulary, facts: Facts, encoding: str) -> Iterator[Ids]:
    """The ids, by a second pass over the text, which must be what it was in the first."""
    source, done = hashed.source, 0
    try:
        for ids in vocabulary.encode_pieces(_read(hashed.again(), facts.kind, encoding, source)):
            done += len(ids)
            if done > facts.tokens:
                break
            yield ids
    except SymbolError:
        raise changed(source.called) from None
    except CorpusError:
        if source.fingerprint_now() != source.fingerprint:
            raise changed(source.called) from None
        raise
    if done != facts.tokens or hashed.sha256_again != hashed.sha256:
        raise changed(source.called)


def _held(arrays: Iterable[Ids], facts: Facts) -> Ids:
    """Ids in memory."""
    held: Ids = np.empty(facts.tokens, smallest_type(len(facts.symbols)))
    done = 0
    for ids in arrays:
        held[done : done + len(ids)] = ids
        done += len(ids)
    return held


def _kept(
    shelf: Shelf, facts: Facts, arrays: Callable[[], Iterable[Ids]], source: Source
) -> tuple[Ids, tuple[str, ...]]:
    """Ids in the cache with an index to them; or in memory, where the cache cannot be written, and what to say then."""
    try:
        ids, digest = shelf.keep_ids(facts.sha256, facts.tokens, len(facts.symbols), arrays())
    except SaveError as error:
        return _held(arrays(), facts), (
            f"{error} The ids of this corpus are made anew each time. {cached_files.REMEDY}",
        )
    # Where the files have changed since they were looked at, nothing is known of what they hold now.
    if source.fingerprint_now() != source.fingerprint:
        return ids, ()
    try:
        shelf.keep_index(facts, digest)
    except SaveError as error:
        return ids, (f"{error} The ids of this corpus are made anew each time. {cached_files.REMEDY}",)
    return ids, ()


class _Hashed:
    """The source's pieces, without their mark, hashed and looked at as they pass by."""

    def __init__(self, source: Source, marked: bool) -> None:
        self.source, self.marked = source, marked  # whether a byte-order mark at the start is dropped
        self.crlf_count = self.marks = 0
        self.sha256 = self.sha256_again = self.blob = ""

    def pieces(self) -> Iterator[bytes]:
        """The first pass."""
        sha256 = hashlib.sha256()
        # A git blob's id begins with its size, which dropping bytes may change: small sources are gathered for it.
        small: list[bytes] | None = [] if self.source.size < CACHED_FROM else None
        last = b""
        for number, piece in enumerate(self.source.pieces()):
            sha256.update(piece)
            if small is not None:
                small.append(piece)
            if b"\r" in piece or last == b"\r":  # a look for one byte is ten times as fast as a count of two
                self.crlf_count += piece.count(b"\r\n") + (last == b"\r" and piece[:1] == b"\n")
            last = piece[-1:] or last
            yield self._unmarked(piece) if number == 0 else piece
        self.sha256 = sha256.hexdigest()
        if small is not None:
            self.blob = git_blob(b"".join(small))

    def again(self) -> Iterator[bytes]:
        """The second pass."""
        sha256 = hashlib.sha256()
        for number, piece in enumerate(self.source.pieces()):
            sha256.update(piece)
            yield self._unmarked(piece) if number == 0 else piece
        self.sha256_again = sha256.hexdigest()

    def _unmarked(self, first: bytes) -> bytes:
        if self.marked and first.startswith(codecs.BOM_UTF8):
            self.marks = 1
            return first.removeprefix(codecs.BOM_UTF8)
        return first


def _read(pieces: Iterable[bytes], kind: str, encoding: str, source: Source) -> Iterator[Any]:
    """Pieces as a kind reads them: bytes as they are, or text; an error names what does not fit, and where."""
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
            position = characters + text.index("\0")
            raise CorpusError(
                f"{source.called} is not text: it holds a NUL character at position {position:,}. "
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
    # A run reads other texts as it read its corpus, so the advice must be right for those too.
    return CorpusError(
        f"{source.called} is not {encoding}: {what}. Convert it, or train with what it is: "
        "--encoding latin-1, cp1252, utf-16-le, …; or as it is, with --kind bytes."
    )


def _refuse_impostors(first: bytes, source: Source, encoding: str) -> None:
    """A file that is not what its owner thinks it is."""
    mark = next((mark for mark in _MARKS if first.startswith(mark)), None)
    if mark and _is_utf8(encoding):
        raise CorpusError(
            f"{source.called} is UTF-16 (it starts with its byte-order mark). "
            "Convert it, or train with --encoding utf-16."
        )
    if not source.single:
        return
    form = formats.recognise(first)
    if form is not None:
        raise CorpusError(f"{source.called} is {form.name}, not text. {form.advice}")
    if first[:512].lstrip().lower().startswith((b"<!doctype html", b"<html")):
        raise CorpusError(
            f"{source.called} is a saved HTML page. Save the raw text instead; "
            "to train on HTML itself, put the file in a folder and name the folder."
        )


def _is_utf8(encoding: str) -> bool:
    return codecs.lookup(encoding).name == "utf-8"


def require_encoding(encoding: str) -> None:
    """Refuse what Python cannot make text with: it knows `hex` too, for one."""
    try:
        "a".encode(encoding)
        codecs.getincrementaldecoder(encoding)
    except UnicodeError:
        return
    except (LookupError, ValueError):
        raise CorpusError(f"--encoding {encoding!r} is not known to Python. Use utf-8, utf-16, latin-1, …") from None


def sample(source: Source) -> bytes:
    """The first bytes of a source, enough to see what they are."""
    return b"".join(_first(source.pieces(), SAMPLED))


def _first(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    for piece in pieces:
        yield piece[:size]
        size -= len(piece)
        if size <= 0:
            return
