"""Where a corpus's bytes come from: a file, a folder, MIDI, or a name. They are read a piece at a time."""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import stat
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from unroll.base.errors import CorpusError, counted, did_you_mean
from unroll.corpus import folders
from unroll.corpus.chosen_files import Choice, text_files
from unroll.corpus.datasets import DATASETS
from unroll.corpus.fetching import fetching
from unroll.corpus.folders import Entry
from unroll.corpus.music import reading
from unroll.corpus.recorded_size import Extent, Recorded

PIECE = 1 << 22  # bytes read at a time
FIRST_PIECE = 1 << 16  # bytes that are enough to guess what a text is
SHOWN = 200  # letters of a name that a message repeats
_ABOVE_ASCII = bytes(range(128, 256))
# Encodings whose files each tell the order of their bytes.
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
    fingerprint: str = ""  # other content has another one; "" where looking at the content is as cheap
    fingerprint_now: Callable[[], str] = str  # the same, looked at again
    kind: str | None = None  # where the form decides it
    single: bool = False  # one file, which may turn out to be an impostor
    notes: tuple[str, ...] = ()
    extent: Extent = field(default_factory=Extent)  # of what was found at a path


def find(source: str, choice: Choice, recorded: Recorded | None = None) -> Source:
    """The source behind a path, a folder or a name that `unroll data list` shows.

    What is only `recorded` in a run is refused where it cannot be the text that the run was trained on.
    """
    found = _named(source, choice)
    if found is None:
        return _at(source, choice, recorded)
    if os.path.exists(source):
        found = replace(found, notes=(f"{source} is the data set of that name; for your own file write ./{source}.",))
    return found


def _named(source: str, choice: Choice) -> Source | None:
    if source in DATASETS:
        files, content = DATASETS[source].files(), DATASETS[source].content
        if files:
            return _files(source, source, [_entry(file) for file in files], choice, single=False)
        generated = content()
        return Source(source, source, len(generated), lambda: iter((generated,)))
    if source in fetching.PAPER:
        installed = fetching.installed(source)
        if installed is None:
            raise CorpusError(
                f"The data set {source} is not at hand. Bring it with `unroll data fetch {source}`, or with "
                f"`unroll data fetch {source} --from FILE` if you have the file."
            )
        title = f"{source} ({'the paper’s file' if installed.paper else 'reconstruction'})"
        return _files(source, title, [_entry(installed.path)], choice, single=True)
    return None


def _at(source: str, choice: Choice, recorded: Recorded | None) -> Source:
    try:
        mode = os.stat(source).st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise CorpusError(
            f"No such file, folder or data set: {source[:SHOWN]}. `unroll data list` shows the names."
            f"{did_you_mean(source[:SHOWN], [*DATASETS, *fetching.PAPER])}"
        ) from None
    except (OSError, ValueError) as error:  # a link in a circle, a name that is none
        raise CorpusError(f"{source[:SHOWN]} cannot be read: {_reason(error)}.") from None
    if stat.S_ISDIR(mode):
        return _folder(source, choice, recorded)
    if not stat.S_ISREG(mode):
        raise CorpusError(
            f"{source} is neither a file nor a folder, and a corpus is read twice. Save it to a file first."
        )
    path, entry = Path(source), _entry(source)
    if recorded:
        recorded.require_same(source, Extent(1, entry.size))
    if path.suffix.lower() in reading.SUFFIXES:
        return _music(path, Extent(1, entry.size))
    found = _files(os.path.realpath(source), path.stem, [entry], choice, single=True, recorded=recorded)
    passed_over = [f"--{name}" for name in ("ext", "exclude") if getattr(choice, name)]
    notes = (f"{' and '.join(passed_over)} choose among a folder's files; {source} is one file, and is read.",)
    return replace(found, notes=notes if passed_over else ())


