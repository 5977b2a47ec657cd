"""Kills, full disks, other processes; and what is said on the way."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from fetch_cases import CONTENT, SMALL, get, names
from file_server import FileServer

from unroll.base import atomic_files
from unroll.base.errors import SaveError, UnrollError
from unroll.corpus.fetching import fetching
from unroll.corpus.fetching.fetching import Installed, fetch, installed


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
    whole = atomic_files.write_temporary

    def full(path: Path, file: BinaryIO, content: bytes) -> None:
        if path.name.startswith("english.json"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        whole(path, file, content)

    monkeypatch.setattr(atomic_files, "write_temporary", full)
    with pytest.raises(SaveError, match="No space left on device"):
        get(server)
    assert names(folder) == {"english.part", "english.part.json"}
    monkeypatch.setattr(atomic_files, "write_temporary", whole)
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
from unroll.corpus.fetching import fetching
fetching.PAPER = {"english": fetching.PaperFile("english", "shakespeare.txt", sys.argv[2], 200_000, 256)}
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
