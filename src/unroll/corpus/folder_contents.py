"""What lies in a folder, counted by bytes and put into words."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from unroll.base.errors import counted
from unroll.corpus.file_sorts import COMPRESSED, MUSIC, OTHER, TEXT, Looked

NAMED = 4  # endings, or formats, that a message names
_NOUNS = {TEXT: "text file", COMPRESSED: "compressed text", MUSIC: "MIDI file"}


@dataclass(frozen=True)
class Contents:
    """The files of a folder, each with its sort."""

    looked: tuple[Looked, ...]

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return size_of(self.looked)

    @property
    def readable(self) -> list[str]:
        """The sorts that can be a corpus, as far as there are files of them."""
        return [sort for sort in _NOUNS if self.of(sort)]

    def of(self, sort: str) -> list[Looked]:
        """The files of one sort."""
        return [looked for looked in self.looked if looked.sort == sort]

    def size(self, sort: str) -> int:
        """Bytes of one sort."""
        return size_of(self.of(sort))

    def describe(self, sorts: Sequence[str] = (MUSIC, TEXT, COMPRESSED, OTHER)) -> str:
        """How many files of each sort there are, and their share of all bytes."""
        words = []
        for sort in sorts:
            files = self.of(sort)
            if files:
                named = _formats(files) if sort == OTHER else counted(len(files), _NOUNS[sort])
                words.append(f"{named} ({share(size_of(files), self.bytes)} of bytes)")
        return ", ".join(words)

    def advice(self) -> str:
        """What can be done about the heaviest format that is no text; "" where there is nothing to say."""
        others = sorted(self.of(OTHER), key=lambda looked: -looked.entry.size)
        return next((looked.form.advice for looked in others if looked.form and looked.form.advice), "")

    def formats(self) -> str:
        """The formats of the files that are no text."""
        return _formats(self.of(OTHER))


def size_of(files: Sequence[Looked]) -> int:
    """Bytes of these files."""
    return sum(looked.entry.size for looked in files)


def share(size: int, whole: int) -> str:
    """A share in percent: neither 0 nor 100 where it is not."""
    percent = 100 * size / max(whole, 1)
    if 0 < percent < 1:
        return "under 1 %"
    return "over 99 %" if 99 < percent < 100 else f"{percent:.0f} %"


def ending_of(looked: Looked) -> str:
    """A file's ending: .txt, or "" where it has none."""
    return os.path.splitext(looked.entry.name)[1].lower()


def endings(files: Sequence[Looked]) -> str:
    """The endings of files with their shares, the heaviest first; "" where there is but one ending."""
    sizes: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for looked in files:
        sizes[ending_of(looked)] += looked.entry.size
        times[ending_of(looked)] += 1
    if len(times) < 2:
        return ""
    heaviest, total = sizes.most_common(NAMED), sizes.total()
    words = [f"{times[ending]:,} {ending or 'without an ending'} ({share(size, total)})" for ending, size in heaviest]
    others = len(files) - sum(times[ending] for ending, _ in heaviest)
    return ", ".join((*words, *([f"{others:,} more"] if others else [])))


def _formats(files: Sequence[Looked]) -> str:
    times = Counter(looked.form.noun for looked in files if looked.form)
    most = times.most_common(NAMED)
    others = times.total() - sum(count for _, count in most)
    words = [counted(count, noun) for noun, count in most]
    return ", ".join((*words, *([counted(others, "other file")] if others else [])))
