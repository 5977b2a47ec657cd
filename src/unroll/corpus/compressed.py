"""Texts that are compressed with gzip, xz or zstd, expanded a piece at a time and never without a bound.

Nobody knows what a file holds before it is expanded: a megabyte may stand for a gigabyte of zeros. So the bound
is set from the size of the compressed files before anything expands, and it is counted with every piece.
"""

from __future__ import annotations

import gzip
import importlib
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from unroll.base.errors import ConfigurationError, CorpusError, counted

PIECE = 1 << 20  # bytes expanded at a time
CHUNK = 1 << 16  # compressed bytes read at a time
SMALL_CHUNK = 1 << 10  # of zstd: its library gives all at once that a chunk holds, at most 32 MiB of this one
FLOOR = 1 << 26  # bytes that anything may expand to
RATIO = 100  # expanded bytes for a compressed one: text has 3 to 10, a log perhaps 50, a bomb 1,000
MEMORY = 1 << 28  # bytes that xz may take for what it looks back at
WINDOW = 27  # zstd looks back 2^27 bytes at most
SUFFIXES = (".gz", ".xz", ".zst", ".zstd")
MARKS = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


class Room:
    """How many bytes compressed files may expand to in all."""

    def __init__(self, where: str, compressed: int, most: int | None = None) -> None:
        self.where, self.compressed = where, compressed
        self.most = max(FLOOR, RATIO * compressed)
        if most is not None:
            self.most = min(self.most, most)
        self.left = self.most

    def take(self, size: int) -> None:
        """Count expanded bytes; raise where they are more than there is room for."""
        self.left -= size
        if self.left < 0:
            raise CorpusError(
                f"{self.where} expands to more than {counted(self.most, 'byte')} from "
                f"{counted(self.compressed, 'byte')}: text does not, so this is taken for a decompression bomb. "
                "If it is not, expand it yourself and name what comes out."
            )


def compression_of(first: bytes) -> str | None:
    """gzip, xz or zstd, by a file's first bytes."""
    return next((name for mark, name in MARKS.items() if first.startswith(mark)), None)


def expanded(file: BinaryIO, compression: str, where: str, room: Room) -> Iterator[bytes]:
    """What a compressed file holds; a CorpusError where it is damaged or holds too much."""
    reader = _READERS[compression]
    damage: tuple[type[Exception], ...] = (gzip.BadGzipFile, zlib.error, lzma.LZMAError, *_zstd_errors(compression))
    try:
        for piece in reader(file):
            room.take(len(piece))
            yield piece
    except EOFError:
        raise CorpusError(f"{where} is cut short: its {compression} data has no end. Bring the whole file.") from None
    except damage as error:
        raise CorpusError(f"{where} is damaged, or no {compression} file: {error}. Bring it anew.") from None


def _gzip(file: BinaryIO) -> Iterator[bytes]:
    reader = gzip.GzipFile(fileobj=file)
    while piece := reader.read1(PIECE):  # as much as is at hand: the end may be missing
        yield piece


def _xz(file: BinaryIO) -> Iterator[bytes]:
    return _frames(file, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, MEMORY))


def _zstd(file: BinaryIO) -> Iterator[bytes]:
    library = zstd_library()
    if hasattr(library, "DecompressionParameter"):
        options = {library.DecompressionParameter.window_log_max: WINDOW}
        return _frames(file, lambda: library.ZstdDecompressor(options=options))
    return _zstandard_frames(file, library.ZstdDecompressor(max_window_size=1 << WINDOW))


def _frames(file: BinaryIO, start: Callable[[], Any]) -> Iterator[bytes]:
    """The frames of a file, one after the other; zeros between them are padding."""
    waiting = file.read(CHUNK)
    while waiting:
        decompressor = start()
        while not decompressor.eof:
            if decompressor.needs_input and not waiting and not (waiting := file.read(CHUNK)):
                raise EOFError
            piece, waiting = decompressor.decompress(waiting, PIECE), b""
            if piece:
                yield piece
        waiting = decompressor.unused_data.lstrip(b"\0")
        while not waiting and (chunk := file.read(CHUNK)):
            waiting = chunk.lstrip(b"\0")


def _zstandard_frames(file: BinaryIO, decompressor: Any) -> Iterator[bytes]:
    waiting = file.read(SMALL_CHUNK)
    while waiting:
        frame = decompressor.decompressobj()
        while not frame.eof:
            if not waiting and not (waiting := file.read(SMALL_CHUNK)):
                raise EOFError
            piece, waiting = frame.decompress(waiting), b""
            if piece:
                yield piece
        waiting = frame.unused_data or file.read(SMALL_CHUNK)


def zstd_library() -> Any:
    """Python's own module where it has one (3.14), else the package zstandard, or how to get it."""
    for name in ("compression.zstd", "zstandard"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise ConfigurationError("Reading zstd needs the zstd extra: pip install 'unroll-rnn[zstd]'.")


def _zstd_errors(compression: str) -> tuple[type[Exception], ...]:
    return (zstd_library().ZstdError,) if compression == "zstd" else ()


_READERS: dict[str, Callable[[BinaryIO], Iterator[bytes]]] = {"gzip": _gzip, "xz": _xz, "zstd": _zstd}
