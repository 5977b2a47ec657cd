"""What a folder is taken for: what most of its bytes are, or a refusal that says how to choose.

A folder of 1,427 MIDI files with a note of 15 characters beside them is music. A sort of files is taken where it is
CLEAR among all that can be read as a corpus, and is ENOUGH of everything. What a person asks for with --kind needs no
weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unroll.base.errors import CorpusError, counted
from unroll.corpus import file_sorts
from unroll.corpus.chosen_files import Choice
from unroll.corpus.file_sorts import COMPRESSED, MUSIC, OTHER, TEXT
from unroll.corpus.folder_contents import Contents, ending_of, endings, share, size_of
from unroll.corpus.folders import Entry

CLEAR = 0.75  # of the bytes that can be read as one corpus or another
ENOUGH = 0.5  # of all bytes
TABLES = 0.25  # of a text's bytes: from here to CLEAR neither the tables nor the rest is clearly the corpus
ELSEWHERE = "Name one file, or a folder that holds nothing else."


@dataclass(frozen=True)
class Taken:
    """The files that are the corpus, their sort, and what to say of them and of the others."""

    entries: list[Entry]
    sort: str
    note: str


def take(source: str, listed: Sequence[Entry], choice: Choice, kind: str, asked: bool) -> Taken:
    """The files of a folder that are its corpus; a CorpusError where that is not clear.

    `asked` says whether a person chose the kind for this folder. A run that reads another text did not.
    """
    if kind == "bytes":
        return _everything(source, listed)
    contents = Contents(tuple(file_sorts.look(entry, choice) for entry in listed))
    asked = asked and kind != "auto"
    sort = _asked_for(source, contents, choice, kind) if asked else _weighed(source, contents, choice, kind)
    files = contents.of(sort)
    if sort == TEXT and not asked:
        _refuse_half_tables(source, contents, kind)
    return Taken([looked.entry for looked in files], sort, _note(source, contents, sort, choice))


def _everything(source: str, listed: Sequence[Entry]) -> Taken:
    entries = [entry for entry in listed if entry.regular and entry.size]
    if not entries:
        raise CorpusError(f"{source} has no bytes in it ({counted(len(listed), 'file')}, empty or special).")
    return Taken(entries, OTHER, f"{counted(len(entries), 'file')} read as bytes, whatever they are.")


def _asked_for(source: str, contents: Contents, choice: Choice, kind: str) -> str:
    """The sort of files that a person means with --kind."""
    if kind == "notes" and contents.of(MUSIC):
        return MUSIC
    texts = [sort for sort in contents.readable if sort != MUSIC]
    if not texts and contents.of(MUSIC):
        described = contents.describe()
        raise CorpusError(f"{source} has no text in it: {described}. --kind notes reads the music, --kind bytes all.")
    if not texts:
        raise _nothing(source, contents, choice)
    first = max(texts, key=contents.size)
    if contents.size(first) < CLEAR * sum(map(contents.size, texts)):
        raise _unclear(source, contents, kind)
    return first


def _weighed(source: str, contents: Contents, choice: Choice, kind: str) -> str:
    """The sort of files that a folder clearly is."""
    if not contents.readable:
        raise _nothing(source, contents, choice)
    first = max(contents.readable, key=contents.size)
    size, readable = contents.size(first), sum(map(contents.size, contents.readable))
    if first == TEXT and contents.of(MUSIC):
        # A list of tunes beside the tunes is no text that anybody means, however long it is.
        size -= size_of([looked for looked in contents.of(TEXT) if looked.table])
    if size < CLEAR * readable or size < ENOUGH * contents.bytes:
        raise _unclear(source, contents, kind)
    if first == MUSIC and kind not in ("auto", "notes"):
        raise CorpusError(f"{source} is music: {contents.describe()}. This run reads {kind}. {ELSEWHERE}")
    return first


def _unclear(source: str, contents: Contents, kind: str) -> CorpusError:
    """The error for a folder of several sorts, with what to pass."""
    tables = [looked for looked in contents.of(TEXT) if looked.table]
    of_text = f" Of the text {share(size_of(tables), contents.size(TEXT))} are tables or data." if tables else ""
    words = f"{source} is not clearly one corpus: {contents.describe()}.{of_text}"
    if kind != "auto" and contents.of(MUSIC):
        return CorpusError(f"{words} {ELSEWHERE}")
    ways = []
    if contents.of(MUSIC):
        ways.append("--kind notes reads the MIDI files")
    if contents.of(TEXT) and contents.of(COMPRESSED):
        ending = ending_of(contents.of(COMPRESSED)[0])
        ways.append(f"--ext {ending} reads the compressed texts, --exclude '*{ending}' the others")
    elif contents.of(TEXT) or contents.of(COMPRESSED):
        ways.append("--kind chars reads the text")
    ways.append("--kind bytes reads every file as it is")
    return CorpusError(f"{words} Say which: {'; '.join(ways)}. {contents.advice()}".rstrip())


def _refuse_half_tables(source: str, contents: Contents, kind: str) -> None:
    """Text that is half tables and half something else is a corpus that nobody means."""
    texts = contents.of(TEXT)
    tables = [looked for looked in texts if looked.table]
    part, whole = size_of(tables), size_of(texts)
    if not TABLES * whole < part < CLEAR * whole:
        return
    heaviest = max(tables, key=lambda looked: looked.entry.size)
    ending = ending_of(heaviest)
    apart = ending and all(looked.table for looked in texts if ending_of(looked) == ending)
    part_of_it = f"--ext {ending} the tables, --exclude '*{ending}' the others"
    if not apart:
        part_of_it = f"--exclude '{heaviest.entry.name}' leaves that out"
    ways = f"--kind chars reads all of it, {part_of_it}."
    raise CorpusError(
        f"{source} is not clearly one corpus: {share(part, whole)} of its text are tables or data "
        f"({endings(texts) or counted(len(texts), 'file')}). {ways if kind == 'auto' else ELSEWHERE}"
    )


def _nothing(source: str, contents: Contents, choice: Choice) -> CorpusError:
    filtered = f" that --ext {' '.join(choice.ext)} and --exclude leave" if choice.ext or choice.exclude else ""
    skipped = f"{counted(len(contents.looked), 'file')} skipped, not text"
    named = f"{skipped}: {contents.formats()}" if contents.looked else skipped
    return CorpusError(f"{source} has no text in it{filtered} ({named}). {contents.advice()}".rstrip())


def _note(source: str, contents: Contents, sort: str, choice: Choice) -> str:
    """What is read and what is left out, with their shares."""
    skipped = len(contents.looked) - len(contents.of(sort))
    if sort == TEXT and not skipped:
        note = f"{counted(len(contents.looked), 'text file')} read"
    else:
        note = f"{contents.describe([sort])} read"
    names = endings(contents.of(sort)) if sort == TEXT else ""
    note += f": {names}" if names else ""
    if skipped:
        others = contents.describe([other for other in (TEXT, COMPRESSED, MUSIC, OTHER) if other != sort])
        why = f", not {choice.encoding} text" if sort == TEXT and not contents.of(COMPRESSED) else ""
        note += f"; {counted(skipped, 'file')} skipped{why}: {others}"
    if sort == TEXT and contents.of(MUSIC):
        return f"{note}. For the music: --kind notes, or `unroll data midi {source} --out notes.txt`."
    return f"{note}."