def _folder(source: str, choice: Choice, recorded: Recorded | None) -> Source:
    chosen, skipped, unlisted = text_files(source, choice, recorded)
    # No MIDI file is text: where nothing was skipped there is none.
    music = [entry for entry in skipped if entry.name.lower().endswith(reading.SUFFIXES)]
    if music and not chosen:
        extent = Extent.of(entry.size for entry in music)
        if recorded:
            recorded.require_same(source, extent)
        return _music(Path(source), extent, recorded.most_names if recorded else None)
    if not chosen:
        asked = f" that --ext {' '.join(choice.ext)} and --exclude leave" if choice.ext or choice.exclude else ""
        raise CorpusError(f"{source} has no text in it{asked} ({counted(len(skipped), 'file')} skipped, not text).")
    where = os.path.realpath(source)
    found = _files(where, Path(where).name, chosen, choice, single=False, recorded=recorded)
    if recorded:
        recorded.require_same(source, found.extent)
    left_out = f"; {counted(len(skipped), 'file')} skipped, not {choice.encoding} text" if skipped else ""
    note = f"{counted(len(chosen), 'text file')} read{left_out}."
    if unlisted:
        note += (
            f" {counted(unlisted, 'folder')} in it cannot be listed, and {'is' if unlisted == 1 else 'are'} left out."
        )
    if music:
        note += f" Music is left out: `unroll data midi {source} --out notes.txt` makes it a corpus of its own."
    return replace(found, notes=(note,))


def _entry(path: str | Path) -> Entry:
    """A file by its own name."""
    try:
        return Entry(os.fspath(path), os.path.basename(path), os.stat(path))
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {_reason(error)}.") from None


def _files(
    where: str,
    title: str,
    entries: Sequence[Entry],
    choice: Choice,
    single: bool,
    recorded: Recorded | None = None,
) -> Source:
    marks = _ORDERS.get(codecs.lookup(choice.encoding).name, ())

    def contents() -> Iterator[bytes]:
        order = b""  # the first file's mark, which stays: all that follows is read in the order of bytes that it tells
        for entry in entries:
            mark = b""
            for place, piece in enumerate(_read(entry)):
                # The mark at the start of a file is no text; that of a single file is told as well.
                if place == 0 and not single:
                    piece = piece.removeprefix(codecs.BOM_UTF8)
                    mark = next((mark for mark in marks if piece.startswith(mark)), b"")
                    piece = piece.removeprefix(mark) if order else piece
                    order = order or mark
                yield chosen_bytes(piece if mark in (b"", order) else _swapped(piece, len(mark)), choice)

    def within_room() -> Iterator[bytes]:
        room = recorded.most_bytes if recorded else 0
        for piece in contents():
            room -= len(piece)
            if recorded and room < 0:  # the system said that it is smaller
                raise recorded.unlike(where, f"more than {counted(recorded.most_bytes, 'byte')}")
            yield piece

    extent = Extent.of(entry.size for entry in entries)
    return Source(
        where,
        title,
        extent.bytes,
        lambda: _together(within_room()),
        _fingerprint(entries, choice),
        lambda: _fingerprint([_entry(entry.path) for entry in entries], choice),
        single=single,
        extent=extent,
    )


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
    """Numbers of so many bytes, in the other order."""
    whole = len(piece) // width * width
    numbers = array("H" if width == 2 else "I", piece[:whole])
    numbers.byteswap()
    return numbers.tobytes() + piece[whole:]


def chosen_bytes(piece: bytes, choice: Choice) -> bytes:
    """What of a piece belongs to the corpus."""
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
        raise CorpusError(f"{entry.path} cannot be read: {_reason(error)}.") from None


def changed(where: str) -> CorpusError:
    """What to raise where a text is not the same from one look at it to the next."""
    return CorpusError(
        f"{where} changes while it is read, and a corpus is read twice. Wait until it is written, or name a copy of it."
    )


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _music(path: Path, extent: Extent, most_names: int | None = None) -> Source:
    found = reading.read_folder(path, most_names=most_names)
    content = found.text.encode()
    table = ", ".join(" ".join(line.split()) for line in found.table())
    where = os.path.realpath(path)
    title = Path(where).stem
    return Source(where, title, len(content), lambda: iter((content,)), kind="notes", notes=(table,), extent=extent)
