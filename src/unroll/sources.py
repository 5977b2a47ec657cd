"""Where a corpus's bytes come from: a file, a folder, MIDI, or a name. They are read a piece at a time."""

from __future__ import annotations

import codecs
import fnmatch
import hashlib
import json
import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unroll import fetching, midi
from unroll.datasets import DATASETS
from unroll.errors import CorpusError, counted, did_you_mean

PIECE = 1 << 22  # bytes read at a time
WHOLLY_CHECKED = 1 << 24  # files up to this size are checked to their end before they are taken from a folder
_ABOVE_ASCII = bytes(range(128, 256))
# Encodings whose files each tell the order of their bytes.
_ORDERS = {
    "utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
    "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
}


@dataclass(frozen=True)
class Choice:
    """Which files of a folder, and which of their bytes, belong to a corpus."""

    ext: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    ascii: bool = False
    encoding: str = "utf-8"


@dataclass(frozen=True)
class Source:
    """Bytes that can be read again and again."""

    where: str  # as a run records it
    title: str
    size: int  # bytes at most
    pieces: Callable[[], Iterator[bytes]]
    fingerprint: str = ""  # other content has another one; "" where looking at the content is as cheap
    kind: str | None = None  # where the form decides it
    single: bool = False  # one file, which may turn out to be an impostor
    notes: tuple[str, ...] = ()


def find(source: str, choice: Choice) -> Source:
    """The source behind a path, a folder or a name that `unroll data list` shows."""
    found = _named(source, choice)
    if found is None:
        return _at(source, Path(source), choice)
    if Path(source).exists():
        found = replace(found, notes=(f"{source} is the data set of that name; for your own file write ./{source}.",))
    return found


def _named(source: str, choice: Choice) -> Source | None:
    if source in DATASETS:
        files, content = DATASETS[source].files(), DATASETS[source].content
        if files:
            return _files(source, source, files, choice, single=False)
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
        return _files(source, title, [installed.path], choice, single=True)
    return None


def _at(source: str, path: Path, choice: Choice) -> Source:
    where = str(path.resolve())
    if path.suffix.lower() in midi.SUFFIXES and path.is_file():
        return _music(where, path)
    if path.is_dir():
        chosen, skipped = _walk(path, choice)
        # No MIDI file is text: where nothing was skipped there is none.
        music = skipped and any(
            p.suffix.lower() in midi.SUFFIXES and p.name.endswith(choice.ext or "") for p in path.rglob("*")
        )
        if music and not chosen:
            return _music(where, path)
        if not chosen:
            asked = f" that --ext {' '.join(choice.ext)} and --exclude leave" if choice.ext or choice.exclude else ""
            raise CorpusError(f"{path} has no text in it{asked} ({counted(skipped, 'file')} skipped, not text).")
        left_out = f"; {counted(skipped, 'file')} skipped, not {choice.encoding} text" if skipped else ""
        note = f"{counted(len(chosen), 'text file')} read{left_out}."
        if music:
            note += f" Music is left out: `unroll data midi {path} --out notes.txt` makes it a corpus of its own."
        return replace(_files(where, path.resolve().name, chosen, choice, single=False), notes=(note,))
    if path.is_file():
        passed_over = [f"--{name}" for name in ("ext", "exclude") if getattr(choice, name)]
        notes = (f"{' and '.join(passed_over)} choose among a folder's files; {source} is one file, and is read.",)
        return replace(_files(where, path.stem, [path], choice, single=True), notes=notes if passed_over else ())
    if path.exists():
        raise CorpusError(
            f"{source} is neither a file nor a folder, and a corpus is read twice. Save it to a file first."
        )
    raise CorpusError(
        f"No such file, folder or data set: {source}. `unroll data list` shows the names."
        f"{did_you_mean(source, [*DATASETS, *fetching.PAPER])}"
    )


def _files(where: str, title: str, paths: Sequence[Path], choice: Choice, single: bool) -> Source:
    stats = [path.stat() for path in paths]
    facts = [[str(p.resolve()), s.st_size, s.st_mtime_ns, s.st_ino] for p, s in zip(paths, stats, strict=True)]
    fingerprint = hashlib.sha256(json.dumps([facts, choice.ascii]).encode("utf-8", "surrogatepass")).hexdigest()

    marks = _ORDERS.get(codecs.lookup(choice.encoding).name, ())

    def pieces() -> Iterator[bytes]:
        order = b""  # the first file's mark, which stays: all that follows is read in the order of bytes that it tells
        for path in paths:
            mark = b""
            for place, piece in enumerate(_read(path)):
                # The mark at the start of a file is no text; that of a single file is told as well.
                if place == 0 and not single:
                    piece = piece.removeprefix(codecs.BOM_UTF8)
                    mark = next((mark for mark in marks if piece.startswith(mark)), b"")
                    piece = piece.removeprefix(mark) if order else piece
                    order = order or mark
                yield chosen_bytes(piece if mark in (b"", order) else _swapped(piece, len(mark)), choice)

    return Source(where, title, sum(s.st_size for s in stats), pieces, fingerprint, single=single)


def _swapped(piece: bytes, width: int) -> bytes:
    """Numbers of so many bytes, in the other order."""
    whole = len(piece) // width * width
    numbers = array("H" if width == 2 else "I", piece[:whole])
    numbers.byteswap()
    return numbers.tobytes() + piece[whole:]


def chosen_bytes(piece: bytes, choice: Choice) -> bytes:
    """What of a piece belongs to the corpus."""
    return piece.translate(None, _ABOVE_ASCII) if choice.ascii else piece


def _read(path: Path) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            while piece := file.read(PIECE):
                yield piece
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror or error}.") from None


def _music(where: str, path: Path) -> Source:
    found = midi.read_folder(path)
    content = found.text.encode()
    table = ", ".join(" ".join(line.split()) for line in found.table())
    return Source(where, Path(where).stem, len(content), lambda: iter((content,)), kind="notes", notes=(table,))


def _walk(folder: Path, choice: Choice) -> tuple[list[Path], int]:
    """The text files: each folder's own, sorted, then its subfolders; the rest is counted."""
    chosen: list[Path] = []
    skipped = 0
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and not _excluded(folder, place, f, choice))
        for name in sorted(f for f in files if not f.startswith(".")):
            if (choice.ext and not name.endswith(choice.ext)) or _excluded(folder, place, name, choice):
                continue
            if _is_text(Path(place, name), choice):
                chosen.append(Path(place, name))
            else:
                skipped += 1
    return chosen, skipped


def _excluded(folder: Path, place: str, name: str, choice: Choice) -> bool:
    inside = Path(place, name).relative_to(folder).as_posix()
    return any(fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(inside, pattern) for pattern in choice.exclude)


def _is_text(path: Path, choice: Choice) -> bool:
    try:
        with open(path, "rb") as file:
            content = file.read(WHOLLY_CHECKED)
            whole = not file.read(1)
    except OSError:
        return False
    if content.startswith(b"version https://git-lfs.github.com/spec/"):
        return False
    if choice.ascii:
        return b"\0" not in content and bool(content)
    try:
        text = codecs.getincrementaldecoder(choice.encoding)().decode(content, final=whole)
    except UnicodeError:  # also of UTF-16 without its mark, which is no UnicodeDecodeError
        return False
    return "\0" not in text and bool(text)
