"""A text of a gigabyte goes from disk to ids in a stream, and comes back from the cache at once."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from paths import ROOT

from unroll.corpus import encoding
from unroll.corpus.corpus import Corpus

SCRIPT = ROOT / "benchmarks" / "encoding.py"


def benchmark():
    spec = importlib.util.spec_from_file_location("encoding_benchmark", SCRIPT)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_a_gigabyte_is_encoded_within_400_megabytes_of_private_memory() -> None:
    record = benchmark().measure(1_000_000_000)
    assert record["bytes"] == 1_000_000_000
    assert record["tokens"] > 999_000_000
    assert record["private_megabytes"] <= 400
    assert record["tokens_in_it"] == 64 * 100


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A corpus of a few kilobytes that counts as large, with a cache of its own."""
    monkeypatch.setenv("UNROLL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(encoding, "CACHED_FROM", 1000)
    path = tmp_path / "text.txt"
    path.write_text("Some text with ä and €, over and over.\n" * 100)
    return path


def pieces_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which files are opened for their content from now on."""
    seen: list[str] = []
    plain = encoding._Hashed.pieces
    monkeypatch.setattr(encoding._Hashed, "pieces", lambda self: seen.append(self.source.where) or plain(self))
    return seen


def test_ids_from_the_cache_are_those_of_the_text_and_the_text_is_not_read_again(cached: Path, monkeypatch) -> None:
    fresh = Corpus.open(str(cached))
    seen = pieces_read(monkeypatch)
    again = Corpus.open(str(cached))
    assert seen == []
    assert (again.ids == fresh.ids).all()
    assert (again.vocabulary, again.sha256, again.notes) == (fresh.vocabulary, fresh.sha256, fresh.notes)
    assert again.vocabulary.decode(again.ids) == cached.read_text()


@pytest.mark.parametrize("change", ["content", "kind", "min_count", "damage"])
def test_the_cache_answers_only_for_what_it_holds(cached: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    first = Corpus.open(str(cached))
    seen = pieces_read(monkeypatch)
    options = {"kind": {"kind": "words"}, "min_count": {"min_count": 150}}.get(change, {})
    if change == "content":
        cached.write_text("Other text of another length.\n" * 100)
    if change == "damage":
        for path in (cached.parent / "cache" / "corpora").glob("*.uint8"):
            path.write_bytes(path.read_bytes()[:-1])
    second = Corpus.open(str(cached), **options)
    assert seen == [str(cached)]
    assert change == "damage" or second.vocabulary != first.vocabulary
    assert change == "min_count" or second.vocabulary.decode(second.ids) == cached.read_text()


def test_where_the_cache_cannot_be_written_the_text_is_read_all_the_same_and_that_is_said(
    cached: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cached.parent / "file").write_text("in the way")
    monkeypatch.setenv("UNROLL_CACHE", str(cached.parent / "file"))
    corpus = Corpus.open(str(cached))
    assert corpus.vocabulary.decode(corpus.ids) == cached.read_text()
    (note,) = corpus.notes
    assert "made anew each time. The environment variable UNROLL_CACHE names another folder" in note
