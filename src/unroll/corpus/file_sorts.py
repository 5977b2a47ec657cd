"""What a file of a folder is: text, compressed text, music, or something else that has a name."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from io import BytesIO
from typing import BinaryIO

from unroll.base.errors import ConfigurationError, CorpusError
from unroll.corpus import compressed, folders, formats, tables
from unroll.corpus.chosen_files import Choice
from unroll.corpus.folders import Entry
from unroll.corpus.music import reading

TEXT, COMPRESSED, MUSIC, OTHER = "text", "compressed text", "music", "other"
STARTS = 1 << 18  # bytes of a compressed file that hold the start of its text
LOOK = 1 << 12  # bytes by which most files that are no text are known
WHOLLY_CHECKED = 1 << 24  # files up to this size are checked to their end before they are taken from a folder
NO_FILE = formats.Format("a special file", "")
EMPTY = formats.Format("an empty file", "")
UNKNOWN = formats.Format("a binary file", "")


@dataclass(frozen=True)
class Looked:
    """A file and its sort."""

    entry: Entry
    sort: str
    form: formats.Format | None = None  # of other files: what they are
    table: bool = False  # whether a text looks like one


def is_music(entry: Entry) -> bool:
    """Whether a file's name says that it is MIDI."""
    return entry.name.lower().endswith(reading.SUFFIXES)


def may_be_compressed(entry: Entry) -> bool:
    """Whether a file's name says that it is compressed."""
    return entry.name.lower().endswith(compressed.SUFFIXES)


def look(entry: Entry, choice: Choice) -> Looked:
    """What a file is; one that is made as it is read, without a size, is not even opened."""
    if is_music(entry):
        return Looked(entry, MUSIC)
    if not entry.regular:
        return Looked(entry, OTHER, NO_FILE)
    if not entry.size:
        return Looked(entry, OTHER, EMPTY)
    try:
        with folders.open_file(entry.path) as file:
            first = folders.read_piece(file, LOOK)
            compression = compressed.compression_of(first)
            if compression:
                file.seek(0)
                return _look_inside(entry, compression, file.read(STARTS), choice)
            form = formats.recognise(first)
            if form is not None:
                return Looked(entry, OTHER, form)
            if not _is_text(entry, first, file, choice):
                return Looked(entry, OTHER, UNKNOWN)
            return Looked(entry, TEXT, table=_is_table(entry, first))
    except OSError:
        return Looked(entry, OTHER, formats.Format("an unreadable file", ""))


def is_text(entry: Entry, choice: Choice) -> bool:
    """Whether a file can be read as text, whatever format it may be."""
    if not entry.regular or not entry.size:
        return False
    try:
        with folders.open_file(entry.path) as file:
            first = folders.read_piece(file, LOOK)
            return bool(first) and not first.startswith(formats.LFS_POINTER) and _is_text(entry, first, file, choice)
    except OSError:
        return False


def _is_text(entry: Entry, first: bytes, file: BinaryIO, choice: Choice) -> bool:
    try:
        decoder = _decoder(choice)
        if "\0" in decoder.decode(first):
            return False
        rest = folders.read_piece(file, min(entry.size, WHOLLY_CHECKED - LOOK))
        return "\0" not in decoder.decode(rest, final=not folders.read_piece(file, 1))
    except UnicodeError:  # UTF-16 without its mark is no UnicodeDecodeError
        return False


def _look_inside(entry: Entry, compression: str, content: bytes, choice: Choice) -> Looked:
    """What a compressed file is, by the start of what it holds."""
    room = compressed.Room(entry.path, 0)
    try:
        start = next(compressed.expanded(BytesIO(content), compression, entry.path, room), b"")
        form = formats.recognise(start)
        if form is None and "\0" not in _decoder(choice).decode(start):
            return Looked(entry, COMPRESSED)
    except ConfigurationError:  # the library that reads it is not at hand, and its name must do
        return Looked(entry, COMPRESSED)
    except (CorpusError, UnicodeError):
        form = None
    return Looked(entry, OTHER, form or formats.Format(f"a {compression} file", ""))


def _decoder(choice: Choice) -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("latin-1" if choice.ascii else choice.encoding)()


def _is_table(entry: Entry, first: bytes) -> bool:
    return entry.name.lower().endswith(tables.ENDINGS) or tables.looks_like(first) is not None
