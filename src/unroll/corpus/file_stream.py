"""The bytes of files, one after the other, as one stream that can be read again and again."""

from __future__ import annotations

import codecs
import hashlib
import json
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from unroll.base.errors import CorpusError, counted
from unroll.corpus import compressed, folders
from unroll.corpus.chosen_files import Choice
from unroll.corpus.folders import Entry
from unroll.corpus.recorded_size import Extent, Recorded

STANDARD_INPUT = "-"
PIECE = 1 << 22  # bytes read at a time
FIRST_PIECE = 1 << 16  # bytes that are enough to guess what a text is
_ABOVE_ASCII = bytes(range(128, 256))
# Encodings whose files say themselves which byte comes first.
_ORDERS = {
    "utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
    "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
}


@dataclass(frozen=True)
class Source:
    """Bytes that can be read again and again."""

    where: str  # as a run records it
    title: str
    size: int  # bytes at most
    pieces: Callable[[], Iterator[bytes]]
    fingerprint: str = ""  # changes when the content does; "" where reading the content costs no more
    fingerprint_now: Callable[[], str] = str  # the same, looked at again
    kind: str | None = None  # where the form decides it
    single: bool = False  # one file, which may turn out to be an impostor
    notes: tuple[str, ...] = ()
    extent: Extent = field(default_factory=Extent)  # of the files at a path

    @property
    def called(self) -> str:
        """The name that messages use."""
        return self.title if self.where in ("", STANDARD_INPUT) else self.where


def entry_at(path: str | os.PathLike[str]) -> Entry:
    """A file by its name."""
    try:
        return Entry(os.fspath(path), os.path.basename(path), os.stat(path))
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {reason(error)}.") from None


def of_files(
    where: str,
    title: str,
    entries: Sequence[Entry],
    choice: Choice,
    single: bool,
    recorded: Recorded | None = None,
    expand: bool = False,
) -> Source:
    """The source that files make; those that are compressed are expanded if that is asked for."""
    marks = _ORDERS.get(codecs.lookup(choice.encoding).name, ())
    extent = Extent.of(entry.size for entry in entries)

    def contents() -> Iterator[bytes]:
        order = b""  # the first file's mark, which stays: all that follows is read in the order of bytes that it names
        for piece, begins in _all_pieces(where, entries, extent, recorded, expand):
            # The mark at the start of a file is no text; that of a single file is named as well.
            if begins:
                mark = b""
                if not single:
                    piece = piece.removeprefix(codecs.BOM_UTF8)
                    mark = next((mark for mark in marks if piece.startswith(mark)), b"")
                    piece = piece.removeprefix(mark) if order else piece
                    order = order or mark
            yield chosen_bytes(piece if mark in (b"", order) else _swapped(piece, len(mark)), choice)

    size = compressed.Room(where, extent.bytes).most if expand else extent.bytes
    return Source(
        where,
        title,
        size,
        lambda: _together(contents()),
        _fingerprint(entries, choice),
        lambda: _fingerprint([entry_at(entry.path) for entry in entries], choice),
        single=single,
        extent=extent,
    )


def _all_pieces(
    where: str, entries: Sequence[Entry], extent: Extent, recorded: Recorded | None, expand: bool
) -> Iterator[tuple[bytes, bool]]:
    """The pieces of all files, and whether each begins a file; no more of them than a recorded run can have read."""
    room = recorded.most_bytes if recorded else 0
    most_expanded = recorded.most_expanded if recorded else None
    expansion = compressed.Room(where, extent.bytes, most_expanded)
    for entry in entries:
        begins = True
        for piece in expanded_file(entry, expansion) if expand else _read(entry):
            room -= 0 if expand else len(piece)
            if recorded and room < 0:  # the system said that it is smaller
                raise recorded.unlike(where, f"more than {counted(recorded.most_bytes, 'byte')}")
            yield piece, begins
            begins = False


def expanded_file(entry: Entry, room: compressed.Room) -> Iterator[bytes]:
    """What a file holds once it is expanded, or what it holds where it is not compressed."""
    try:
        with folders.open_file(entry.path) as file:
            first = folders.read_piece(file, 8)
            file.seek(0)
            compression = compressed.compression_of(first)
            if compression is None:
                yield from _read(entry)
            else:
                yield from compressed.expanded(file, compression, entry.path, room)
    except OSError as error:
        raise CorpusError(f"{entry.path} cannot be read: {reason(error)}.") from None


def head(entry: Entry, size: int) -> bytes:
    """The first bytes of a file."""
    try:
        with folders.open_file(entry.path) as file:
            return folders.read_piece(file, size)
    except OSError as error:
        raise CorpusError(f"{entry.path} cannot be read: {reason(error)}.") from None


def _fingerprint(entries: Sequence[Entry], choice: Choice) -> str:
    """A hash of all that the system says of files and that changes with their content."""
    facts = [[os.path.abspath(entry.path), *_facts(entry.status)] for entry in entries]
    return hashlib.sha256(json.dumps([facts, choice.ascii]).encode("utf-8", "surrogatepass")).hexdigest()


def _facts(status: os.stat_result | None) -> list[int]:
    # A program can put size and time of a file back, but not the time of its last change.
    names = ("st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")
    return [getattr(status, name) for name in names] if status else []


def _together(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of a good size: what is done for each piece would be done for each of 100,000 files."""
    small: list[bytes] = []
    size, enough = 0, FIRST_PIECE
    for piece in pieces:
        small.append(piece)
        size += len(piece)
        if size >= enough:
            yield b"".join(small)
            small, size, enough = [], 0, PIECE
    if small:
        yield b"".join(small)


def _swapped(piece: bytes, width: int) -> bytes:
    """Numbers of `width` bytes in the other order."""
    whole = len(piece) // width * width
    numbers = array("H" if width == 2 else "I", piece[:whole])
    numbers.byteswap()
    return numbers.tobytes() + piece[whole:]


def chosen_bytes(piece: bytes, choice: Choice) -> bytes:
    """The bytes of a piece that belong to the corpus."""
    return piece.translate(None, _ABOVE_ASCII) if choice.ascii else piece


def _read(entry: Entry) -> Iterator[bytes]:
    """The bytes of a file; no more of them than it had when it was looked at, where the system says how many."""
    done = 0
    try:
        with folders.open_file(entry.path) as file:
            while piece := folders.read_piece(file, PIECE):
                done += len(piece)
                if done > entry.size > 0:
                    raise changed(entry.path)
                yield piece
    except OSError as error:
        raise CorpusError(f"{entry.path} cannot be read: {reason(error)}.") from None


def changed(where: str) -> CorpusError:
    """The error for a text that is not the same from one look at it to the next."""
    return CorpusError(
        f"{where} changes while it is read, and a corpus is read twice. Wait until it is written, or name a copy of it."
    )


def reason(error: Exception) -> str:
    """The system's own words for an error."""
    return getattr(error, "strerror", None) or str(error)
