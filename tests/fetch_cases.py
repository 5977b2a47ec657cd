"""Shared by the tests of fetching: a small file in place of the paper’s, and short ways to ask for it."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from file_server import FileServer
from raw_server import RawServer

from unroll.base.errors import CorpusError
from unroll.corpus.datasets import git_blob
from unroll.corpus.fetching import fetching
from unroll.corpus.fetching.fetching import Installed, PaperFile, fetch

CONTENT = random.Random(0).randbytes(200_000)
OTHER = random.Random(1).randbytes(200_000)
SHIPPED = dict(fetching.PAPER)
SMALL = PaperFile("english", "shakespeare.txt", git_blob(CONTENT), 200_000, 256)


def get(server: FileServer | RawServer, **options: Any) -> Installed:
    """Fetch without waiting between attempts."""
    return fetch("english", **{"url": server.url, "sleep": lambda seconds: None, **options})


def refused(server: FileServer | RawServer, **options: Any) -> str:
    """What a fetch that fails says, in one line."""
    with pytest.raises(CorpusError) as caught:
        get(server, **options)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1_000
    return str(caught.value)


def names(folder: Path) -> set[str]:
    """What lies in the cache, but for the lock."""
    return {path.name for path in folder.iterdir()} - {"english.lock"}


def stop(server: FileServer, folder: Path) -> int:
    """A download that breaks off, and the bytes that are kept of it."""
    server.cuts = [120_000]
    refused(server, retries=0)
    kept = (folder / "english.part").read_bytes()
    assert CONTENT.startswith(kept)
    assert 100_000 < len(kept) <= 120_000
    return len(kept)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail, and do not hang, where something takes longer."""

    def late(*_: object) -> None:
        raise AssertionError(f"it took more than {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
