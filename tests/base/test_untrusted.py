"""Files of a stranger are read within limits, and no limit costs memory that a file does not need."""

from __future__ import annotations

import tracemalloc
from io import BytesIO
from pathlib import Path

from unroll.base import untrusted


def test_reading_a_small_file_takes_no_memory_for_the_largest_that_there_may_be(tmp_path: Path) -> None:
    (tmp_path / "small.json").write_bytes(b"{}")
    tracemalloc.start()
    try:
        assert untrusted.read(tmp_path / "small.json", 64 * untrusted.MEGABYTE) == b"{}"
        assert tracemalloc.get_traced_memory()[1] < untrusted.MEGABYTE
    finally:
        tracemalloc.stop()


def test_a_file_is_read_up_to_a_number_of_bytes_whatever_its_pieces() -> None:
    content = bytes(range(256)) * 1000
    for at_most in (0, 1, untrusted.PIECE, untrusted.PIECE + 1, len(content), len(content) + 1):
        assert untrusted.up_to(BytesIO(content), at_most) == content[:at_most]
