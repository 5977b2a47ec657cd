"""Whatever the cache holds, a large corpus has the ids of its text: damage, hostile files, races and full disks."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unroll.base import cached_files, untrusted
from unroll.base.errors import CorpusError
from unroll.corpus import cached_ids, encoding
from unroll.corpus.corpus import Corpus

TEXT = "Some text with ä and €, over and over.\n" * 100


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A corpus of a few kilobytes that counts as large, with a cache of its own."""
    monkeypatch.setenv("UNROLL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(encoding, "CACHED_FROM", 1000)
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def folder(text: Path) -> Path:
    return text.parent / "cache" / "corpora"


def opened(text: Path) -> Corpus:
    """The corpus, which must be that of the text, whatever the cache holds."""
    corpus = Corpus.open(str(text))
    assert corpus.vocabulary.decode(corpus.ids) == text.read_text()
    assert corpus.tokens == len(text.read_text())
    return corpus


def kept(text: Path) -> tuple[Path, Path]:
    """The index and the ids, as a fresh encoding writes them."""
    opened(text)
    (index,) = folder(text).glob("*.json")
    (ids,) = folder(text).glob("*.uint8")
    return index, ids


def encodings_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are encoded from now on, rather than found in the cache."""
    seen: list[str] = []
    plain = encoding._Hashed.pieces
    monkeypatch.setattr(encoding._Hashed, "pieces", lambda self: seen.append(self.source.where) or plain(self))
    return seen


@pytest.mark.parametrize("which", [0, 1])
def test_every_flipped_bit_is_noticed_and_the_file_made_anew(text: Path, monkeypatch, which: int) -> None:
    files = kept(text)
    whole = files[which].read_bytes()
    seen = encodings_of(monkeypatch)
    places = random.Random(which).sample(range(8 * len(whole)), 40)
    for place in places:
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        files[which].write_bytes(damaged)
        opened(text)
        assert files[which].read_bytes() == whole
    assert len(seen) == len(places)


@pytest.mark.parametrize("which", [0, 1])
def test_every_truncation_and_every_addition_is_noticed(text: Path, monkeypatch, which: int) -> None:
    files = kept(text)
    whole = files[which].read_bytes()
    seen = encodings_of(monkeypatch)
    others = [whole[:size] for size in (0, 1, 31, len(whole) // 2, len(whole) - 1)] + [whole + b"\0", whole * 2]
    for other in others:
        files[which].write_bytes(other)
        opened(text)
        assert files[which].read_bytes() == whole
    assert len(seen) == len(others)


def sealed(text: Path, name: str, value: Any) -> None:
    """Change the index, or a fact in it, and seal it again."""
    index, _ = kept(text)
    content = untrusted.unsealed(json.loads(index.read_bytes()))
    (content if name in content else content["facts"])[name] = value
    index.write_text(json.dumps(untrusted.sealed(content)))


WRONG = {
    "facts": [None, [], {}, "facts"],
    "ids": [None, "", "zz", "ab", 7, ["ab"]],
    "of": [None, "", "another text"],
    "kind": ["words", None, 3, ["chars"]],
    "symbols": [None, "abc", [], ["a"], [["a"]] * 24, [""] * 24, ["a"] * 24, list(range(24)), {"a": 1}],
    "counts": [None, [], [1], [-1] * 24, [True] * 24, ["1"] * 24, [1.0] * 24, [10**30] * 24],
    "tokens": [None, 0, -1, 10**30, 3899, 3901, 3900.0, "3900", True, [3900]],
    "sha256": [None, "", "../../../etc/passwd", "*", "0" * 64, "A" * 64, 7],
    "paper": ["english?", 7, ["english"], {}],
    "windows_ends": [None, -1, 1.5, "0", True],
    "marks": [None, -1, 1.5, "0", True],
}


@pytest.mark.parametrize("name", list(WRONG))
def test_an_index_with_wrong_facts_and_a_right_seal_is_not_believed(text: Path, monkeypatch, name: str) -> None:
    seen = encodings_of(monkeypatch)
    for value in WRONG[name]:
        sealed(text, name, value)
        seen.clear()
        opened(text)
        assert len(seen) == 1, value


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 1_000_000,
        b"[" * 500 + b"]" * 500,
        b'{"facts":' * 900 + b"1" + b"}" * 900,
        b"9" * 100_000,
        b"[" + b"1," * 9_000_000 + b"1]",
        b"\xff\xfe",
        b"null",
        b"{}",
        b'{"sha256": "", "facts": {}}',
    ],
    ids=["deep", "less deep", "deep objects", "a long number", "long", "no text", "null", "empty", "a wrong seal"],
)
def test_an_index_that_is_no_index_is_made_anew(text: Path, content: bytes) -> None:
    index, _ = kept(text)
    whole = index.read_bytes()
    index.write_bytes(content)
    opened(text)
    assert index.read_bytes() == whole


def test_an_index_without_a_seal_is_not_believed(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, _ = kept(text)
    content = json.loads(index.read_bytes())
    del content[untrusted.SEAL]
    index.write_text(json.dumps(content))
    seen = encodings_of(monkeypatch)
    opened(text)
    assert len(seen) == 1


def test_ids_beyond_the_vocabulary_are_not_believed_even_where_their_digest_is_right(text: Path, monkeypatch) -> None:
    index, ids = kept(text)
    numbers = np.fromfile(ids, np.uint8)
    numbers[7] = numbers.max() + 1
    numbers.tofile(ids)
    content = untrusted.unsealed(json.loads(index.read_bytes()))
    index.write_text(json.dumps(untrusted.sealed(content | {"ids": hashlib.sha256(numbers.data).hexdigest()})))
    seen = encodings_of(monkeypatch)
    opened(text)
    assert len(seen) == 1


def test_a_healthy_index_under_another_texts_name_is_not_believed(text: Path) -> None:
    index, _ = kept(text)
    other = text.with_name("other.txt")
    other.write_text("Quite another text.\n" * 100)
    opened(other)
    (others,) = set(folder(text).glob("*.json")) - {index}
    index.write_bytes(others.read_bytes())
    opened(text)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def sparse(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(2**40)


def link(path: Path) -> None:
    target = path.parent.parent / "target"
    target.write_bytes(b"what a link leads to")
    path.symlink_to(target)


def link_to_nothing(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("make", [fifo, sparse, link, link_to_nothing])
def test_what_is_no_file_of_ours_is_replaced_and_never_written_through(text: Path, make: Any, which: int) -> None:
    files = kept(text)
    whole = files[which].read_bytes()
    files[which].unlink()
    make(files[which])
    assert opened(text).notes == ()
    assert untrusted.is_regular(files[which])
    assert files[which].read_bytes() == whole
    target = folder(text).parent / "target"
    assert make is not link or target.read_bytes() == b"what a link leads to"


@pytest.mark.parametrize("which", [0, 1])
def test_a_folder_in_the_way_is_left_alone_and_said(text: Path, which: int) -> None:
    file = kept(text)[which]
    file.unlink()
    (file / "mine").mkdir(parents=True)
    (note,) = opened(text).notes
    assert str(file) in note
    assert "The ids of this corpus are made anew each time" in note
    assert (file / "mine").is_dir()


def test_a_cache_behind_a_link_of_the_users_own_is_used(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text.parent / "elsewhere").mkdir()
    (text.parent / "cache").symlink_to("elsewhere")
    kept(text)
    seen = encodings_of(monkeypatch)
    opened(text)
    assert seen == []


def test_where_the_caches_folder_is_no_folder_the_text_is_encoded_and_that_is_said(text: Path) -> None:
    folder(text).parent.mkdir()
    os.mkfifo(folder(text))
    assert "UNROLL_CACHE" in opened(text).notes[0]


@pytest.mark.parametrize("suffix", [".uint8", ".json"])
def test_on_a_full_disk_the_text_is_encoded_and_that_is_said(text: Path, monkeypatch, suffix: str) -> None:
    fsync = os.fsync

    def full(handle: int) -> None:
        if suffix in os.readlink(f"/proc/self/fd/{handle}"):
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", full)
    (note,) = opened(text).notes
    assert "No space left on device" in note
    assert "UNROLL_CACHE" in note
    assert [path for path in folder(text).iterdir() if path.suffix in (suffix, ".partial")] == []


def test_without_a_home_the_text_is_encoded_all_the_same(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("UNROLL_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert "UNROLL_CACHE" in opened(text).notes[0]


def test_a_text_edited_with_its_size_and_time_put_back_is_read_anew(text: Path) -> None:
    first = opened(text)
    status = text.stat()
    text.write_text(TEXT.replace("over and over", "over und over"))
    os.utime(text, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (text.stat().st_size, text.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    assert opened(text).sha256 != first.sha256


def test_a_text_replaced_by_another_of_its_size_and_time_is_read_anew(text: Path) -> None:
    first = opened(text)
    status = text.stat()
    other = text.with_name("other")
    other.write_text(TEXT.replace("over and over", "over und over"))
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    os.replace(other, text)
    assert opened(text).sha256 != first.sha256


CHANGES = {
    "another letter": TEXT.replace("over and over", "over xnd over"),
    "letters that it had": TEXT.replace("over and over", "over dna over"),
    "longer": TEXT + "More text.",
    "shorter": TEXT[:-5],
    "not the same encoding": TEXT.encode("latin-1", "replace").decode("latin-1")[:50] + "\udcff",
    "gone": None,
}


@pytest.mark.parametrize("large", [True, False])
@pytest.mark.parametrize("change", list(CHANGES))
def test_a_text_that_changes_between_the_two_passes_is_refused(text: Path, monkeypatch, change: str, large) -> None:
    if not large:
        monkeypatch.setattr(encoding, "CACHED_FROM", 1 << 25)
    again = encoding._Hashed.again

    def edited(hashed: encoding._Hashed) -> Any:
        content = CHANGES[change]
        if content is None:
            text.unlink()
        else:
            text.write_bytes(content.encode("utf-8", "surrogateescape"))
        return again(hashed)

    monkeypatch.setattr(encoding._Hashed, "again", edited)
    with pytest.raises(CorpusError, match="changes while it is read" if CHANGES[change] else "cannot be read"):
        Corpus.open(str(text))
    monkeypatch.undo()
    assert not folder(text).exists() or not [*folder(text).iterdir()]


def test_a_text_that_grows_while_it_is_read_is_refused(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = encoding._Hashed.pieces

    def grown(hashed: encoding._Hashed) -> Any:
        with text.open("a") as file:
            file.write("A line of a log.\n")
        return pieces(hashed)

    monkeypatch.setattr(encoding._Hashed, "pieces", grown)
    with pytest.raises(CorpusError, match="changes while it is read"):
        Corpus.open(str(text))


def test_a_text_that_was_touched_while_it_was_read_has_no_index(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    again = encoding._Hashed.again
    monkeypatch.setattr(encoding._Hashed, "again", lambda self: os.utime(text) or again(self))
    assert opened(text).notes == ()
    assert [path.suffix for path in folder(text).iterdir()] == [".uint8"]


# --- what killed processes leave, and processes that start at once ----------------------------------------------------


def test_what_killed_processes_left_is_cleared_and_nothing_else(text: Path) -> None:
    folder(text).mkdir(parents=True)
    name = "0123456789" * 4
    left = [f"{name}.{suffix}.1f-0123abcd.partial" for suffix in ("json", "uint8", "int16", "int32", "ids")]
    before = [f"{name}.ids.4711.partial", f"{name}.json.partial"]  # as older versions named them
    young = [f"{name}.int32.4712.partial"]
    others = ["mine.partial", f"{name}.txt", f"{name}.txt.1f-0123abcd.partial", "notes.1f-0123abcd.partial"]
    for path in (*left, *before, *young, *others):
        (folder(text) / path).write_text("half a file")
    for path in before:
        os.utime(folder(text) / path, (1, 1))
    held = folder(text) / f"{name}.uint8.1f-0000abcd.partial"
    with held.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        opened(text)
        names = {path.name for path in folder(text).iterdir()}
    assert names.isdisjoint({*left, *before})
    assert names.issuperset({*young, *others, held.name})


KILLED = """
import os, signal, sys
from unroll.corpus import encoding
from unroll import Corpus
encoding.CACHED_FROM = 1000
call, number = getattr(os, sys.argv[2]), int(sys.argv[3])
def killed(*arguments):
    global number
    number -= 1
    if not number:
        os.kill(os.getpid(), signal.SIGKILL)
    return call(*arguments)
setattr(os, sys.argv[2], killed)
Corpus.open(sys.argv[1])
"""


@pytest.mark.parametrize(("call", "number"), [("fsync", 1), ("replace", 1), ("replace", 2)])
def test_a_process_killed_while_it_writes_the_cache_leaves_nothing_for_good(text: Path, call: str, number: int) -> None:
    job = subprocess.run([sys.executable, "-c", KILLED, str(text), call, str(number)], check=False)
    assert job.returncode == -signal.SIGKILL
    assert [*folder(text).glob("*.partial")]
    opened(text)
    assert sorted(path.suffix for path in folder(text).iterdir()) == [".json", ".uint8"]


def test_many_that_start_at_once_on_a_cold_cache_all_have_the_text(text: Path, monkeypatch) -> None:
    together = threading.Barrier(12)
    again = encoding._Hashed.again

    def met(hashed: encoding._Hashed) -> Any:
        together.wait(60)
        return again(hashed)

    monkeypatch.setattr(encoding._Hashed, "again", met)
    found: list[Corpus] = []

    def start() -> None:
        found.append(Corpus.open(str(text)))

    threads = [threading.Thread(target=start) for _ in range(together.parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [corpus.vocabulary.decode(corpus.ids) == TEXT for corpus in found] == [True] * 12
    assert {corpus.notes for corpus in found} == {()}
    assert sorted(path.suffix for path in folder(text).iterdir()) == [".json", ".uint8"]


def test_an_index_larger_than_is_read_is_not_written(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_ids, "INDEX", 100)
    assert opened(text).notes == ()
    assert [path.suffix for path in folder(text).iterdir()] == [".uint8"]


def test_content_behind_a_digest_is_given_back_only_whole(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "code.bin"
    cached_files.keep(path, (hashlib.sha256(b"content").digest(), b"content"), r"code\.bin")
    assert cached_files.content(path, 100) == b"content"
    assert cached_files.content(path, 6) is None
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert cached_files.content(path, 100) is None
    assert cached_files.content(tmp_path / "nowhere", 100) is None
