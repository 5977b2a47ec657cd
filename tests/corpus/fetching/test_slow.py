"""Servers that take their time."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fetch_cases import CONTENT, SMALL, get, refused, within
from file_server import FileServer
from raw_server import Script, said, slowly, speaking

OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = b"Content-Length: 200000\r\n\r\n"
PACE = (20_000, 0.2)


def test_a_byte_now_and_then_is_too_slow_and_what_came_is_kept(folder: Path) -> None:
    first = slowly(CONTENT[50_000:], head=OK + LENGTH + CONTENT[:50_000])
    with speaking(first, pause=0.02) as server, within(4):
        begun = time.perf_counter()
        message = refused(server, retries=0, pace=PACE, timeout=(1, 1))
        assert time.perf_counter() - begun < 2
        kept = (folder / "english.part").stat().st_size
        assert (
            f"the connection broke after {kept:,} of 200,000 bytes: fewer than 20,000 bytes in 0.2 seconds" in message
        )
        assert 45_000 < kept < 50_100
        head = b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes %d-199999/200000\r\n\r\n" % kept
        server.scripts.append(said(head + CONTENT[kept:]))
        assert get(server, pace=PACE).paper
        assert b"Range: bytes=%d-\r\n" % kept in server.asked[1]


def test_each_attempt_is_held_to_the_pace_and_there_are_few(folder: Path) -> None:
    with speaking(slowly(CONTENT, head=OK + LENGTH), pause=0.02) as server, within(4):
        assert "after 2 attempts" in refused(server, retries=1, pace=PACE)
        assert len(server.asked) == 2


def test_a_server_that_keeps_the_pace_may_take_as_long_as_it_needs() -> None:
    with speaking(slowly(CONTENT, 20_000, head=OK + LENGTH), pause=0.1) as server, within(4):
        begun = time.perf_counter()
        assert get(server, retries=0, pace=(20_000, 0.6), timeout=(0.6, 0.6)).paper
        assert time.perf_counter() - begun > 0.9


def test_time_that_we_take_ourselves_is_not_the_servers(server: FileServer) -> None:
    begun = time.perf_counter()
    assert get(server, retries=0, pace=(200_000, 0.5), progress=lambda done, total: time.sleep(0.014)).paper
    assert time.perf_counter() - begun > 0.6


HEADERS = b"".join(b"X-%d: y\r\n" % number for number in range(100))


@pytest.mark.parametrize(
    "script",
    [
        slowly(b"HTTP/1.1 200 " + b"x" * 1_000),
        slowly(HEADERS, head=OK),
        slowly(b"HTTP/1.1 100 Continue\r\n\r\n" * 50, 25),
        slowly(LENGTH * 20, head=b"HTTP/1.1 302 Found\r\nLocation: /x\r\n"),
    ],
    ids=["status", "headers", "continue", "redirect"],
)
def test_headers_that_come_slowly_are_not_waited_for(script: Script) -> None:
    with speaking(script, pause=0.03) as server, within(4):
        begun = time.perf_counter()
        message = refused(server, retries=0, timeout=(0.2, 0.2))
        assert 0.15 < time.perf_counter() - begun < 2
    assert f"no answer from 127.0.0.1:{server.port} (its headers took more than 0.2 seconds)" in message


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_slow_proxy_is_not_waited_for_either(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_PROXY")
    with speaking(slowly(HEADERS, head=OK), pause=0.03) as server, within(4):
        monkeypatch.setenv(f"{scheme}_proxy", server.url)
        message = refused(server, retries=0, timeout=(0.2, 0.2), url=f"{scheme}://example.invalid/x")
        assert "no answer from example.invalid (its headers took more than 0.2 seconds)" in message
        assert b"example.invalid" in server.asked[0]


def test_all_redirects_of_an_attempt_have_the_time_of_one() -> None:
    moved = said(b"", b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n")
    with speaking(moved, pause=0.05) as server, within(4):
        assert "its headers took more than 0.3 seconds" in refused(server, retries=0, timeout=(0.3, 0.3))
        assert len(server.asked) < 6


@pytest.mark.parametrize("head", [b"", b"5;x=", b"0\r\n"], ids=["size", "extension", "trailer"])
def test_what_stands_between_chunks_is_held_to_the_pace_too(head: bytes) -> None:
    script = slowly(b"0" * 1_000, head=OK + b"Transfer-Encoding: chunked\r\n\r\n" + head)
    with speaking(script, pause=0.02) as server, within(4):
        assert "fewer than 20,000 bytes in 0.2 seconds" in refused(server, retries=0, pace=PACE)


FETCH = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests in the background may be deaf to it
from unroll.corpus.fetching import fetching
fetching.PAPER = {"english": fetching.PaperFile("english", "shakespeare.txt", sys.argv[2], 200_000, 256)}
fetching.fetch("english", url=sys.argv[1])
"""


@pytest.mark.parametrize("kept", [0, 50_000], ids=["headers", "content"])
def test_ctrl_c_ends_the_wait_at_once_and_keeps_the_part(kept: int, folder: Path) -> None:
    head = OK + LENGTH + CONTENT[:kept] if kept else OK
    with speaking(slowly(CONTENT[kept:], head=head), pause=0.05) as server, within(20):
        command = [sys.executable, "-c", FETCH, server.url, SMALL.blob]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as waiting:
            while not server.asked or server.sent < len(head) + 2:
                time.sleep(0.01)
            begun = time.perf_counter()
            waiting.send_signal(signal.SIGINT)
            _, said_last = waiting.communicate()
        assert time.perf_counter() - begun < 5
        assert said_last.rstrip().endswith("KeyboardInterrupt")
    part = (folder / "english.part").read_bytes() if kept else b""
    assert CONTENT.startswith(part)
    assert len(part) >= kept - 5_000
