"""Corpora in which not everything is a regular file: nothing is waited for, nothing is walked in circles."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from commands import tiny_run, unroll
from midi_files import midi, on

from unroll.base.errors import CorpusError
from unroll.corpus import folders, sources
from unroll.corpus.chosen_files import Choice
from unroll.corpus.corpus import Corpus
from unroll.corpus.music.reading import read_folder
from unroll.corpus.tokens import Vocabulary, load

pytestmark = pytest.mark.usefixtures("alarm")


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(here)


def link_to(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


SPECIAL = {
    "a named pipe": make_fifo,
    "a socket": make_socket,
    "a link to an endless device": link_to("/dev/zero"),
    "a link to a terminal": link_to("/dev/tty"),
    "a link to nothing": link_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to the folder": link_to("."),
    "a link to all folders": link_to("/"),
    "a link to a log that is waited for": link_to("/proc/kmsg"),
}


@pytest.mark.parametrize("what", list(SPECIAL))
def test_a_folder_may_hold_anything_and_its_text_files_are_read(tmp_path: Path, what: str) -> None:
    (tmp_path / "a.txt").write_text("1")
    SPECIAL[what](tmp_path / "b.txt")
    (tmp_path / "c.txt").write_text("2")
    corpus = Corpus.open(str(tmp_path))
    assert corpus.vocabulary.decode(corpus.ids) == "12"


@pytest.mark.parametrize("what", list(SPECIAL))
def test_a_folder_of_music_may_hold_anything_and_its_pieces_are_read(tmp_path: Path, what: str) -> None:
    for name, pitch in (("a.mid", 60), ("c.mid", 62)):
        (tmp_path / name).write_bytes(midi([on(480, pitch)]))
    SPECIAL[what](tmp_path / "b.mid")
    assert read_folder(tmp_path).text == "60\n62\n"


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("a named pipe", "is neither a file nor a folder"),
        ("a socket", "is neither a file nor a folder"),
        ("a link to an endless device", "is neither a file nor a folder"),
        ("a link to nothing", "No such file, folder or data set"),
        ("a link to itself", "cannot be read: Too many levels of symbolic links"),
    ],
)
def test_a_corpus_that_is_no_file_is_refused_in_words(tmp_path: Path, what: str, told: str) -> None:
    for name in ("corpus", "corpus.mid"):
        SPECIAL[what](tmp_path / name)
        with pytest.raises(CorpusError, match=told):
            Corpus.open(str(tmp_path / name))


@pytest.mark.parametrize("name", ["a" * 5000, "a/" * 5000, "a\0b", "text.txt/below"])
def test_a_name_that_no_file_can_have_is_refused_in_words(tmp_path: Path, name: str) -> None:
    (tmp_path / "text.txt").write_text("text")
    with pytest.raises(CorpusError, match=r"cannot be read|No such file"):
        Corpus.open(f"{tmp_path}/{name}")


def test_what_would_have_to_be_waited_for_is_refused_and_not_taken_for_the_end() -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.write(writing, b"some")
    with os.fdopen(reading, "rb") as file:
        assert folders.read_piece(file, 100) == b"some"
        with pytest.raises(OSError, match="would have to be waited for"):
            folders.read_piece(file, 100)
        os.close(writing)
        assert folders.read_piece(file, 100) == b""


def test_links_to_regular_files_are_read_and_those_to_folders_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "text").write_text("2")
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text("1")
    (tmp_path / "corpus" / "b.txt").symlink_to("../elsewhere/text")
    (tmp_path / "corpus" / "c").symlink_to("../elsewhere")
    (tmp_path / "all").symlink_to("corpus")
    for source, text in (("corpus", "12"), ("corpus/b.txt", "2"), ("all", "12")):
        corpus = Corpus.open(str(tmp_path / source))
        assert corpus.vocabulary.decode(corpus.ids) == text


@contextmanager
def deep(folder: Path, levels: int, name: str = "d") -> Iterator[int]:
    """Folders in folders, perhaps more than any path leads to; the last of them, open."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    try:
        yield here
    finally:
        for _ in range(levels):  # nobody else can clear them away
            for file in os.listdir(here):
                if file != name:
                    os.unlink(file, dir_fd=here)
            above = os.open("..", os.O_RDONLY, dir_fd=here)
            os.rmdir(name, dir_fd=above)
            os.close(here)
            here = above
        os.close(here)


