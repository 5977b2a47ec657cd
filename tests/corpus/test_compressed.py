"""Compressed texts are expanded within a bound that is set before; what is damaged, or a bomb, is refused in words."""

from __future__ import annotations

import binascii
import gzip
import importlib
import lzma
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from commands import TINY, unroll

from unroll import Corpus
from unroll.base.errors import ConfigurationError, CorpusError
from unroll.corpus import compressed, recorded_size

TEXT = b"to be or not to be " * 100


def zstd(*blocks: bytes, repeated: int = 0) -> bytes:
    """A frame of zstd with blocks as they are, then blocks of 128 KiB of one letter each."""
    parts = [b"\x28\xb5\x2f\xfd\x00\x38"]  # the mark, no size, a window of 128 KiB
    for i, block in enumerate(blocks):
        last = not repeated and i == len(blocks) - 1
        parts.append((last | len(block) << 3).to_bytes(3, "little") + block)
    for i in range(repeated):
        parts.append(((i == repeated - 1) | 1 << 1 | (1 << 17) << 3).to_bytes(3, "little") + b"a")
    return b"".join(parts)


def has_zstd() -> bool:
    try:
        return bool(compressed.zstd_library())
    except ConfigurationError:
        return False


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(CorpusError) as refused:
        Corpus.open(str(path), **options)
    return str(refused.value)


def test_a_zstd_text_is_read_where_a_library_is_and_else_the_command_that_installs_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.zst"
    path.write_bytes(zstd(TEXT[:700], TEXT[700:]) + zstd(b"more"))
    if has_zstd():
        corpus = Corpus.open(str(path))
        assert corpus.vocabulary.decode(corpus.ids).encode() == TEXT + b"more"
        assert "is compressed with zstd" in corpus.notes[0]
        path.write_bytes(zstd(TEXT)[:-9])
        assert "is cut short" in refusal(path)
        path.write_bytes(zstd(TEXT) + b"!!!!!!!!!")
        assert "is damaged, or no zstd file" in refusal(path)
        path.write_bytes(zstd(repeated=1000))  # 128 MiB from 4 kB
        assert "decompression bomb" in refusal(path)
    else:
        with pytest.raises(ConfigurationError, match="pip install"):
            Corpus.open(str(path))


def test_without_a_zstd_library_the_extra_is_named_and_a_folder_counts_the_file_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = importlib.import_module

    def without(name: str, *rest: Any) -> Any:
        if name in ("compression.zstd", "zstandard"):
            raise ModuleNotFoundError(name)
        return plain(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without)
    (tmp_path / "a.txt.zst").write_bytes(zstd(TEXT))
    (tmp_path / "readme").write_text("Read me.")
    for source in (tmp_path, tmp_path / "a.txt.zst"):
        with pytest.raises(ConfigurationError) as refused:
            Corpus.open(str(source))
        assert str(refused.value) == "Reading zstd needs the zstd extra: pip install 'unroll-rnn[zstd]'."
    (tmp_path / "book.txt").write_bytes(TEXT * 5)
    assert "1 compressed text" in Corpus.open(str(tmp_path)).notes[0]


@pytest.mark.parametrize(("ending", "compress"), [("gz", gzip.compress), ("xz", lzma.compress)])
def test_a_bomb_is_refused_by_a_limit_in_words_and_takes_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, compress: Any
) -> None:
    monkeypatch.setattr(compressed, "FLOOR", 1 << 22)
    path = tmp_path / f"bomb.{ending}"
    path.write_bytes(compress(b"a" * (200 << 20)))
    tracemalloc.start()
    words = refusal(path, kind="chars")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    size = path.stat().st_size
    assert f"expands to more than {max(1 << 22, 100 * size):,} bytes from {size:,} bytes" in words
    assert "decompression bomb" in words
    assert peak < 64 << 20


def test_the_bound_is_one_for_all_files_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "FLOOR", 1 << 20)
    for number in range(20):
        (tmp_path / f"{number}.txt.gz").write_bytes(gzip.compress(b"a" * (100 << 10)))
    total = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert 100 * total < 20 * (100 << 10)
    assert "decompression bomb" in refusal(tmp_path)


def test_a_text_within_the_bound_is_read_however_well_it_compresses(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"ab" * (1 << 20)))
    assert Corpus.open(str(tmp_path / "a.gz")).tokens == 2 << 20


def test_xz_that_needs_much_memory_to_expand_is_refused(tmp_path: Path) -> None:
    content = lzma.compress(TEXT, filters=[{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 20}])
    property_of_the_dictionary = content.index(b"\x21\x01", 12) + 2  # the filter's id and the size of its property
    huge = bytearray(content)
    huge[property_of_the_dictionary] = 40  # 4 GiB
    header = huge[12 : 12 + 4 * (huge[12] + 1) - 4]
    huge[12 + len(header) : 16 + len(header)] = binascii.crc32(header).to_bytes(4, "little")
    (tmp_path / "a.xz").write_bytes(huge)
    assert "Memory usage limit exceeded" in refusal(tmp_path / "a.xz")


def test_a_strangers_run_expands_no_more_than_a_text_of_its_tokens_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(TEXT))
    assert unroll("train", tmp_path / "a.gz", "--batches", 3, "--out", tmp_path / "run", "-q", *TINY).code == 0
    assert unroll("eval", tmp_path / "run").code == 0
    monkeypatch.setenv("UNROLL_CACHE", str(tmp_path / "empty"))  # where the text's ids are not at hand
    monkeypatch.setattr(recorded_size, "BYTES", 0)
    monkeypatch.setattr(recorded_size, "BYTES_A_TOKEN", 0.5)
    assert "expands to more than 950" in unroll("eval", tmp_path / "run").err


def test_the_hash_of_a_compressed_text_is_that_of_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(TEXT)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(TEXT))
    plain, packed = (Corpus.open(str(tmp_path / name)) for name in ("a.txt", "a.txt.gz"))
    assert plain.sha256 == packed.sha256
    assert packed.extent.bytes == (tmp_path / "a.txt.gz").stat().st_size
