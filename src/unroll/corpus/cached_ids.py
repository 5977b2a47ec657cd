"""Ids of large corpora, kept in the cache: keyed by the hash of a text's content and of how it is read.

An index, keyed by what the system says of the text's files, saves reading them again. It holds all that is known of the
corpus, the digest of the ids, and a digest of itself. If either file is damaged, the text is encoded anew.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from unroll.base import cached_files, untrusted
from unroll.base.cache import cache_folder
from unroll.base.errors import SaveError
from unroll.corpus.datasets import PAPER_BLOBS
from unroll.corpus.tokens import Ids, smallest_type

VERSION = 2  # of the cache's layout
INDEX = 48 * untrusted.MEGABYTE  # bytes that an index has at most
ITEMS = 3 << 20  # values in it
OURS = r"[0-9a-f]{40}\.(json|ids|uint8|int16|int32)"


@dataclass(frozen=True)
class Facts:
    """What is known of a corpus beside its ids."""

    kind: str
    symbols: tuple[str, ...]
    counts: tuple[int, ...]  # of each symbol, in id order
    tokens: int
    sha256: str
    paper: str | None  # the paper's data set of which this is the very file
    windows_ends: int  # how many line ends are CRLF; a key of indexes on disk
    marks: int

    @classmethod
    def from_json(cls, stored: Any) -> Facts:
        """Facts as an index has them, trusting nothing; a ValueError where they are none."""
        if not isinstance(stored, dict) or set(stored) != {field.name for field in fields(cls)}:
            raise ValueError("it does not have the facts of a corpus")
        symbols, counts, sha256 = stored["symbols"], stored["counts"], stored["sha256"]
        numbers = [stored["tokens"], stored["windows_ends"], stored["marks"]]
        right = (
            isinstance(symbols, list)
            and isinstance(counts, list)
            and len(symbols) == len(counts) > 0
            and all(type(symbol) is str and symbol for symbol in symbols)
            and len(set(symbols)) == len(symbols)
            and all(type(number) is int and number >= 0 for number in (*counts, *numbers))
            and sum(counts) == stored["tokens"]
            and type(sha256) is str
            and re.fullmatch("[0-9a-f]{64}", sha256)
            and (stored["paper"] is None or stored["paper"] in PAPER_BLOBS.values())
        )
        if not right:
            raise ValueError("its facts contradict each other")
        return cls(**{**stored, "symbols": tuple(symbols), "counts": tuple(counts)})


@dataclass(frozen=True)
class Shelf:
    """Where the cache has a corpus, if it has it."""

    fingerprint: str  # of the text's files
    kind: str
    reading: str  # everything else that decides what the ids are

    @property
    def folder(self) -> Path:
        """The folder of all corpora in the cache."""
        return cache_folder() / "corpora"

    def find(self) -> tuple[Facts, Ids] | None:
        """What the cache holds; None if it holds nothing, or damaged files, so that they are made anew."""
        try:
            stored = untrusted.parse_json(untrusted.read(self._index, INDEX), ITEMS)
            if not isinstance(stored, dict) or untrusted.SEAL not in stored:
                return None
            stored = untrusted.unsealed(stored)
            facts = Facts.from_json(stored["facts"])
            # A whole and healthy index may have been given another one's name.
            if stored["of"] != self._key or facts.kind != self.kind:
                return None
            ids = self._ids(facts.sha256, facts.tokens, len(facts.symbols), bytes.fromhex(stored["ids"]))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return None if ids is None else (facts, ids)

    def keep_ids(self, sha256: str, tokens: int, unique: int, arrays: Iterable[Ids]) -> tuple[Ids, str]:
        """Write ids as they come, and map them into memory; with their digest. A SaveError where that cannot be."""
        hashed = hashlib.sha256()

        def pieces() -> Iterator[memoryview]:
            for ids in arrays:
                hashed.update(ids.data)
                yield ids.data

        path = self._ids_path(sha256, unique)
        cached_files.keep(path, pieces(), OURS)
        mapped = self._ids(sha256, tokens, unique, hashed.digest())
        if mapped is None:
            raise SaveError(f"Could not save {path}: what was read back is not what was written.")
        return mapped, hashed.hexdigest()

    def keep_index(self, facts: Facts, ids: str) -> None:
        """Write what is known beside the ids, whose digest is given; a SaveError where that cannot be."""
        content = untrusted.sealed({"of": self._key, "facts": asdict(facts), "ids": ids})
        written = json.dumps(content).encode()
        if len(written) <= INDEX and written.count(b",") <= ITEMS:  # else it would not be read
            cached_files.keep(self._index, [written], OURS)

    @property
    def _key(self) -> str:
        return f"{self.fingerprint} {VERSION} {self.kind} {self.reading}"

    @property
    def _index(self) -> Path:
        return self.folder / f"{_digest(self._key)}.json"

    def _ids_path(self, sha256: str, unique: int) -> Path:
        name = _digest(f"{sha256} {VERSION} {self.kind} {self.reading}")
        return self.folder / f"{name}.{smallest_type(unique).__name__}"

    def _ids(self, sha256: str, tokens: int, unique: int, digest: bytes) -> Ids | None:
        return cached_files.numbers(self._ids_path(sha256, unique), smallest_type(unique), tokens, unique, digest)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:40]
