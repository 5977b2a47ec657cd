"""Servers that send more than the file can have."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from fetch_cases import CONTENT, SHIPPED, SMALL, get, names, refused, within
from file_server import FileServer
from raw_server import Script, forever, said, speaking

from unroll.base.errors import CorpusError, SaveError
from unroll.corpus.fetching import fetching

OK = b"HTTP/1.1 200 OK\r\n"
LARGEST = SMALL.at_most
READ_AHEAD = 12 << 20  # bytes that the two sockets' buffers take before a server notices that nobody reads on
ZEROS = bytes(1 << 16)


def chunked(piece: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(piece), piece)


def test_the_largest_size_of_each_data_set_is_known() -> None:
    assert {name: paper.at_most for name, paper in SHIPPED.items()} == {
        "english": 8 * 6_347_705,
        "finnish": 8 * 10_976_530,
        "linux": 6_546_665,
        "music": 8 * 1_553_852,
    }


@pytest.mark.parametrize(
    "script",
    [
        forever(OK + b"\r\n", ZEROS),
        forever(OK + b"Transfer-Encoding: chunked\r\n\r\n", chunked(ZEROS)),
        forever(OK + b"Content-Length: \xb2\r\n\r\n", ZEROS),
    ],
    ids=["to the end of the connection", "chunked", "after a length that is none"],
)
def test_a_body_that_never_ends_is_cut_off_and_cleared(script: Script, folder: Path) -> None:
    with speaking(script) as server, within(4):
        message = refused(server)
        assert f"{server.url} goes on after {LARGEST:,} bytes, and is another file" in message
        assert len(server.asked) == 1
        assert server.sent < LARGEST + READ_AHEAD
    assert names(folder) == set()


@pytest.mark.parametrize("length", [str(LARGEST + 1), str(10**20), "0" * 50 + str(10**20), "9" * 5_000])
def test_a_length_beyond_the_files_is_refused_before_the_body_is_read(length: str, folder: Path) -> None:
    with speaking(forever(OK + b"Content-Length: %s\r\n\r\n" % length.encode(), ZEROS)) as server, within(4):
        message = refused(server)
        assert f"{server.url} is another file: it is larger than {LARGEST:,} bytes" in message
        assert len(server.asked) == 1
    assert names(folder) == set()


def test_where_the_exact_size_is_known_one_byte_more_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    refusal = pytest.raises(CorpusError, match="is another file: it is larger than 6,546,665 bytes")
    with speaking(said(OK + b"Content-Length: 6546666\r\n\r\n")) as server, within(4), refusal:
        fetching.fetch("linux", url=server.url)


def test_a_body_longer_than_its_own_stated_length_is_cut_off(folder: Path) -> None:
    head = b"Content-Length: 70000\r\nTransfer-Encoding: chunked\r\n\r\n"
    with speaking(forever(OK + head, chunked(ZEROS))) as server, within(4):
        assert "goes on after the 70,000 bytes it said" in refused(server)
    assert names(folder) == set()


def test_what_a_redirect_says_besides_its_place_is_not_read() -> None:
    first = forever(b"HTTP/1.1 302 Found\r\nLocation: /there\r\n\r\n", ZEROS)
    with speaking(first, said(OK + b"\r\n" + CONTENT)) as server, within(4):
        assert get(server).paper
        assert [request.split()[1] for request in server.asked] == [b"/corpus.txt", b"/there"]
        assert server.sent < READ_AHEAD


def test_redirects_are_followed_ten_times() -> None:
    moved = said(b"HTTP/1.1 302 Found\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n")
    with speaking(moved) as server, within(4):
        assert "redirects more than 10 times" in refused(server)
        assert len(server.asked) == 11
    with speaking(*[moved] * 10, said(OK + b"\r\n" + CONTENT)) as server, within(4):
        assert get(server).paper


@pytest.mark.parametrize("method", ["gzip", "GZIP"])
def test_a_body_that_is_compressed_unasked_is_taken(method: str) -> None:
    head = b"Content-Encoding: %s\r\n\r\n" % method.encode()
    with speaking(said(OK + head + gzip.compress(CONTENT))) as server:
        assert get(server).path.read_bytes() == CONTENT


def test_a_body_that_expands_is_cut_off_and_one_that_may_expand_without_a_bound_is_refused(folder: Path) -> None:
    bomb = gzip.compress(bytes(64 << 20), 9)
    with speaking(said(OK + b"Content-Encoding: gzip\r\n\r\n" + bomb)) as server, within(4):
        assert f"goes on after {LARGEST:,} bytes" in refused(server)
    for method in ("gzip, gzip", "br", "zstd", "\x1b[2J"):
        with speaking(said(OK + b"Content-Encoding: %s\r\n\r\n" % method.encode() + bomb)) as server, within(4):
            assert "is compressed on its way, by " in refused(server)
            assert len(server.asked) == 1
    assert names(folder) == set()


@pytest.mark.parametrize(
    ("first", "again"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
        (b"", b"x" * 10_000),
        (OK + b"X: ", b"x" * 10_000),
        (OK, b"X: y\r\n" * 1_000),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"0" * 10_000),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5;", b"x" * 10_000),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n" * 1_000),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n", ZEROS),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1;" + b"x" * 1000 + b"\r\ny\r\n"),
        (OK + b"Content-Encoding: gzip\r\n\r\n", gzip.compress(b"") * 1_000),
    ],
    ids=[
        "continue",
        "line",
        "header",
        "headers",
        "chunk-size",
        "chunk-extension",
        "trailers",
        "negative-chunk",
        "tiny-chunks",
        "nothing",
    ],
)
def test_what_surrounds_a_body_does_not_go_on_for_ever_either(first: bytes, again: bytes) -> None:
    with speaking(forever(first, again)) as server, within(6):
        refused(server, retries=0)
        assert server.sent < 2 * LARGEST + READ_AHEAD


def full(path: Path) -> SimpleNamespace:
    return SimpleNamespace(free=100_000)


@pytest.mark.parametrize(
    "fetched",
    [lambda server, path: get(server), lambda server, path: fetching.fetch("english", path)],
    ids=["download", "file"],
)
def test_a_disk_without_space_is_noticed_before_anything_is_asked_or_copied(
    fetched: Callable[[FileServer, Path], object],
    server: FileServer,
    tmp_path: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "file").write_bytes(CONTENT)
    monkeypatch.setattr(shutil, "disk_usage", full)
    with pytest.raises(SaveError, match="it needs 200,000 bytes and some to spare, and the disk has 100,000 free"):
        fetched(server, tmp_path / "file")
    assert server.seen == []
    assert names(folder) == set()


def test_a_disk_without_space_for_what_the_server_says_is_noticed_before_the_body_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=(1 << 20) + 500_000))
    refusal = pytest.raises(SaveError, match="it needs 1,000,000 bytes and some to spare")
    with speaking(forever(OK + b"Content-Length: 1000000\r\n\r\n", ZEROS)) as server, within(4), refusal:
        get(server)
    assert names(folder) == set()
