"""Locks of folders: one process at a time, on machines that share a disk too, whatever a holder came to."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest

from unroll.base import locks, plain_files
from unroll.base.errors import RunError

BUSY, MISSING = "Somebody is at work.", "There is no folder."
HOLDING = """
    import fcntl, sys, time
    from pathlib import Path
    from unroll.base import locks
    if {no_flock}:
        def flock(*_): raise OSError(38, "Function not implemented")
        fcntl.flock = flock
    with locks.hold(Path(sys.argv[1]), "missing", "busy"):
        print("held", flush=True)
        time.sleep(60)
"""


@contextmanager
def holding(folder: Path, no_flock: bool = False) -> Iterator[subprocess.Popen[str]]:
    """Another process holds the folder."""
    code = textwrap.dedent(HOLDING).format(no_flock=no_flock)
    process = subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def refusal(folder: Path) -> str:
    with pytest.raises(RunError) as refused, locks.hold(folder, MISSING, BUSY):
        pass
    return str(refused.value)


@pytest.fixture
def without_flock(monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(handle: int, operation: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", flock)


def test_a_second_process_is_refused_with_the_name_of_the_first(tmp_path: Path) -> None:
    with holding(tmp_path) as first:
        machine = socket.gethostname().partition("?")[0]
        assert f"{BUSY} It is held by process {first.pid} on {machine}, since 20" in refusal(tmp_path)


def test_one_process_cannot_hold_a_folder_twice(tmp_path: Path) -> None:
    with locks.hold(tmp_path, MISSING, BUSY):
        assert f"process {os.getpid()} on" in refusal(tmp_path)


def test_a_lock_leaves_nothing_behind(tmp_path: Path) -> None:
    with locks.hold(tmp_path, MISSING, BUSY) as note:
        assert os.listdir(tmp_path) == [locks.NAME]
        assert list(locks.others(tmp_path)) == []
    assert note is None
    with pytest.raises(KeyError), locks.hold(tmp_path, MISSING, BUSY):
        raise KeyError
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("no_flock", [False, True])
def test_the_lock_of_a_killed_process_is_taken_over_and_that_is_said(
    tmp_path: Path, no_flock: bool, request: pytest.FixtureRequest
) -> None:
    with holding(tmp_path, no_flock) as first:
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert os.listdir(tmp_path) == [locks.NAME]
    if no_flock:
        request.getfixturevalue("without_flock")
    with locks.hold(tmp_path, MISSING, BUSY) as note:
        assert note is not None
        assert f"by process {first.pid} on" in note
        assert "gone" in note
    assert os.listdir(tmp_path) == []


def test_the_lock_of_another_machine_is_never_broken(tmp_path: Path) -> None:
    content = b"4321\nnode7\n99\n"
    (tmp_path / locks.NAME).write_bytes(content)
    said = refusal(tmp_path)
    assert "Its lock names process 4321 on node7, since 20" in said
    assert f"delete {tmp_path / locks.NAME}." in said
    assert (tmp_path / locks.NAME).read_bytes() == content


def test_the_same_process_number_in_another_container_is_another_machine(tmp_path: Path) -> None:
    (tmp_path / locks.NAME).write_text(f"{os.getpid()}\n{socket.gethostname()}?pidns-123\n")
    assert "Its lock names" in refusal(tmp_path)


def test_a_process_that_has_ended_holds_nothing_though_nobody_asked_how(tmp_path: Path) -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    until = time.monotonic() + 10
    while Path(f"/proc/{child}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < until
    (tmp_path / locks.NAME).write_text(f"{child}\n{locks.this_machine()}\n")
    with locks.hold(tmp_path, MISSING, BUSY) as note:
        assert note is not None
    os.waitpid(child, 0)


def test_a_later_process_of_the_same_number_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / locks.NAME).write_text(f"{os.getpid()}\n{locks.this_machine()}\n1\n")
    with locks.hold(tmp_path, MISSING, BUSY) as note:
        assert note is not None


def test_without_flock_the_file_is_the_lock(tmp_path: Path, without_flock: None) -> None:
    with holding(tmp_path, no_flock=True) as first:
        assert f"It is held by process {first.pid} on" in refusal(tmp_path)
    with locks.hold(tmp_path, MISSING, BUSY):
        assert f"process {os.getpid()}" in refusal(tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_lock_without_flock_is_seen_by_those_who_have_it(tmp_path: Path) -> None:
    with holding(tmp_path, no_flock=True) as first:
        assert f"It is held by process {first.pid} on" in refusal(tmp_path)
        assert os.listdir(tmp_path) == [locks.NAME]


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "folder"])
def test_a_lock_that_is_no_plain_file_is_refused_and_left_alone(tmp_path: Path, kind: str) -> None:
    run, other, path = tmp_path / "run", tmp_path / "other", tmp_path / "run" / locks.NAME
    run.mkdir()
    other.write_text("somebody's")
    {"link": lambda: path.symlink_to(other), "hard link": lambda: path.hardlink_to(other),
     "pipe": lambda: os.mkfifo(path), "folder": path.mkdir}[kind]()  # fmt: skip
    assert "cannot be held" in refusal(run)
    assert other.read_text() == "somebody's"
    assert os.path.lexists(path)


def test_a_lock_that_says_nothing_or_too_much_is_taken(tmp_path: Path) -> None:
    for content in (b"", b"\0" * 100, b"x" * 5000, b"1\n", b"9" * 400 + b"\nhere\n"):
        (tmp_path / locks.NAME).write_bytes(content)
        with locks.hold(tmp_path, MISSING, BUSY) as note:
            assert note is None
            named = locks.holder(tmp_path / locks.NAME)
            assert named is not None
            assert named.process == os.getpid()


def test_a_folder_that_is_not_there_is_said_in_the_callers_words(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path / ("x" * 300), Path("nul\0")):
        assert refusal(path) == MISSING


def test_a_process_that_forks_does_not_release_its_parents_lock(tmp_path: Path) -> None:
    with locks.hold(tmp_path, MISSING, BUSY):
        child = os.fork()
        if child:
            assert os.waitpid(child, 0)[1] == 0
            assert os.listdir(tmp_path) == [locks.NAME]
    if not child:  # it left the block as well
        os._exit(0 if os.listdir(tmp_path) == [locks.NAME] else 1)


def test_of_many_processes_that_begin_at_once_one_holds(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from unroll.base import locks\n"
        "counter = Path(sys.argv[1], 'count')\n"
        "for _ in range(30):\n"
        "    try:\n"
        "        with locks.hold(Path(sys.argv[1], 'folder'), 'missing', 'busy'):\n"
        "            n = int(counter.read_text()); time.sleep(0.001); counter.write_text(str(n + 1)); print('once')\n"
        "    except Exception as error:\n"
        "        assert 'busy' in str(error), error\n"
    )
    (tmp_path / "folder").mkdir()
    (tmp_path / "count").write_text("0")
    command = [sys.executable, "-c", code, str(tmp_path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    held = sum(process.communicate()[0].count("once") for process in processes)
    assert all(process.returncode == 0 for process in processes)
    assert held == int((tmp_path / "count").read_text()) > 0
    assert os.listdir(tmp_path / "folder") == []


@pytest.mark.parametrize("no_flock", [False, True])
def test_a_lock_that_its_holder_deletes_just_before_it_is_opened_is_free(
    tmp_path: Path, no_flock: bool, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    open_new = plain_files.open_new

    def and_gone(path: Path) -> BinaryIO:
        try:
            return open_new(path)
        except FileExistsError:
            path.unlink()
            raise

    monkeypatch.setattr(plain_files, "open_new", and_gone)
    if no_flock:
        request.getfixturevalue("without_flock")
    (tmp_path / locks.NAME).touch()
    with locks.hold(tmp_path, MISSING, BUSY) as note:
        assert note is None
        monkeypatch.setattr(plain_files, "open_new", open_new)
        assert f"process {os.getpid()}" in refusal(tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_file_that_is_deleted_between_two_looks_at_it_can_still_be_made_and_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lstat = os.lstat

    def gone(path: Path) -> os.stat_result:
        path.unlink(missing_ok=True)
        return lstat(path)

    (tmp_path / "lock").touch()
    monkeypatch.setattr(os, "lstat", gone)
    with plain_files.open_to_hold(tmp_path / "lock"):
        monkeypatch.undo()
        assert os.listdir(tmp_path) == ["lock"]


def left_on_another_machine(folder: Path) -> locks.Holder:
    (folder / locks.NAME).write_text("4711\nelsewhere\n99\n")
    return locks.Holder(4711, "elsewhere", 99, 0.0)


def test_a_lock_of_another_machine_is_released_by_who_knows_that_its_process_is_gone(tmp_path: Path) -> None:
    dead = left_on_another_machine(tmp_path)
    assert "elsewhere" in refusal(tmp_path)
    assert locks.release(tmp_path, dead)
    with locks.hold(tmp_path, MISSING, BUSY) as note:
        assert note is None
    assert not locks.release(tmp_path, dead)


@pytest.mark.parametrize("other", [(4712, "elsewhere", 99), (4711, "anywhere", 99), (4711, "elsewhere", 98)])
def test_the_lock_of_another_process_than_the_dead_one_is_not_released(
    tmp_path: Path, other: tuple[int, str, int]
) -> None:
    left_on_another_machine(tmp_path)
    assert not locks.release(tmp_path, locks.Holder(*other, 0.0))
    assert "elsewhere" in refusal(tmp_path)


def test_a_lock_that_is_still_held_somewhere_is_not_released(tmp_path: Path) -> None:
    dead = left_on_another_machine(tmp_path)
    with open(tmp_path / locks.NAME, "rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert not locks.release(tmp_path, dead)
        assert (tmp_path / locks.NAME).exists()


def test_a_lock_of_this_machine_is_not_released_but_taken_over_once_its_process_is_gone(tmp_path: Path) -> None:
    with holding(tmp_path) as first:
        named = locks.holder(tmp_path / locks.NAME)
        assert named is not None
        assert named.process == first.pid
        assert not locks.release(tmp_path, named)
        assert "It is held by" in refusal(tmp_path)
