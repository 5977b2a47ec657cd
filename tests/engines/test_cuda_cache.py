"""Machine code for a GPU is cached with its digest; code that does not match its digest is compiled again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from unroll.engines.cuda import compiler

BINARY = b"\x7fELF machine code"


class Kept:
    """A source, the cache, and the names that were compiled."""

    def __init__(self, folder: Path) -> None:
        self.source = folder / "kernel.cu"
        self.source.write_text("__global__ void f() {}")
        self.folder = folder / "cache" / "cuda"
        self.compiled: list[str] = []

    @property
    def file(self) -> Path:
        (file,) = self.folder.iterdir()
        return file

    def load(self, device: int = 0) -> bytes:
        """The bytes of the module that is loaded into the device."""
        compiler._load.cache_clear()
        return bytes(compiler._load((self.source,), (), device))  # type: ignore[call-overload]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    monkeypatch.setenv("UNROLL_CACHE", str(tmp_path / "cache"))
    cache = Kept(tmp_path)

    def compiled(text: str, name: str, options: object) -> tuple[bytes, str]:
        cache.compiled.append(name)
        return BINARY, ""

    monkeypatch.setattr(compiler, "compiled", compiled)
    monkeypatch.setattr(compiler, "Module", bytes)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    return cache


def test_code_is_compiled_once_and_then_read(kept: Kept) -> None:
    assert [kept.load(), kept.load()] == [BINARY, BINARY]
    assert kept.compiled == ["kernel.cu"]


def test_every_flipped_bit_and_every_truncation_is_noticed_and_the_code_compiled_anew(kept: Kept) -> None:
    kept.load()
    whole, file = kept.file.read_bytes(), kept.file
    flipped = [whole[:i] + bytes([whole[i] ^ 1 << i % 8]) + whole[i + 1 :] for i in range(len(whole))]
    for damaged in (*flipped, *(whole[:size] for size in range(len(whole))), whole + b"\0"):
        file.write_bytes(damaged)
        kept.compiled.clear()
        assert kept.load() == BINARY
        assert kept.compiled == ["kernel.cu"]
        assert file.read_bytes() == whole


@pytest.mark.parametrize("what", ["a named pipe", "a link", "a sparse file", "a folder"])
def test_anything_but_a_plain_file_is_neither_waited_for_nor_loaded(kept: Kept, tmp_path: Path, what: str) -> None:
    kept.load()
    file = kept.file
    (tmp_path / "target").write_bytes(file.read_bytes())
    file.unlink()
    if what == "a named pipe":
        os.mkfifo(file)
    elif what == "a link":
        file.symlink_to(tmp_path / "target")
    elif what == "a folder":
        file.mkdir()
    else:
        with file.open("wb") as made:
            made.truncate(2**40)
    kept.compiled.clear()
    assert kept.load() == BINARY
    assert kept.compiled == ["kernel.cu"]
    assert file.is_dir() == (what == "a folder")
    assert not file.is_symlink()


def test_code_is_compiled_even_if_the_cache_cannot_be_written(kept: Kept, monkeypatch) -> None:
    monkeypatch.setenv("UNROLL_CACHE", str(kept.source))
    assert [kept.load(), kept.load()] == [BINARY, BINARY]
    assert len(kept.compiled) == 2


def test_code_that_an_older_version_kept_without_a_digest_is_not_loaded(kept: Kept) -> None:
    kept.load()
    file = kept.file
    file.unlink()
    for older in (file, file.with_suffix(".cubin")):
        older.write_bytes(b"\x7fELF another code")
    assert kept.load() == BINARY
    assert file.with_suffix(".cubin").read_bytes() == b"\x7fELF another code"
