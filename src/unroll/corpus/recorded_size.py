"""How large a run says its corpus was, and what cannot be that corpus, known before any of it is read.

A run may come from a stranger, and may name any path of this machine as its corpus: the root of all folders, a file
without an end. Names and sizes are looked at first, no more of them than such a corpus can have. Runs of older
versions recorded tokens only; for them the limits are generous. What a user names has no limits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from unroll.base.errors import CorpusError, counted

# Beside its text files a folder may hold others, hidden ones, and folders.
NAMES, NAMES_A_FILE = 100_000, 4
# A token of a run that recorded no bytes has at most so many: with --ascii most bytes of a text may be left out.
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

    def require_room(self, where: str, found: Extent) -> None:
        """Refuse what is already more than the text of the run."""
        if (self.extent.files and found.files > self.extent.files) or found.bytes > self.most_bytes:
            raise self.unlike(where, f"at least {found}")

    def require_enough(self, where: str, found: Extent) -> None:
        """Refuse what is less than the text of the run, even with everything in it."""
        if found.files < self.extent.files or found.bytes < self.extent.bytes:
            raise self.unlike(where, f"at most {found}")

    def require_same(self, where: str, found: Extent) -> None:
        """Refuse what has another size than the text of the run."""
        too_much = found.bytes > self.most_bytes
        other_files = self.extent.files and found.files != self.extent.files
        other_bytes = self.extent.bytes and found.bytes != self.extent.bytes
        if too_much or other_files or other_bytes:
            raise self.unlike(where, str(found))

    def unlike(self, where: str, found: str) -> CorpusError:
        """What to raise where this cannot be the corpus of the run."""
        had = str(self.extent) if self.extent.files else counted(self.tokens, "token")
        return CorpusError(
            f"{where} is not the corpus that this run was trained on: it has {found}, the run had {had}. "
            "Bring that text back."
        )
