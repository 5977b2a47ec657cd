"""A cache, or a folder of data sets, that somebody else has filled."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import unroll
from fetch_cases import CONTENT, OTHER, SMALL, get, names, refused, stop, within
from file_server import FileServer

from unroll.base.errors import CorpusError, SaveError
from unroll.corpus.fetching.fetching import Installed, fetch, installed

HUGE = 10 << 30
Maker = Callable[[Path], None]


def link(path: Path) -> None:
    path.symlink_to(path.parent.parent / "mine")


def second_name(path: Path) -> None:
    path.hardlink_to(path.parent.parent / "mine")


def dangling(path: Path) -> None:
    path.symlink_to(path.parent.parent / "not there")


def circle(path: Path) -> None:
    path.symlink_to(path)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def listening(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # a socket's name is short
    with socket.socket(socket.AF_UNIX) as own:
        own.bind(path.name)
    os.chdir(here)


def subfolder(path: Path) -> None:
    path.mkdir()


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(HUGE)


NOT_PLAIN = [link, second_name, dangling, circle, fifo, device, listening]


@pytest.fixture
def mine(folder: Path) -> Path:
    """A file of mine beside the cache's folder, which nobody may write to."""
    folder.mkdir(parents=True)
    path = folder.parent / "mine"
    path.write_bytes(OTHER)
    return path


@pytest.fixture
def kept(server: FileServer, folder: Path, mine: Path) -> int:
    """How many bytes are kept of a download that broke off."""
    return stop(server, folder)


def replace(path: Path, make: Maker) -> None:
    path.unlink(missing_ok=True)
    make(path)


@pytest.mark.parametrize(("make", "total"), [*((make, None) for make in [*NOT_PLAIN, huge]), (huge, HUGE)])
def test_a_part_that_is_no_plain_file_of_ours_is_begun_anew(
    make: Maker, total: int | None, kept: int, server: FileServer, folder: Path, mine: Path
) -> None:
    replace(folder / "english.part", make)
    facts = json.loads((folder / "english.part.json").read_text())
    (folder / "english.part.json").write_text(json.dumps(facts | {"total": total}))
    with within(3):
        assert get(server).path.read_bytes() == CONTENT
    assert server.asked == [None, None]
    assert mine.read_bytes() == OTHER
    assert not (mine.parent / "not there").exists()
    assert names(folder) == {"english.txt", "english.json"}


FACTS = {"etag": '"one"', "modified": None, "total": 200_000}
DAMAGED = [
    {"total": True},
    {"total": -1},
    {"total": 1e999},
    {"total": 2e5},
    {"total": "200000"},
    {"total": HUGE},
    {"total": [200_000]},
    {"etag": 3},
    {"etag": ["one"]},
    {"etag": '"one"\r\nX: y'},
    {"etag": ' "one"'},
    {"etag": '"\ud800"'},
    {"etag": '"' + "x" * 1_000 + '"'},
    {"modified": "Mon\nX: y"},
    {"modified": {"deep": 1}},
    {"url": None},
    {"url": ["http"]},
]


@pytest.mark.parametrize("wrong", DAMAGED, ids=lambda wrong: ascii(wrong)[:30])
def test_facts_with_anything_in_them_that_we_do_not_write_are_none(
    wrong: dict[str, object], kept: int, server: FileServer, folder: Path
) -> None:
    (folder / "english.part.json").write_text(json.dumps({"url": server.url, **FACTS, **wrong}))
    assert get(server).paper
    assert server.asked == [None, None]


DEEP = b"[" * 60_000
LARGE = b'{"url": "' + b"x" * (10 << 20) + b'"}'


@pytest.mark.parametrize("content", [DEEP, LARGE, b'{"total": ' + b"9" * 5_000 + b"}", b'{"\xff": 1}'])
def test_facts_that_are_deep_or_large_are_none(content: bytes, kept: int, server: FileServer, folder: Path) -> None:
    (folder / "english.part.json").write_bytes(content)
    assert get(server).paper
    assert server.asked == [None, None]


@pytest.mark.parametrize("make", [*NOT_PLAIN, huge])
def test_facts_in_what_is_no_plain_file_are_none(
    make: Maker, kept: int, server: FileServer, folder: Path, mine: Path
) -> None:
    replace(folder / "english.part.json", make)
    with within(3):
        assert get(server).paper
    assert server.asked == [None, None]
    assert mine.read_bytes() == OTHER


@pytest.mark.parametrize("name", ["english.part", "english.part.json", "english.txt", "english.json", "english.lock"])
def test_a_folder_in_the_place_of_a_file_is_one_line(name: str, server: FileServer, folder: Path) -> None:
    (folder / name / "inner").mkdir(parents=True)
    with within(3), pytest.raises(SaveError, match="Could not save ") as caught:
        get(server)
    assert str(caught.value).isprintable()
    assert (folder / name / "inner").is_dir()


