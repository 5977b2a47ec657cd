"""MIDI files as the paper reads them: pitches in the order of their onsets, nothing else.

All tracks are merged and drums left out. Onsets within a tolerance of the first of a group count as simultaneous; a
group is written low to high, a pitch doubled in it once. A file is a piece, a piece is a line.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from unroll.base.errors import ConfigurationError, CorpusError, SymbolError
from unroll.corpus import compressed, folders
from unroll.corpus.music.midi_bytes import MAX_BYTES, extra, onsets

TOLERANCE = 0.03  # seconds
PLAIN_SUFFIXES = (".mid", ".midi", ".kar")
WRAPPED_SUFFIXES = (".rmi", *(plain + end for plain in (*PLAIN_SUFFIXES, ".rmi") for end in compressed.SUFFIXES))
SUFFIXES = PLAIN_SUFFIXES + WRAPPED_SUFFIXES
_NAMES = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")
_SHIFTS = {"": 0, "#": 1, "♯": 1, "b": -1, "♭": -1}
_NOTE = re.compile(r"([A-Ga-g])([#♯b♭]?)(-?[0-9])")


class MidiError(CorpusError):
    """A MIDI file that cannot be used. The reason's words before a colon name its sort."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} {reason}.")
        self.path, self.reason = path, reason


@dataclass(frozen=True)
class Piece:
    """The notes of one file."""

    path: Path
    notes: tuple[int, ...]


@dataclass(frozen=True)
class Pieces:
    """What a folder of MIDI files came to."""

    pieces: tuple[Piece, ...]
    skipped: tuple[tuple[Path, str], ...] = ()  # a file and what is wrong with it
    duplicates: tuple[tuple[Path, Path], ...] = ()  # a file and the kept one that has the same notes

    @property
    def text(self) -> str:
        """The corpus: a piece a line, numbers separated by spaces."""
        return "".join(" ".join(map(str, piece.notes)) + "\n" for piece in self.pieces)

    def table(self) -> list[str]:
        """The counts, a line each, aligned."""
        notes = [note for piece in self.pieces for note in piece.notes]
        rows = [
            ("files", len(self.pieces) + len(self.skipped) + len(self.duplicates)),
            ("pieces", len(self.pieces)),
            ("notes", len(notes)),
            ("different pitches", len(set(notes))),
            ("duplicates left out", len(self.duplicates)),
            ("skipped", len(self.skipped)),
        ]
        sorts = Counter(reason.partition(":")[0] for _, reason in self.skipped)
        rows += [(f"  {sort}", times) for sort, times in sorted(sorts.items(), key=lambda item: (-item[1], item[0]))]
        wide, digits = max(len(name) for name, _ in rows), max(len(f"{count:,}") for _, count in rows)
        return [f"{name:<{wide}}  {count:>{digits},}" for name, count in rows]


def read_folder(path: str | Path, tolerance: float = TOLERANCE, files: Sequence[Path] | None = None) -> Pieces:
    """A MIDI file, or every one in a folder, or `files` of it: its files sorted, then its subfolders."""
    path = Path(path)
    if files is None and not os.path.isdir(path):
        return Pieces((Piece(path, tuple(read_notes(path, tolerance))),))
    kept: dict[tuple[int, ...], Path] = {}
    skipped: list[tuple[Path, str]] = []
    duplicates: list[tuple[Path, Path]] = []
    for file in _files(path, skipped) if files is None else files:
        try:
            notes = tuple(read_notes(file, tolerance))
        except MidiError as error:
            skipped.append((file, error.reason))
            continue
        first = kept.setdefault(notes, file)
        if first != file:
            duplicates.append((file, first))
    total = len(kept) + len(skipped) + len(duplicates)
    if total == 0:
        raise CorpusError(f"{path} has no MIDI file in it ({', '.join((*PLAIN_SUFFIXES, '.rmi'))}).")
    if 2 * len(skipped) > total:
        reasons = [f"  {file} {reason}." for file, reason in skipped[:5]]
        more = [f"  … and {len(skipped) - 5:,} more."] if len(skipped) > 5 else []
        raise CorpusError(f"{len(skipped):,} of the {total:,} MIDI files in {path} cannot be used:", *reasons, *more)
    return Pieces(tuple(Piece(file, notes) for notes, file in kept.items()), tuple(skipped), tuple(duplicates))


