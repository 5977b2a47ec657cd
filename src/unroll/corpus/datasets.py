"""Corpora that have a name. `stdlib` and the synthetic sources need nothing to download."""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from unroll.corpus.synthetic import SOURCES, Source

SYNTHETIC_TOKENS = 1_000_000
# The paper's own files, by the git blob id that its repository lists.
PAPER_BLOBS = {
    "8dc7d27dcfb2514eb9a535b398c873d4beca818b": "english",
    "7ddc8f923094ad1570e4cc8766d4b1ca25bd39e2": "finnish",
    "9842f6825e079b00606c74fdc5d68b13d1b26f05": "linux",
    "ad37dc2856d1e792575e21175e82a6221edde1aa": "music",
}
# Left out of `stdlib`: tests, and what users installed themselves.
_NOT_LIBRARY = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}


@dataclass(frozen=True)
class Dataset:
    """A corpus with a name: files that are there already, or text made on the spot."""

    name: str
    description: str
    files: Callable[[], list[Path]] = list
    content: Callable[[], bytes] = bytes


def git_blob(content: bytes) -> str:
    """The id that git gives this content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def stdlib() -> list[Path]:
    """The source files of this Python's standard library, in the order of their paths."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = [path.relative_to(root) for path in root.rglob("*.py")]
    kept = sorted(path.as_posix() for path in files if not _NOT_LIBRARY & set(path.parts))
    return [root / path for path in kept]


def _synthetic(name: str, source: Source) -> Dataset:
    summary = (source.__doc__ or "").splitlines()[0]
    description = f"{summary} Its true perplexity is {source.perplexity:.3f}."
    return Dataset(name, description, content=lambda: source.text(SYNTHETIC_TOKENS).encode())


DATASETS = {
    "stdlib": Dataset("stdlib", "The source text of your own Python's standard library, tests left out.", stdlib),
    **{name: _synthetic(name, source) for name, source in SOURCES.items()},
}
