"""Downloads that break off, and servers that do not answer."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
from fetch_cases import CONTENT, OTHER, SMALL, get, names, refused, stop
from file_server import FileServer, closed_port

from unroll.base.errors import ConfigurationError
from unroll.corpus.fetching.fetching import fetch, installed


def test_a_broken_download_goes_on_with_a_range_request_from_where_it_stopped(server: FileServer, folder: Path) -> None:
    kept = stop(server, folder)
    assert names(folder) == {"english.part", "english.part.json"}
    assert installed("english") is None
    sent = server.sent
    assert get(server).paper
    assert server.asked == [None, f"bytes={kept}-"]
    assert server.seen[1]["If-Range"] == '"one"'
    assert server.sent - sent == len(CONTENT) - kept
    assert names(folder) == {"english.txt", "english.json"}


def test_the_same_happens_within_one_call(server: FileServer) -> None:
    server.cuts = [50_000, 50_000, 50_000]
    assert get(server).path.read_bytes() == CONTENT
    starts = [int(asked.split("=")[1][:-1]) for asked in server.asked[1:] if asked]
    assert len(starts) == 3
    assert starts == sorted(set(starts))


def test_a_message_about_a_broken_download_says_what_is_kept(server: FileServer, folder: Path) -> None:
    server.cuts = [120_000]
    message = refused(server, retries=0)
    kept = (folder / "english.part").stat().st_size
    assert f"the connection broke after {kept:,} of 200,000 bytes" in message
    assert f"{kept:,} bytes are kept: the same command goes on from there" in message


def test_a_changed_etag_restarts(server: FileServer, folder: Path) -> None:
    server.content = OTHER
    server.cuts = [120_000]
    refused(server, retries=0)
    server.content, server.etag = CONTENT, '"two"'
    assert get(server).path.read_bytes() == CONTENT
    assert [request.get("If-Range") for request in server.seen] == [None, '"one"']


def test_a_changed_weak_etag_restarts_though_it_may_not_be_sent_back(server: FileServer, folder: Path) -> None:
    server.content, server.etag = OTHER, 'W/"one"'
    server.cuts = [120_000]
    refused(server, retries=0)
    server.content, server.etag = CONTENT, 'W/"two"'
    calls: list[int] = []
    assert get(server, progress=lambda done, total: calls.append(done)).path.read_bytes() == CONTENT
    assert calls[0] == 0  # nothing was added to the old beginning
    assert [request.get("If-Range") for request in server.seen] == [None] * 3
    assert [bool(asked) for asked in server.asked] == [False, True, False]


def test_a_date_stands_in_for_an_etag(server: FileServer, folder: Path) -> None:
    server.etag, server.modified = None, "Mon, 21 Nov 2016 13:26:00 GMT"
    stop(server, folder)
    server.modified = "Tue, 22 Nov 2016 13:26:00 GMT"
    assert get(server).paper
    assert server.seen[1]["If-Range"] == "Mon, 21 Nov 2016 13:26:00 GMT"
    assert server.sent > len(CONTENT) + 100_000  # it began anew


def test_a_server_without_etag_or_date_that_changed_the_file_costs_one_more_download(server: FileServer) -> None:
    server.content, server.etag = OTHER, None
    server.cuts = [120_000]
    refused(server, retries=0)
    server.content = CONTENT
    assert get(server).path.read_bytes() == CONTENT
    assert [bool(asked) for asked in server.asked] == [False, True, False]


def test_a_server_that_ignores_range_restarts_cleanly(server: FileServer, folder: Path) -> None:
    server.ranges = False
    kept = stop(server, folder)
    assert get(server).path.read_bytes() == CONTENT
    assert server.asked == [None, f"bytes={kept}-"]


def test_what_is_kept_of_one_url_is_not_continued_from_another(server: FileServer, folder: Path) -> None:
    stop(server, folder)
    assert get(server, url=server.url + "?mirror").paper
    assert server.asked == [None, None]


def test_a_file_that_became_shorter_restarts(server: FileServer, folder: Path) -> None:
    stop(server, folder)
    facts = json.loads((folder / "english.part.json").read_text())
    (folder / "english.part.json").write_text(json.dumps(facts | {"total": None}))
    (folder / "english.part").write_bytes(OTHER + OTHER)
    assert get(server).path.read_bytes() == CONTENT
    assert server.asked == [None, "bytes=400000-", None]


def test_a_part_that_is_whole_is_checked_and_installed_without_a_request(server: FileServer, folder: Path) -> None:
    stop(server, folder)
    (folder / "english.part").write_bytes(CONTENT)
    assert get(server).paper
    assert len(server.seen) == 1


@pytest.mark.parametrize("facts", [None, b"", b"[]", b"{", b'{"url": 3}', b"\xff"])
def test_a_part_whose_facts_are_missing_or_damaged_is_begun_anew(
    facts: bytes | None, server: FileServer, folder: Path
) -> None:
    stop(server, folder)
    (folder / "english.part.json").unlink()
    if facts is not None:
        (folder / "english.part.json").write_bytes(facts)
    assert get(server).paper
    assert server.asked == [None, None]


def by_hand(message: str) -> bool:
    return all(words in message for words in (SMALL.url, "unroll data fetch english --from FILE", "$UNROLL_DATA"))


@pytest.mark.parametrize(("status", "words"), [(404, "404 Not Found"), (403, "403 Forbidden"), (204, "204 No Content")])
def test_an_answer_that_will_not_change_is_told_at_once(status: int, words: str, server: FileServer) -> None:
    server.statuses = [status]
    message = refused(server)
    assert f"Could not download english: {server.url} answered {words}." in message
    assert by_hand(message)
    assert len(server.seen) == 1


@pytest.mark.parametrize("status", [500, 503, 429])
def test_an_answer_that_may_change_is_asked_again_three_times_with_growing_waits(
    status: int, server: FileServer, folder: Path
) -> None:
    server.statuses = [status] * 4
    waits: list[float] = []
    message = refused(server, sleep=waits.append)
    assert f"Could not download english after 4 attempts: {server.url} answered {status}" in message
    assert by_hand(message)
    assert waits == [0.5, 1.0, 2.0]
    assert len(server.seen) == 4
    assert names(folder) == set()


def test_a_server_that_recovers_in_time_is_enough(server: FileServer) -> None:
    server.statuses = [500, 503, 502]
    assert get(server).paper


def test_a_refused_connection_is_told_in_words(server: FileServer, folder: Path) -> None:
    port, waits = closed_port(), list[float]()
    message = refused(server, url=f"http://127.0.0.1:{port}/x", sleep=waits.append)
    assert f"after 4 attempts: no answer from 127.0.0.1:{port} (Connection refused)." in message
    assert by_hand(message)
    assert len(waits) == 3
    assert names(folder) == set()


def test_a_server_that_falls_silent_is_not_waited_for(server: FileServer) -> None:
    server.pause = 0.6
    begun = time.perf_counter()
    message = refused(server, timeout=(0.2, 0.2), retries=0)
    assert time.perf_counter() - begun < 2
    assert "the connection broke after 0 of 200,000 bytes" in message
    assert by_hand(message)


def test_without_requests_the_extra_is_named_and_a_file_can_still_be_brought(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "requests", None)
    with pytest.raises(ConfigurationError) as caught:
        get(server)
    assert str(caught.value) == "Downloading needs the data extra: pip install 'unroll-rnn[data]'."
    (tmp_path / "file").write_bytes(CONTENT)
    assert fetch("english", tmp_path / "file").paper