def read_notes(path: str | Path, tolerance: float = TOLERANCE) -> list[int]:
    """The pitches of one MIDI file, 0 to 127, in the paper's order."""
    return [pitch for group in read_groups(path, tolerance) for pitch in group]


def read_groups(path: str | Path, tolerance: float = TOLERANCE) -> list[list[int]]:
    """The same, with the notes that sound together kept together."""
    path = Path(path)
    if not 0 <= tolerance <= 1:
        raise ConfigurationError(f"tolerance must be between 0 and 1 second. Got {tolerance}.")
    mido = extra("Reading")
    try:
        timed, per_second = onsets(_content(path), mido)
    except ValueError as error:
        raise MidiError(path, str(error)) from None
    groups: list[list[int]] = []
    limit, begin = round(tolerance * per_second), -1
    group: set[int] = set()
    for time, pitch in timed:
        # A group is as wide as the tolerance from its first onset: a slow roll does not chain into one chord.
        if begin < 0 or time - begin > limit:
            groups.append(sorted(group))
            begin, group = time, set()
        group.add(pitch)
    return [*groups[1:], sorted(group)]


def _files(folder: Path, skipped: list[tuple[Path, str]]) -> Iterator[Path]:
    """MIDI files by name; a folder that cannot be listed is skipped like a file."""

    def skip(error: OSError) -> None:
        skipped.append((Path(error.filename), f"cannot be read: {error.strerror}"))

    for entry in folders.walk(str(folder), unlisted=skip):
        if entry.name.lower().endswith(SUFFIXES):
            yield Path(entry.path)


def _content(path: Path) -> bytes:
    """The bytes of a file, expanded where it is compressed; never more than the limit."""
    try:
        with folders.open_file(path) as file:
            compression = compressed.compression_of(folders.read_piece(file, 8))
            file.seek(0)
            if compression is None:
                content = folders.read_piece(file, MAX_BYTES + 1)
            else:
                content = _expanded(file, compression, path)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise ValueError(f"is too large: over {MAX_BYTES // 2**20} MiB")
    return content


def _expanded(file: BinaryIO, compression: str, path: Path) -> bytes:
    content = b""
    try:
        for piece in compressed.expanded(file, compression, str(path), compressed.Room(str(path), 0)):
            content += piece
            if len(content) > MAX_BYTES:
                break
    except CorpusError as error:
        raise ValueError(str(error).removeprefix(f"{path} ").removesuffix(".")) from None
    return content


def note_name(pitch: int) -> str:
    """C4 for 60; black keys as sharps.

    >>> [note_name(pitch) for pitch in (0, 60, 61, 127)]
    ['C-1', 'C4', 'C#4', 'G9']
    """
    if not 0 <= pitch <= 127:
        raise SymbolError(f"A pitch must be between 0 and 127. Got {pitch}.")
    return f"{_NAMES[pitch % 12]}{pitch // 12 - 1}"


def parse_notes(text: str) -> list[int]:
    """Note names (C4 is 60) or numbers, separated by spaces or commas.

    >>> parse_notes("C4 E♭4, f#4 72")
    [60, 63, 66, 72]
    """
    notes, problems = [], []
    for number, match in enumerate(re.finditer(r"[^\s,]+", text), 1):
        pitch = _pitch(match[0])
        if pitch is not None and 0 <= pitch <= 127:
            notes.append(pitch)
            continue
        word = match[0] if len(match[0]) <= 20 else match[0][:20] + "…"
        wrong = "is not a note" if pitch is None else "is outside C-1 (0) to G9 (127)"
        problems.append(f"Word {number} of the notes, {word!r} at character {match.start() + 1:,}, {wrong}.")
    if problems:
        raise SymbolError(*problems, "Write names such as C4, F#3, Bb5 or numbers from 0 to 127.")
    return notes


def _pitch(word: str) -> int | None:
    if re.fullmatch(r"-?[0-9]{1,9}", word):
        return int(word)
    note = _NOTE.fullmatch(word)
    if note is None:
        return None
    letter, shift, octave = note.groups()
    return 12 * (int(octave) + 1) + _NAMES.index(letter.upper()) + _SHIFTS[shift]
