"""A cache of its own and a server on loopback for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fetch_cases import CONTENT, SMALL
from file_server import FileServer, serving

from unroll.corpus.fetching import fetching


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache's folder of data sets, with english a small file; nothing is asked of a proxy."""
    monkeypatch.setattr(fetching, "PAPER", fetching.PAPER | {"english": SMALL})
    monkeypatch.setenv("UNROLL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("UNROLL_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "*")
    return tmp_path / "cache" / "datasets"


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving(CONTENT) as server:
        yield server
