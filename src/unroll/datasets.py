"""Corpora that have a name. `stdlib` and the synthetic sources need nothing to download."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from unroll.synthetic import SOURCES

SYNTHETIC_TOKENS = 1_000_000
# Left out of `stdlib`: tests, and what users installed themselves.
_NOT_LIBRARY = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}


@dataclass(frozen=True)
class Dataset:
    """A corpus with a name."""

    name: str
    description: str
    content: Callable[[], bytes]


def stdlib() -> bytes:
    """The source of this Python's standard library, its files in the order of their paths."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = [path.relative_to(root) for path in root.rglob("*.py")]
    kept = sorted(path.as_posix() for path in files if not _NOT_LIBRARY & set(path.parts))
    return b"".join((root / path).read_bytes() for path in kept)


DATASETS = {
    "stdlib": Dataset("stdlib", "The source text of your own Python's standard library, tests left out.", stdlib),
    **{
        name: Dataset(
            name,
            f"{(source.__doc__ or '').splitlines()[0]} Its true perplexity is {source.perplexity:.3f}.",
            lambda source=source: source.text(SYNTHETIC_TOKENS).encode(),  # type: ignore[misc]
        )
        for name, source in SOURCES.items()
    },
}
