"""Which files of a folder a run was trained on: those whose number and bytes are what the run recorded.

The folder may hold more than they, and the rule of `folder_choice.py` may have been another one when the run was made.
So each choice that any version may have made is held against what was recorded. A run may come from a stranger, too:
no more is opened than a text of the recorded size can need.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from unroll.base.errors import CorpusError, counted
from unroll.corpus import file_sorts
from unroll.corpus.chosen_files import Choice
from unroll.corpus.file_sorts import COMPRESSED, MUSIC, OTHER, TEXT
from unroll.corpus.folder_choice import Taken
from unroll.corpus.folders import Entry
from unroll.corpus.music import reading
from unroll.corpus.recorded_size import Extent, Recorded


def take(source: str, listed: Sequence[Entry], choice: Choice, kind: str, recorded: Recorded) -> Taken:
    """The files that the run was trained on; a CorpusError where they are not there."""
    recorded.require_enough(source, _extent(listed))
    music = [entry for entry in listed if file_sorts.is_music(entry)]
    # Versions before 0.1 knew three endings.
    music_before = [entry for entry in music if entry.name.lower().endswith(reading.PLAIN_SUFFIXES)]
    if kind in ("notes", "auto") and recorded.extent.files:
        for entries in (music, music_before):
            if entries and recorded.is_same(_extent(entries)):
                return _taken(entries, MUSIC)
    everything = [entry for entry in listed if entry.regular and entry.size]
    if kind == "bytes" and recorded.extent.files and recorded.is_same(_extent(everything)):
        return _taken(everything, OTHER)
    texts = _texts(listed, choice, recorded)
    if texts is not None:
        return texts
    if music_before and not recorded.extent.files:
        recorded.require_same(source, _extent(music_before))
        return _taken(music_before, MUSIC)
    raise _missing(source, listed, recorded)


def _texts(listed: Sequence[Entry], choice: Choice, recorded: Recorded) -> Taken | None:
    """The text files of the folder, or the compressed ones, whichever have the recorded size."""
    plain: list[Entry] = []
    compressed: list[Entry] = []
    plain_size = compressed_size = Extent()
    for entry in listed:
        size = Extent(1, entry.size)
        if file_sorts.is_music(entry):
            continue
        if file_sorts.may_be_compressed(entry):
            if not recorded.is_full(compressed_size) and file_sorts.look(entry, choice).sort == COMPRESSED:
                compressed.append(entry)
                compressed_size += size
        elif not recorded.is_full(plain_size) and file_sorts.is_text(entry, choice):
            plain.append(entry)
            plain_size += size
    if plain and recorded.is_same(_extent(plain)):
        return _taken(plain, TEXT)
    if compressed and recorded.is_same(_extent(compressed)):
        return _taken(compressed, COMPRESSED)
    known = [entry for entry in plain if file_sorts.look(entry, choice).sort == TEXT] if plain else []
    return _taken(known, TEXT) if known and recorded.is_same(_extent(known)) else None


def _missing(source: str, listed: Sequence[Entry], recorded: Recorded) -> CorpusError:
    regular = [entry for entry in listed if entry.regular and entry.size]
    if not regular:
        return CorpusError(f"{source} has no text in it ({counted(len(listed), 'file')} skipped, not text).")
    return recorded.unlike(source, f"no files of that number and size among its {_extent(regular)}")


def _extent(entries: Iterable[Entry]) -> Extent:
    return Extent.of(entry.size for entry in entries)


def _taken(entries: list[Entry], sort: str) -> Taken:
    return Taken(entries, sort, f"{counted(len(entries), 'file')} of the run read.")
