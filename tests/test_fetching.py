"""The paper's data sets are fetched whole and checked, or not at all. Only the loopback is contacted."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from file_server import FileServer, closed_port, serving

from unroll import durable, fetching
from unroll.datasets import git_blob
from unroll.errors import ConfigurationError, CorpusError, SaveError, UnrollError
from unroll.fetching import Installed, PaperFile, fetch, installed

CONTENT = random.Random(0).randbytes(200_000)
OTHER = random.Random(1).randbytes(200_000)
SHIPPED = dict(fetching.PAPER)
SMALL = PaperFile("english", "shakespeare.txt", git_blob(CONTENT), 7, 3)


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


def get(server: FileServer, **options: Any) -> Installed:
    """Fetch without waiting between attempts."""
    return fetch("english", **{"url": server.url, "sleep": lambda seconds: None, **options})


def refused(server: FileServer, **options: Any) -> str:
    """What a fetch that fails says, in one line."""
    with pytest.raises(CorpusError) as caught:
        get(server, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def names(folder: Path) -> set[str]:
    """What lies in the cache, but for the lock."""
    return {path.name for path in folder.iterdir()} - {"english.lock"}


def stop(server: FileServer, folder: Path) -> int:
    """A download that breaks off, and the bytes that are kept of it."""
    server.cuts = [120_000]
    refused(server, retries=0)
    kept = (folder / "english.part").read_bytes()
    assert CONTENT.startswith(kept)
    assert 100_000 < len(kept) <= 120_000
    return len(kept)


# --- what the paper published ------------------------------------------------------------------------------------


def test_the_catalogue_has_the_papers_files_blob_ids_and_counts() -> None:
    assert {name: (paper.file, paper.blob, paper.tokens, paper.unique) for name, paper in SHIPPED.items()} == {
        "english": ("shakespeare.txt", "8dc7d27dcfb2514eb9a535b398c873d4beca818b", 6_347_705, 85),
        "finnish": ("finnish.txt", "7ddc8f923094ad1570e4cc8766d4b1ca25bd39e2", 10_976_530, 106),
        "linux": ("linux.txt", "9842f6825e079b00606c74fdc5d68b13d1b26f05", 6_546_665, 97),
        "music": ("music.txt", "ad37dc2856d1e792575e21175e82a6221edde1aa", 1_553_852, 90),
    }
    assert all(paper.name == name for name, paper in SHIPPED.items())
    assert SHIPPED["english"].url == (
        "https://raw.githubusercontent.com/cedricdeboom/character-level-rnn-datasets/master/datasets/shakespeare.txt"
    )
    assert "line ends" in SHIPPED["music"].note


def test_a_digest_is_the_one_of_git_and_of_sha256sum(tmp_path: Path) -> None:
    for content in (b"", b"x", CONTENT * 11):
        (tmp_path / "file").write_bytes(content)
        found = fetching.Digest.of(tmp_path / "file")
        assert found == fetching.Digest(git_blob(content), hashlib.sha256(content).hexdigest(), len(content))


# --- downloads ---------------------------------------------------------------------------------------------------


def test_the_right_content_is_installed_with_a_note_of_where_it_came_from(server: FileServer, folder: Path) -> None:
    assert installed("english") is None
    expected = Installed("english", folder / "english.txt", True, server.url)
    assert get(server) == expected == installed("english")
    assert expected.path.read_bytes() == CONTENT
    assert names(folder) == {"english.txt", "english.json"}
    note = json.loads((folder / "english.json").read_text())
    assert len(note.pop("fetched")) == len("2018-01-02")
    assert note == {
        "blob": SMALL.blob,
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
        "bytes": len(CONTENT),
        "origin": server.url,
        "paper": True,
    }


def test_what_is_installed_is_not_downloaded_again(server: FileServer) -> None:
    assert get(server) == get(server) == fetch("english")
    assert len(server.seen) == 1


def test_an_installed_file_that_was_damaged_is_not_the_papers_and_is_downloaded_again(server: FileServer) -> None:
    path = get(server).path
    path.write_bytes(CONTENT[:-1] + b"?")
    assert installed("english") == Installed("english", path, False, str(path))
    assert get(server).paper
    assert path.read_bytes() == CONTENT


def test_without_a_url_the_papers_own_is_asked(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "BASE", server.url + "/")
    assert fetch("english").origin == server.url + "/shakespeare.txt"


def test_wrong_content_is_refused_and_nothing_is_kept_of_it(server: FileServer, folder: Path) -> None:
    server.content = OTHER
    message = refused(server)
    assert f"expected git blob {SMALL.blob}, got {git_blob(OTHER)} (200,000 bytes)" in message
    assert "--from FILE" in message
    assert names(folder) == set()
    assert installed("english") is None
    assert len(server.seen) == 1


def test_a_password_in_a_url_is_neither_shown_nor_stored(server: FileServer, folder: Path) -> None:
    secret = server.url.replace("//", "//me:hunter2@")
    server.statuses = [404]
    assert "hunter2" not in refused(server, url=secret)
    assert get(server, url=secret).origin == server.url
    assert "hunter2" not in (folder / "english.json").read_text()


def test_a_redirect_is_followed(server: FileServer) -> None:
    server.moved = "/elsewhere"
    assert get(server).paper


def test_content_without_a_stated_length_is_accepted_and_a_broken_one_resumed(server: FileServer) -> None:
    server.lengths, server.cuts = False, [120_000]
    calls: list[tuple[int, int | None]] = []
    assert get(server, progress=lambda done, total: calls.append((done, total))).paper
    assert calls[0] == (0, None)
    assert calls[-1] == (200_000, 200_000)  # the second answer told
    assert len(server.seen) == 2


# --- resuming ----------------------------------------------------------------------------------------------------


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


# --- no network --------------------------------------------------------------------------------------------------


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


def test_without_pooch_the_extra_is_named_and_a_file_can_still_be_brought(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ConfigurationError) as caught:
        get(server)
    assert str(caught.value) == "Downloading needs the data extra: pip install 'unroll-rnn[data]'."
    (tmp_path / "file").write_bytes(CONTENT)
    assert fetch("english", tmp_path / "file").paper


# --- what cannot be asked for ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("englsh", {}, "Cannot fetch englsh. Known: english, finnish, linux, music. Did you mean english?"),
        ("../english", {}, "Cannot fetch ../english."),
        ("stdlib", {}, "stdlib is made on this machine"),
        ("english", {"url": "ftp://127.0.0.1/x"}, "http:// or https://"),
        ("english", {"url": "/home/me/shakespeare.txt"}, "--from"),
        ("english", {"url": "http://127.0.0.1/x", "from_file": Path("x")}, "Got both"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_done(
    name: str, options: dict[str, Any], words: str, folder: Path
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        fetch(name, **options)
    assert words in str(caught.value)
    assert not folder.exists()


def test_an_unknown_name_is_not_installed() -> None:
    assert installed("../english") is installed("stdlib") is None


# --- files brought by hand ---------------------------------------------------------------------------------------


def test_a_file_with_the_papers_blob_is_the_papers_whatever_its_name(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "download(1).txt").write_bytes(CONTENT)
    expected = Installed("english", folder / "english.txt", True, str(tmp_path / "download(1).txt"))
    assert fetch("english", tmp_path / "download(1).txt") == expected == installed("english")
    assert names(folder) == {"english.txt", "english.json"}
    assert (folder / "english.txt").read_bytes() == CONTENT


def test_any_other_file_is_a_reconstruction_until_the_papers_is_fetched(
    tmp_path: Path, folder: Path, server: FileServer
) -> None:
    (tmp_path / "mine.txt").write_bytes(OTHER)
    expected = Installed("english", folder / "english.txt", False, str(tmp_path / "mine.txt"))
    assert fetch("english", tmp_path / "mine.txt") == expected == installed("english")
    assert json.loads((folder / "english.json").read_text())["paper"] is False
    assert get(server).paper
    assert expected.path.read_bytes() == CONTENT


def test_a_reconstruction_does_not_replace_the_papers_own(tmp_path: Path, server: FileServer) -> None:
    own = get(server)
    (tmp_path / "mine.txt").write_bytes(OTHER)
    with pytest.raises(ConfigurationError, match=f"paper's own english is installed.*{git_blob(OTHER)}"):
        fetch("english", tmp_path / "mine.txt")
    (tmp_path / "copy.txt").write_bytes(CONTENT)
    assert fetch("english", tmp_path / "copy.txt") == own == installed("english")


@pytest.mark.parametrize(("name", "words"), [("none", "No such file"), ("", "No such file"), ("empty", "is empty")])
def test_a_file_that_cannot_be_used_is_one_line(name: str, words: str, tmp_path: Path, folder: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(CorpusError, match=words):
        fetch("english", tmp_path / name)
    assert names(folder) == set()


def test_a_folder_named_by_unroll_data_is_used_in_place(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNROLL_DATA", str(tmp_path))
    assert installed("english") is None
    (tmp_path / "shakespeare.txt").write_bytes(CONTENT)
    own = Installed("english", tmp_path / "shakespeare.txt", True, str(tmp_path / "shakespeare.txt"))
    assert installed("english") == own == fetch("english")
    (tmp_path / "english.txt").write_bytes(OTHER)
    assert installed("english") == own
    (tmp_path / "shakespeare.txt").unlink()
    assert installed("english") == Installed("english", tmp_path / "english.txt", False, str(tmp_path / "english.txt"))
    assert not folder.exists()


def test_unroll_data_comes_before_a_cached_reconstruction_and_after_the_papers_own(
    tmp_path: Path, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "english.txt").write_bytes(OTHER)
    cached = fetch("english", tmp_path / "english.txt")
    monkeypatch.setenv("UNROLL_DATA", str(tmp_path))
    assert cached != installed("english") == Installed("english", tmp_path / "english.txt", False, cached.origin)
    own = get(server)
    assert own.path == cached.path
    assert own == installed("english")


# --- kills, full disks, other processes --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_a_kill_on_the_way_to_the_rename_leaves_nothing_half_installed(
    name: str, server: FileServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = getattr(os, name)

    def killed(*arguments: Any) -> Any:
        if len(arguments) == 2 and str(arguments[1]).endswith("part.json"):
            return whole(*arguments)
        if name == "fsync" and not os.readlink(f"/proc/self/fd/{arguments[0]}").endswith("/english.part"):
            return whole(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, name, killed)
    with pytest.raises(KeyboardInterrupt):
        get(server)
    monkeypatch.undo()
    monkeypatch.setenv("UNROLL_CACHE", str(folder.parent))
    monkeypatch.setattr(fetching, "PAPER", {"english": SMALL})
    assert not (folder / "english.txt").exists()
    assert get(server).path.read_bytes() == CONTENT
    assert len(server.seen) == 1


def test_a_kill_in_the_middle_keeps_the_part_and_installs_nothing(server: FileServer, folder: Path) -> None:
    def killed(done: int, total: int | None) -> None:
        if done > 100_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get(server, progress=killed)
    assert names(folder) == {"english.part", "english.part.json"}
    kept = (folder / "english.part").stat().st_size
    assert get(server).path.read_bytes() == CONTENT
    assert server.asked == [None, f"bytes={kept}-"]


def test_a_kill_while_a_file_is_copied_leaves_nothing(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "file").write_bytes(CONTENT)

    def killed(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("english", tmp_path / "file", progress=killed)
    assert names(folder) == set()


@pytest.mark.parametrize("way", ["download", "file"])
def test_a_full_disk_is_one_line_and_leaves_no_half_file(
    way: str, server: FileServer, tmp_path: Path, folder: Path
) -> None:
    (tmp_path / "file").write_bytes(CONTENT)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(SaveError, match=r"^Could not save .*: File too large. What was saved before is intact.$"):
            get(server, **({} if way == "download" else {"url": None, "from_file": tmp_path / "file"}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(folder) == set()
    assert get(server).paper


def test_a_disk_that_fills_up_at_the_note_installs_nothing(
    server: FileServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = durable.write_temporary

    def full(path: Path, content: bytes) -> None:
        if path.name.startswith("english.json"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        whole(path, content)

    monkeypatch.setattr(durable, "write_temporary", full)
    with pytest.raises(SaveError, match="No space left on device"):
        get(server)
    assert names(folder) == {"english.part", "english.part.json"}
    monkeypatch.setattr(durable, "write_temporary", whole)
    assert get(server).paper
    assert len(server.seen) == 1


def test_a_cache_that_cannot_be_made_is_one_line(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNROLL_CACHE", "/dev/null/cache")
    with pytest.raises(SaveError, match="Could not save /dev/null/cache"):
        get(server)


def test_threads_that_fetch_one_name_at_once_download_it_once(server: FileServer) -> None:
    server.pause = 0.005
    results: list[Installed | UnrollError] = []

    def one() -> None:
        with suppress(UnrollError):
            results.append(get(server))

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [installed("english")] * 4
    assert len(server.seen) == 1


FETCH = """
import sys
from unroll import fetching
fetching.PAPER = {"english": fetching.PaperFile("english", "shakespeare.txt", sys.argv[2], 7, 3)}
fetching.fetch("english", url=sys.argv[1])
"""


def process(server: FileServer) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", FETCH, server.url, SMALL.blob])


def test_a_killed_process_leaves_its_part_to_two_others_that_come_at_once(server: FileServer, folder: Path) -> None:
    server.pause = 0.05
    first = process(server)
    while server.sent < 80_000:
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    assert first.wait(10) == -signal.SIGKILL
    assert names(folder) == {"english.part", "english.part.json"}
    server.pause = 0
    others = [process(server), process(server)]
    assert [other.wait(10) for other in others] == [0, 0]
    found = installed("english")
    assert found
    assert found.paper
    assert names(folder) == {"english.txt", "english.json"}
    assert len(server.seen) == 2
    assert server.asked[1]


# --- progress ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranges", [True, False])
def test_progress_never_goes_back_and_ends_at_the_whole(ranges: bool, server: FileServer) -> None:
    server.ranges, server.cuts = ranges, [120_000, 60_000]
    calls: list[tuple[int, int | None]] = []
    get(server, progress=lambda done, total: calls.append((done, total)))
    done = [call[0] for call in calls]
    assert done == sorted(done)
    assert calls[0] == (0, 200_000)
    assert calls[-1] == (200_000, 200_000)
    assert {total for _, total in calls} == {200_000}


def test_progress_is_also_told_of_a_copy(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(CONTENT * 8)
    calls: list[tuple[int, int | None]] = []
    fetch("english", tmp_path / "file", progress=lambda done, total: calls.append((done, total)))
    assert calls == [(1 << 20, 1_600_000), (1_600_000, 1_600_000)]
