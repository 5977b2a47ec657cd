"""What is installed, from where, and as what."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from commands import unroll
from fetch_cases import CONTENT, OTHER, SHIPPED, SMALL, get, names, refused
from file_server import FileServer

from unroll.base.errors import ConfigurationError, CorpusError
from unroll.corpus.datasets import git_blob
from unroll.corpus.fetching import fetching
from unroll.corpus.fetching.fetching import Installed, fetch, installed


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


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none", "No such file"),
        ("", "No such file"),
        ("empty", "is empty"),
        ("x" * 300, "File name too long"),
    ],
)
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


def test_a_reconstruction_that_takes_anothers_place_says_whose(folder: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).write_text(f"the {name} text\n" * 50)
    said = [unroll("data", "fetch", "english", "--from", tmp_path / name).out for name in ("first", "first", "second")]
    assert ["takes the place" in words for words in said] == [False, False, True]
    assert f"It takes the place of what came from {tmp_path / 'first'}." in said[2]