@pytest.mark.parametrize("make", [link, dangling, circle, fifo, device, listening])
def test_a_lock_that_is_no_plain_file_is_neither_opened_nor_emptied(
    make: Maker, server: FileServer, folder: Path, mine: Path
) -> None:
    make(folder / "english.lock")
    refusal = pytest.raises(
        SaveError, match=r"english.lock: it is a (link|named pipe|socket) and no plain file; delete it"
    )
    with within(3), refusal:
        get(server)
    assert mine.read_bytes() == OTHER
    assert not (mine.parent / "not there").exists()
    assert server.seen == []


def test_a_lock_that_is_another_name_of_a_file_does_not_empty_it(server: FileServer, folder: Path, mine: Path) -> None:
    second_name(folder / "english.lock")
    assert get(server).paper
    assert mine.read_bytes() == OTHER


@pytest.mark.parametrize("make", [*NOT_PLAIN, huge])
@pytest.mark.parametrize("way", ["download", "file"])
def test_what_is_installed_takes_the_place_of_a_link_and_writes_through_none(
    make: Maker, way: str, server: FileServer, folder: Path, mine: Path, tmp_path: Path
) -> None:
    make(folder / "english.txt")
    make(folder / "english.json")
    (tmp_path / "file").write_bytes(CONTENT)
    with within(3):
        assert (get(server) if way == "download" else fetch("english", tmp_path / "file")).paper
    assert (folder / "english.txt").read_bytes() == CONTENT
    assert mine.read_bytes() == OTHER
    assert not (mine.parent / "not there").exists()
    assert names(folder) == {"english.txt", "english.json"}


@pytest.mark.parametrize("make", NOT_PLAIN)
def test_a_copy_on_its_way_has_a_name_of_its_own_and_clears_what_a_killed_one_left(
    make: Maker, folder: Path, mine: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(CONTENT)
    make(folder / "english.txt.partial")
    make(folder / "english.txt.123-0123abcd.partial")
    (folder / "english.txt.mine.partial").write_bytes(OTHER)
    seen: list[set[str]] = []
    with within(3):
        assert fetch("english", tmp_path / "file", progress=lambda done, total: seen.append(names(folder))).paper
    assert len(seen[0]) == 2
    assert str(os.getpid()) in min(seen[0])
    assert mine.read_bytes() == OTHER
    assert names(folder) == {"english.txt", "english.json", "english.txt.mine.partial"}


@pytest.mark.parametrize("make", [dangling, circle, fifo, device, listening, subfolder])
def test_what_is_no_plain_file_is_no_data_set(
    make: Maker, folder: Path, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data" / "sets").mkdir(parents=True)
    monkeypatch.setenv("UNROLL_DATA", str(tmp_path / "data" / "sets"))
    for path in (folder / "english.txt", tmp_path / "data/sets/english.txt", tmp_path / "data/sets/shakespeare.txt"):
        make(path)
        with within(3):
            assert installed("english") is None
            with pytest.raises(CorpusError, match=r"(No such|Not a plain) file: "):
                fetch("english", path)
    with within(3):
        assert unroll("data", "list").code == 0
        assert unroll("data", "info", "english").code == 2


@pytest.mark.parametrize("name", ["UNROLL_DATA", "UNROLL_CACHE"])
def test_a_file_of_a_size_that_the_papers_cannot_have_is_not_read(
    name: str, folder: Path, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "UNROLL_DATA":
        monkeypatch.setenv("UNROLL_DATA", str(folder))
        monkeypatch.setenv("UNROLL_CACHE", str(folder.parent / "elsewhere"))
    path = folder / "english.txt"
    huge(path)
    (folder / "english.json").write_text(json.dumps({"blob": SMALL.blob, "origin": "me", "bytes": 3}))
    with within(1):
        assert installed("english") == Installed("english", path, False, str(path))


def test_a_data_set_may_be_a_link(folder: Path, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine.write_bytes(CONTENT)
    link(folder / "shakespeare.txt")
    monkeypatch.setenv("UNROLL_DATA", str(folder))
    found = installed("english")
    assert found
    assert found.paper


@pytest.mark.parametrize("origin", [3, ["x"], {"a": 1}, "\x1b[2J", "two\nlines", None])
def test_an_origin_that_cannot_be_shown_is_not(origin: object, folder: Path, mine: Path) -> None:
    (folder / "english.txt").write_bytes(CONTENT)
    note = {"blob": SMALL.blob, "origin": origin, "bytes": len(CONTENT)}
    (folder / "english.json").write_text(json.dumps(note))
    assert installed("english") == Installed("english", folder / "english.txt", True, str(folder / "english.txt"))


def test_a_message_names_what_is_in_the_way(server: FileServer, folder: Path, mine: Path) -> None:
    server.statuses = [404]
    fifo(folder / "english.part")
    with within(3):
        assert "answered 404" in refused(server)
