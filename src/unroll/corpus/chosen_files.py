"""Which files of a folder belong to a corpus: its text files, as far as a choice leaves them in."""

from __future__ import annotations

import codecs
import fnmatch
import os
from dataclasses import dataclass

from unroll.base.errors import CorpusError
from unroll.corpus import folders
from unroll.corpus.folders import Entry
from unroll.corpus.recorded_size import Extent, Recorded

LOOK = 1 << 12  # bytes by which most files that are no text are known
WHOLLY_CHECKED = 1 << 24  # files up to this size are checked to their end before they are taken from a folder


@dataclass(frozen=True)
class Choice:
    """Which files of a folder, and which of their bytes, belong to a corpus."""

    ext: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    ascii: bool = False
    encoding: str = "utf-8"


def text_files(source: str, choice: Choice, recorded: Recorded | None = None) -> tuple[list[Entry], list[Entry], int]:
    """The text files of a folder, its other files, and how many folders in it cannot be listed.

    What is only `recorded` in a run is refused where it cannot be the text that the run was trained on.
    """
    listed, unlisted = _listed(source, choice, recorded)
    if recorded:
        recorded.require_enough(source, Extent.of(entry.size for entry in listed))
    chosen: list[Entry] = []
    skipped: list[Entry] = []
    extent = Extent()
    for entry in listed:
        if not _is_text(entry, choice):
            skipped.append(entry)
            continue
        chosen.append(entry)
        extent += Extent(1, entry.size)
        if recorded:
            recorded.require_room(source, extent)
    return chosen, skipped, unlisted


def _listed(source: str, choice: Choice, recorded: Recorded | None) -> tuple[list[Entry], int]:
    """The files of a folder that a choice does not leave out, and how many of its folders cannot be listed."""
    root = os.path.join(source, "")
    failed: list[OSError] = []

    def left_out(path: str) -> bool:
        inside = path.removeprefix(root).replace(os.sep, "/")
        name = inside.rpartition("/")[2]
        return any(fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(inside, pattern) for pattern in choice.exclude)

    try:
        files = list(folders.walk(root, left_out, failed.append, recorded.most_names if recorded else None))
    except folders.TooManyNames:
        assert recorded
        raise recorded.unlike(source, f"more than {recorded.most_names:,} names in it") from None
    if failed and not files:
        raise CorpusError(f"{source} cannot be read: {failed[0].strerror}.")
    return [entry for entry in files if not choice.ext or entry.name.endswith(choice.ext)], len(failed)


def _is_text(entry: Entry, choice: Choice) -> bool:
    """Whether a file of a folder is text; one that is made as it is read, without a size, is not even opened."""
    if not entry.regular or not entry.size:
        return False
    try:
        with folders.open_file(entry.path) as file:
            first = folders.read_piece(file, LOOK)
            if not first or first.startswith(b"version https://git-lfs.github.com/spec/"):
                return False
            decoder = codecs.getincrementaldecoder("latin-1" if choice.ascii else choice.encoding)()
            if "\0" in decoder.decode(first):
                return False
            rest = folders.read_piece(file, min(entry.size, WHOLLY_CHECKED - LOOK))
            return "\0" not in decoder.decode(rest, final=not folders.read_piece(file, 1))
    except (OSError, UnicodeError):  # UTF-16 without its mark is no UnicodeDecodeError
        return False
