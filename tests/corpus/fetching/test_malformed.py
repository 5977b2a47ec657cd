"""Answers that are none: numbers that are no numbers, places that are no places, headers of any length and content."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from fetch_cases import CONTENT, get, names, refused, within
from file_server import FileServer
from raw_server import said, speaking

from unroll.base.errors import ConfigurationError, UnrollError

OK = b"HTTP/1.1 200 OK\r\n"
PARTIAL = b"HTTP/1.1 206 Partial Content\r\n"
BEGUN = OK + b'ETag: "one"\r\nContent-Length: 200000\r\n\r\n' + CONTENT[:120_000]
WHOLE = OK + b"Content-Length: 200000\r\n\r\n" + CONTENT


@pytest.mark.parametrize("length", [b"\xb2", b"-1", b"", b"1e3", b"+", b"0x10", b"\x00", b"\xff" * 5_000, b" \t "])
def test_a_length_that_is_none_is_not_known(length: bytes) -> None:
    calls: list[tuple[int, int | None]] = []
    with speaking(said(OK + b"Content-Length: %s\r\n\r\n" % length + CONTENT)) as server, within(4):
        assert get(server, progress=lambda done, total: calls.append((done, total))).paper
    assert calls[0] == (0, None)


def test_two_lengths_are_told_in_words() -> None:
    with speaking(said(OK + b"Content-Length: 5, 6\r\n\r\nsorry")) as server, within(4):
        assert "Could not download english: no answer from 127.0.0.1" in refused(server)


PLACES = [
    b"http://[::1/%zz",
    b"http://[::1",
    b"http://h:99999999999/",
    b"http://h:x/",
    b"http://" + b"a" * 70 + b".b/",
    b"http://\xff\xfe/",
    b"http://%zz/",
    b"http://.../",
    b"http:///",
    b"https:",
    b"//[/",
    b"file:///etc/passwd",
    b"gopher://127.0.0.1/",
    b"\x1b[2Jx://\x07",
    b"http://\x1b[2J/",
    b"http://user:hunter2@[/",
    b"http://user:hunter2@[::1/%zz",
    b"http://user:hunter2@%zz\\/",
    b"ftp://user:hunter2@host/x",
]


@pytest.mark.parametrize("place", PLACES)
def test_a_redirect_to_no_place_is_told_in_words(place: bytes, folder: Path) -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % place
    with speaking(said(moved)) as server, within(4):
        message = refused(server, retries=0)
    assert message.startswith("Could not download english: ")
    assert "hunter2" not in message
    assert names(folder) == set()


def test_a_long_redirect_is_told_in_few_words() -> None:
    place = b"http://" + b"[" * 60_000
    with speaking(said(b"HTTP/1.1 302 Found\r\nLocation: %s\r\n\r\n" % place)) as server, within(4):
        refused(server)  # which looks at the length of what is said


def test_a_redirect_may_be_written_in_utf_8() -> None:
    moved = said(b"HTTP/1.1 302 Found\r\nLocation: /t\xc3\xa4\xc3\xa4ll\xc3\xa4 t\xff\r\nContent-Length: 0\r\n\r\n")
    with speaking(moved, said(WHOLE)) as server, within(4):
        assert get(server).paper
        assert server.asked[1].split()[1] == b"/t%C3%A4%C3%A4ll%C3%A4%20t%EF%BF%BD"


def test_a_password_goes_to_no_other_host_and_stays_for_its_own(server: FileServer) -> None:
    def moved(where: str) -> bytes:
        return f"HTTP/1.1 302 Found\r\nLocation: {where}\r\nContent-Length: 0\r\n\r\n".encode()

    with speaking(said(moved("/there"))) as own, within(4):
        own.scripts += [said(moved(own.url)), said(moved(server.url))]
        assert get(own, url=own.url.replace("//", "//me:hunter2@")).paper
        assert [b"Authorization: Basic bWU6aHVudGVyMg==" in request for request in own.asked] == [True] * 3
    assert "Authorization" not in server.seen[0]


@pytest.mark.parametrize(
    "url", ["http://me:hunter2@[::1/%zz", "http://me:hunter2@h:x/", "http://%zz/", "http://" + "a" * 70 + ".b/x"]
)
def test_a_url_that_is_none_is_told_in_words(url: str) -> None:
    with speaking() as nobody, within(4):
        message = refused(nobody, url=url)
    assert "no answer from " in message
    assert "hunter2" not in message


@pytest.mark.parametrize("url", ["http://h/\x1b[2J", "http://h/\n", "ftp://me:p@ss@h/\x1b", "http:/\x07/h/"])
def test_what_a_url_holds_cannot_drive_a_terminal(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught, speaking() as nobody:
        get(nobody, url=url)
    assert str(caught.value).isprintable()
    assert "p@ss" not in str(caught.value)


def test_a_password_with_an_at_sign_is_not_shown_in_part(server: FileServer, folder: Path) -> None:
    server.statuses = [404]
    message = refused(server, url=server.url.replace("//", "//me:hunter@2@"))
    assert f"{server.url} answered 404" in message


@pytest.mark.parametrize("reason", [b"x" * 60_000, b"\x1b[2J\x07\x9b1A", b"\xe2\x80\xae" * 100, b""])
def test_a_reason_is_shown_in_few_plain_characters(reason: bytes) -> None:
    with speaking(said(b"HTTP/1.1 404 %s\r\nContent-Length: 0\r\n\r\n" % reason)) as server, within(4):
        assert f"{server.url} answered 404" in refused(server)


@pytest.mark.parametrize(
    "header",
    [
        b'ETag: "a\r\n b"',
        b'ETag: "a\r\n\tX: y"',
        b'ETag: "a\xff"',
        b'ETag: "a\x00"',
        b'ETag: "' + b"x" * 60_000 + b'"',
        b"ETag: no quotes",
        b"Last-Modified: " + b"x" * 60_000,
        b"Last-Modified: \x1b[2J",
    ],
)
def test_what_may_not_be_sent_back_is_not_stored(header: bytes, folder: Path) -> None:
    begun = BEGUN.replace(b'ETag: "one"', header)
    with speaking(said(begun)) as server, within(4):
        refused(server, retries=0)
        kept = (folder / "english.part").stat().st_size
        span = b"Content-Range: bytes %d-199999/200000\r\n\r\n" % kept
        server.scripts.append(said(PARTIAL + span + CONTENT[kept:]))
        facts = json.loads((folder / "english.part.json").read_text())
        assert (facts["etag"], facts["modified"], facts["total"]) == (None, None, 200_000)
        assert get(server).paper
        assert len(server.asked) == 2
        assert b"If-Range" not in server.asked[1]


@pytest.mark.parametrize(
    "span",
    [
        b"bytes \xb2-199999/200000",
        b"bytes %d-199999/\xb2",
        b"bytes " + b"9" * 5_000 + b"-199999/200000",
        b"bytes %d-199999/" + b"0" * 5_000,
        b"bytes %d-" + b"9" * 5_000 + b"/200001",
        b"bytes -%d-199999/200000",
        b"bytes %d-199999/",
        b"",
        b"\x1b[2J",
    ],
)
def test_a_range_that_is_none_begins_the_file_anew(span: bytes, folder: Path) -> None:
    with speaking(said(BEGUN)) as server, within(4):
        refused(server, retries=0)
        kept = (folder / "english.part").stat().st_size
        head = PARTIAL + b"Content-Range: %s\r\n\r\n" % span.replace(b"%d", b"%d" % kept)
        server.scripts += [said(head + CONTENT[kept:]), said(WHOLE)]
        assert get(server).path.read_bytes() == CONTENT
        assert [b"Range" in request for request in server.asked] == [False, True, False]


def test_a_range_of_a_file_beyond_all_sizes_is_refused_and_nothing_is_kept(folder: Path) -> None:
    other = PARTIAL + b"Content-Range: bytes 118784-199999/%s\r\n\r\n" % (b"9" * 5_000)
    with speaking(said(BEGUN), said(other)) as server, within(4):
        assert "is another file: it is larger than" in refused(server)
    assert names(folder) == set()


PIECES = [b"", b"\r\n", b"\x00", b"\xb2", b"9" * 30, b"-", b":", b" ", b"\xff" * 99, b"%", b"[", b"\x1b[2J"]


def damaged(answer: bytes, random_: random.Random) -> bytes:
    """An answer with a few of its bytes changed, left out, doubled or made many."""
    for _ in range(random_.randint(1, 4)):
        place = random_.randrange(len(answer))
        piece = random_.choice(PIECES)
        answer = answer[:place] + piece + answer[place + random_.randrange(3) :]
    return answer


def test_any_damaged_answer_is_the_file_or_one_message() -> None:
    random_, served = random.Random(3), 0
    answers = [
        OK + b'ETag: "one"\r\nContent-Length: 9\r\n\r\nsome text',
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n4;x=y\r\nyou \r\n0\r\nA: b\r\n\r\n",
        OK + b"Content-Encoding: gzip\r\nContent-Length: 9\r\n\r\n\x1f\x8b\x08\x00some",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/x?y#z\r\nSet-Cookie: a=b; Path=/\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Busy\r\nRetry-After: 5\r\n\r\n",
    ]
    for _ in range(8):
        with speaking(*[said(damaged(random_.choice(answers), random_)) for _ in range(20)]) as server, within(8):
            while len(server.asked) < 20:
                with pytest.raises(UnrollError) as caught:  # anything else that is raised fails this test
                    get(server, retries=0, timeout=(0.5, 0.5))
                assert str(caught.value).isprintable()
            served += len(server.asked)
    assert served == 160
