"""Where a corpus's bytes come from: a file, a folder, MIDI, standard input, or a name."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path

from unroll.base import untrusted
from unroll.base.errors import CorpusError, counted, did_you_mean
from unroll.corpus import compressed, file_stream, folder_choice, formats, recorded_folder
from unroll.corpus.chosen_files import Choice, listed
from unroll.corpus.datasets import DATASETS
from unroll.corpus.fetching import fetching
from unroll.corpus.file_sorts import COMPRESSED, MUSIC
from unroll.corpus.file_stream import STANDARD_INPUT, Source, entry_at, of_files, reason
from unroll.corpus.folder_choice import Taken
from unroll.corpus.folders import Entry
from unroll.corpus.music import reading
from unroll.corpus.recorded_size import Extent, Recorded

SHOWN = 200  # letters of a name that a message repeats
SNIFF_BYTES = 1 << 12  # of a file, by which its format is known
MOST_PIPED = 1 << 30  # bytes of standard input, which are held in memory
_URL = re.compile(r"(https?|ftp|s3|gs|file|hf)://", re.IGNORECASE)


def find(
    source: str, choice: Choice, kind: str = "auto", asked: bool = True, recorded: Recorded | None = None
) -> Source:
    """The source behind a path, a folder or a name that `unroll data list` shows.

    `asked` says whether a person chose the kind for this source. A corpus that a run has `recorded` is refused where
    it cannot be the text that the run was trained on.
    """
    if source == STANDARD_INPUT:
        return _piped(choice, kind, asked, recorded)
    named = _named(source, choice)
    if named is None:
        return _at(source, choice, kind, asked, recorded)
    if os.path.exists(source):
        return replace(named, notes=(f"{source} is the data set of that name; for your own file write ./{source}.",))
    return named


def _named(source: str, choice: Choice) -> Source | None:
    if source in DATASETS:
        files, content = DATASETS[source].files(), DATASETS[source].content
        if files:
            return of_files(source, source, [entry_at(file) for file in files], choice, single=False)
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
        return of_files(source, title, [entry_at(installed.path)], choice, single=True)
    return None


def _at(source: str, choice: Choice, kind: str, asked: bool, recorded: Recorded | None) -> Source:
    try:
        mode = os.stat(source).st_mode
    except (FileNotFoundError, NotADirectoryError):
        if _URL.match(source):
            raise CorpusError(
                f"{source[:SHOWN]} is an address, and a corpus is a file: download it, then name the file. "
                "`unroll data fetch` brings the paper’s data sets."
            ) from None
        raise CorpusError(
            f"No such file, folder or data set: {source[:SHOWN]}. `unroll data list` shows the names."
            f"{did_you_mean(source[:SHOWN], [*DATASETS, *fetching.PAPER])}"
        ) from None
    except (OSError, ValueError) as error:  # a link in a circle, a name that is none
        raise CorpusError(f"{source[:SHOWN]} cannot be read: {reason(error)}.") from None
    if stat.S_ISDIR(mode):
        return _folder(source, choice, kind, asked, recorded)
    if not stat.S_ISREG(mode):
        raise CorpusError(
            f"{source} is neither a file nor a folder, and a corpus is read twice. Save it to a file first, "
            "or pipe it into `unroll train -`."
        )
    entry = entry_at(source)
    if recorded:
        recorded.require_same(source, Extent(1, entry.size))
    content = _file(source, entry, choice, kind, asked, recorded)
    passed_over = [f"--{name}" for name in ("ext", "exclude") if getattr(choice, name)]
    note = f"{' and '.join(passed_over)} choose among a folder's files; {source} is one file, and is read."
    return replace(content, notes=(*content.notes, note)) if passed_over else content


def _file(source: str, entry: Entry, choice: Choice, kind: str, asked: bool, recorded: Recorded | None) -> Source:
    """One file, which its kind may want as text, as music or as bytes."""
    where, path = os.path.realpath(source), Path(source)
    if kind == "bytes":
        return of_files(where, path.stem, [entry], choice, single=True, recorded=recorded)
    named_music = entry.name.lower().endswith(reading.SUFFIXES)
    first = b"" if named_music or (recorded and not entry.size) else file_stream.head(entry, SNIFF_BYTES)
    if named_music or formats.recognise(first) is formats.MIDI:
        if kind not in ("auto", "notes"):
            here = f"--kind {kind} reads text. Use --kind notes, or bytes" if asked else f"this run reads {kind}"
            raise CorpusError(f"{source} is a MIDI file, and {here}.")
        return _music(path, [entry], "")
    compression = compressed.compression_of(first)
    content = of_files(
        where, path.stem, [entry], choice, single=True, recorded=recorded, expand=compression is not None
    )
    note = f"{source} is compressed with {compression}, and is read as what it holds."
    return replace(content, notes=(note,)) if compression else content


def _folder(source: str, choice: Choice, kind: str, asked: bool, recorded: Recorded | None) -> Source:
    entries, unlisted = listed(source, choice, recorded)
    if recorded:
        taken = recorded_folder.take(source, entries, choice, kind, recorded)
    else:
        taken = folder_choice.take(source, entries, choice, kind, asked)
    note = taken.note
    if unlisted:
        note += (
            f" {counted(unlisted, 'folder')} in it cannot be listed, and {'is' if unlisted == 1 else 'are'} left out."
        )
    return _of_folder(source, taken, choice, recorded, note)


def _of_folder(source: str, taken: Taken, choice: Choice, recorded: Recorded | None, note: str) -> Source:
    if taken.sort == MUSIC:
        return _music(Path(source), taken.entries, note)
    where = os.path.realpath(source)
    expand = taken.sort == COMPRESSED
    name = Path(where).name
    source_of_files = of_files(where, name, taken.entries, choice, single=False, recorded=recorded, expand=expand)
    return replace(source_of_files, notes=(note,))


def _music(path: Path, entries: Sequence[Entry], note: str) -> Source:
    pieces = reading.read_folder(path, files=[Path(entry.path) for entry in entries] if path.is_dir() else None)
    content = pieces.text.encode()
    table = ", ".join(" ".join(line.split()) for line in pieces.table())
    where = os.path.realpath(path)
    extent = Extent.of(entry.size for entry in entries)
    notes = (f"{note} {table}".strip(),)
    return Source(
        where, Path(where).stem, len(content), lambda: iter((content,)), kind="notes", notes=notes, extent=extent
    )


def _piped(choice: Choice, kind: str, asked: bool, recorded: Recorded | None) -> Source:
    """Standard input, which can be read but once and is nowhere to be found afterwards."""
    if recorded:
        raise CorpusError(
            "It came through standard input, which is gone. Save the text to a file, "
            "and write the file’s path as `source` under [corpus] in run.toml."
        )
    content = untrusted.up_to(sys.stdin.buffer, MOST_PIPED + 1)
    if len(content) > MOST_PIPED:
        raise CorpusError(f"Standard input has more than {MOST_PIPED:,} bytes. Save it to a file, and name the file.")
    source = in_memory(content, "standard input", choice, kind)
    note = (
        "The text comes through standard input, and nothing keeps it: this run cannot be resumed, and `unroll eval` "
        "needs --corpus, unless you save the text and name the file in run.toml."
    )
    return replace(source, where=STANDARD_INPUT, notes=(note,) if asked else ())


def in_memory(content: bytes, name: str, choice: Choice, kind: str) -> Source:
    """The bytes of a file that is not on disk; compressed ones are expanded, unless they are wanted as bytes."""
    compression = None if kind == "bytes" else compressed.compression_of(content)
    if compression:
        room = compressed.Room(name, len(content))
        content = b"".join(compressed.expanded(BytesIO(content), compression, name, room))
    kept = file_stream.chosen_bytes(content, choice)

    def pieces() -> Iterator[bytes]:
        return iter((kept,))

    return Source(name, name, len(kept), pieces, single=True)
