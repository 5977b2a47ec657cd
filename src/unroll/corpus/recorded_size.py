"""How large a run says its corpus was, and what cannot be that corpus, known before any of it is read.

A run may come from a stranger, and may name any path of this machine as its corpus: the root of all folders, a file
without an end. Names and sizes are looked at first, no more of them than that corpus can have. Runs of older
versions recorded tokens only; for them the limits are generous. What a user names has no limits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from unroll.base.errors import CorpusError, counted

# Beside its text files a folder may hold others, hidden ones, and folders.
NAMES, NAMES_A_FILE = 100_000, 4
# A token of a run that recorded no bytes has at most 100: with --ascii most bytes of a text may be left out.
BYTES, BYTES_A_TOKEN = 1 << 26, 100


@dataclass(frozen=True)
class Extent:
    """How many files, and how many bytes in all; 0 where that is not known."""

    files: int = 0
    bytes: int = 0

    def __add__(self, other: Extent) -> Extent:
        return Extent(self.files + other.files, self.bytes + other.bytes)

    def __str__(self) -> str:
        return f"{counted(self.bytes, 'byte')} in {counted(self.files, 'file')}"

    @classmethod
    def of(cls, sizes: Iterable[int]) -> Extent:
        """Files of these sizes."""
        held = list(sizes)
        return cls(len(held), sum(held))


@dataclass(frozen=True)
class Recorded:
    """What a run recorded of the corpus that it names."""

    extent: Extent
    tokens: int

    @property
    def most_names(self) -> int:
        """How many names of a folder are looked at."""
        return NAMES + (NAMES_A_FILE * self.extent.files or self.tokens)

    @property
    def most_bytes(self) -> int:
        """How many bytes the text can have."""
        return self.extent.bytes or BYTES + BYTES_A_TOKEN * self.tokens

    @property
    def most_expanded(self) -> int:
        """How many bytes the text can have once its compressed files are expanded."""
        return BYTES + BYTES_A_TOKEN * self.tokens

    def is_full(self, size: Extent) -> bool:
        """Whether files of this size are more than the text of the run."""
        return bool((self.extent.files and size.files > self.extent.files) or size.bytes > self.most_bytes)

    def require_enough(self, where: str, there: Extent) -> None:
        """Refuse what is less than the text of the run, even with everything in it."""
        if there.files < self.extent.files or there.bytes < self.extent.bytes:
            raise self.unlike(where, f"at most {there}")

    def is_same(self, size: Extent) -> bool:
        """Whether files of this size may be the text of the run: one of an older version recorded none."""
        other_files = self.extent.files and size.files != self.extent.files
        other_bytes = self.extent.bytes and size.bytes != self.extent.bytes
        return not (size.bytes > self.most_bytes or other_files or other_bytes)

    def require_same(self, where: str, size: Extent) -> None:
        """Refuse what has another size than the text of the run."""
        if not self.is_same(size):
            raise self.unlike(where, str(size))

    def unlike(self, where: str, size: str) -> CorpusError:
        """The error for what cannot be the corpus of the run."""
        had = str(self.extent) if self.extent.files else counted(self.tokens, "token")
        return CorpusError(
            f"{where} is not the corpus that this run was trained on: it has {size}, the run had {had}. "
            "Bring that text back."
        )