def test_folders_nested_a_thousand_times_and_more_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1")
    (tmp_path / "b.mid").write_bytes(midi([on(480, 60)]))
    with deep(tmp_path, 1100) as bottom:
        os.link(tmp_path / "a.txt", "c.txt", dst_dir_fd=bottom)
        os.link(tmp_path / "b.mid", "c.mid", dst_dir_fd=bottom)
        corpus, music = Corpus.open(str(tmp_path), kind="chars"), read_folder(tmp_path)
    assert corpus.vocabulary.decode(corpus.ids) == "11"
    assert len(music.duplicates) == 1


def test_folders_deeper_than_any_path_are_left_out_and_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1")
    with deep(tmp_path, 20, "d" * 250):
        (note,) = Corpus.open(str(tmp_path)).notes
    assert "1 folder in it cannot be listed, and is left out" in note


@pytest.mark.parametrize("then", [Path.unlink, lambda path: path.unlink() or os.mkfifo(path)])
def test_a_file_that_is_gone_or_a_pipe_when_it_is_read_is_said_in_words(tmp_path: Path, monkeypatch, then: Any) -> None:
    path = tmp_path / "a.txt"
    path.write_text("text")
    of_files = sources.of_files
    monkeypatch.setattr(sources, "of_files", lambda *given, **options: then(path) or of_files(*given, **options))
    for source in (tmp_path, path):
        path.unlink(missing_ok=True)
        path.write_text("text")
        with pytest.raises(CorpusError, match=r"a\.txt cannot be read: (No such file|it is a named pipe)"):
            Corpus.open(str(source))


# --- what the user names is read even where it is no file -------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("special"))


@contextmanager
def pipe_holding(path: Path, content: bytes) -> Iterator[str]:
    """What a shell makes of <(command)."""
    os.mkfifo(path)
    writing = threading.Thread(target=path.write_bytes, args=(content,))
    writing.start()
    yield str(path)
    writing.join()


def test_a_text_to_score_may_come_through_a_named_pipe(run: Path, tmp_path: Path) -> None:
    with pipe_holding(tmp_path / "pipe", b"abcabcabcabc") as pipe:
        assert unroll("score", run, pipe, "--json").code == 0


def test_a_prompt_may_come_through_a_named_pipe(run: Path, tmp_path: Path) -> None:
    with pipe_holding(tmp_path / "pipe", b"abcabcabcabc") as pipe:
        assert unroll("sample", run, "--prompt-file", pipe, "--length", 5, "--json").code == 0


def test_a_prompt_without_an_end_is_refused(run: Path) -> None:
    result = unroll("sample", run, "--prompt-file", "/dev/zero", "--length", 5)
    assert result.code == 2
    assert "--prompt-file /dev/zero has more than" in result.err


# --- nothing takes time that grows faster than what is read -----------------------------------------------------------


@pytest.mark.parametrize("kind", ["words", "ids"])
def test_a_token_that_goes_on_for_a_thousand_pieces_is_put_together_once(kind: str) -> None:
    piece = "x" * (1 << 16)
    began = time.process_time()
    counts = load(kind).counts([piece] * 1000)
    assert counts == {piece * 1000: 1}
    assert time.process_time() - began < 5  # half a second; where each piece is added to all before it, 16


def test_a_vocabulary_of_a_hundred_thousand_characters_is_read_at_once() -> None:
    symbols = tuple(chr(code) for code in range(0x20000, 0x20000 + 100_000))
    text = Vocabulary("chars", symbols).to_json()
    began = time.process_time()
    assert Vocabulary.from_json(text, "vocabulary.json").symbols == symbols
    assert time.process_time() - began < 8  # less than one; with a table of all codes for each character, 30


def test_small_files_come_in_few_pieces(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"{number:03}.txt").write_text(f"file {number}\n")
    source = sources.find(str(tmp_path), Choice())
    assert len(list(source.pieces())) == 1
    assert b"".join(source.pieces()).count(b"\n") == 300
