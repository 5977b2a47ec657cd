"""Holds a folder, so that two processes never work in it at once, on one machine or on several that share it.

What is held is the file `.lock` in the folder. It names its holder: process, machine, when that process began; the
file's own time says since when. The system unlocks it when the process ends, however that ends, and a holder that ends
by itself deletes it. A file that is left over is therefore a dead process's: on this machine that can be seen, and a
note says so; a file of another machine is never broken, since nobody here can see whether its process still runs.

Where a file system locks no files, the file's existence is the lock.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from unroll.base import plain_files, untrusted
from unroll.base.errors import RunError

NAME = ".lock"
LONGEST = 1024  # bytes of a lock's file that are read
DIGITS = 64  # of a number in it
TRIES = 100  # a file that its holder deletes between two looks is asked for again
LOCKS_NOTHING = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)
INITIAL_PID_NAMESPACE = 0xEFFFFFFC  # Linux numbers the one of the machine itself so


class Holder(NamedTuple):
    """The process that a lock's file names."""

    process: int
    machine: str
    began: int | None  # tells a process from a later one of the same number; None where the system does not say
    since: float

    def __str__(self) -> str:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.process} on {self.machine.partition('?')[0]}, since {when}"


@contextmanager
def hold(folder: Path, missing: str, busy: str) -> Iterator[str | None]:
    """Lock a folder, or raise a RunError with the caller's words for the reason.

    Gives a note where a dead process's lock was taken over.
    """
    if not _is_folder(folder):
        raise RunError(missing)
    with ExitStack() as held:
        try:
            note = _held(folder / NAME, busy, held)
        except OSError as error:
            raise RunError(f"{folder} cannot be held: {error.strerror or error}.") from None
        yield note


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name that is too long, or holds a NUL
        return False


def _held(path: Path, busy: str, held: ExitStack) -> str | None:
    """Take the lock until `held` ends; return a note on the holder before, if that is dead."""
    for _ in range(TRIES):
        before = holder(path)
        if before and before.machine != this_machine():
            raise RunError(
                f"{busy} Its lock names {before}. This machine cannot see whether that still runs: "
                f"if it does not, delete {path}."
            )
        opened = _opened(path)
        if opened is None:
            continue
        file, made = opened
        taken = _try(file)
        if taken is None:
            _hold_by_existence(path, file, made, busy, held)
            return _note(path, before)
        if taken is False:
            file.close()
            raise RunError(f"{busy} It is held by {before}." if before else busy)
        if not _is(path, file):  # its holder deleted it just before
            file.close()
            continue
        held.callback(_release, path, file, os.getpid())
        before = holder(path)
        if before and not is_gone(before):  # it holds by the file's existence
            held.pop_all()
            file.close()
            raise RunError(f"{busy} It is held by {before}.")
        _sign(file)
        return _note(path, before)
    raise RunError(busy)


def _note(path: Path, before: Holder | None) -> str | None:
    if before is None:
        return None
    return f"A lock was left in {path.parent} by {before}. That process is gone: its lock is taken over."


def _opened(path: Path) -> tuple[BinaryIO, bool] | None:
    """The file, open, and whether it is new; None where its holder deletes it at this moment."""
    with suppress(FileExistsError):
        return plain_files.open_new(path), True
    with suppress(FileNotFoundError):
        return plain_files.open_existing(path), False
    return None


def _try(file: BinaryIO) -> bool | None:
    try:
        return take(file.fileno())
    except OSError as error:
        if error.errno in LOCKS_NOTHING:
            return None
        file.close()
        raise


def _hold_by_existence(path: Path, file: BinaryIO, made: bool, busy: str, held: ExitStack) -> None:
    """Hold where a file system locks no files: whoever makes the file holds it."""
    from filelock import SoftFileLock, Timeout

    if made:
        path.unlink(missing_ok=True)
    file.close()
    lock = SoftFileLock(path, timeout=0, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        named = holder(path)
        raise RunError(f"{busy} It is held by {named}." if named else f"{busy} If none does, delete {path}.") from None
    held.callback(lock.release)


def _is(path: Path, file: BinaryIO) -> bool:
    """Whether the name is still this file's."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _sign(file: BinaryIO) -> None:
    began = _began(os.getpid())
    lines = (str(os.getpid()), this_machine(), *([] if began is None else [str(began)]))
    file.seek(0)
    file.truncate()
    file.write("".join(f"{line}\n" for line in lines).encode())
    file.flush()


def _release(path: Path, file: BinaryIO, process: int) -> None:
    """Delete the file while it is still locked, so that nobody takes a lock that is about to go."""
    if os.getpid() != process:  # a process that forked holds nothing
        file.close()
        return
    if not as_posix():  # Windows deletes no open file
        file.close()
    with suppress(OSError):
        if file.closed or _is(path, file):
            path.unlink()
    file.close()


def holder(path: Path) -> Holder | None:
    """Who holds a lock, by its file; None where that is absent or says nothing. An OSError if it is no plain file."""
    if not untrusted.present(path):
        return None
    try:
        status = untrusted.require_regular(path)
        if status.st_nlink > 1:
            raise OSError(errno.EMLINK, f"{path} has a second name elsewhere; delete it")
        with untrusted.open_file(path) as file:
            content = untrusted.up_to(file, LONGEST + 1)
    except FileNotFoundError:
        return None  # released just now
    except OSError as error:
        raise OSError(error.errno, f"{path}: {error.strerror or error}") from None
    lines = content.decode("ascii", "replace").splitlines()
    numbers = [line for n, line in enumerate(lines) if n != 1]
    if (
        len(content) > LONGEST
        or len(lines) not in (2, 3)
        or not all(n.isdecimal() and len(n) <= DIGITS for n in numbers)
    ):
        return None
    began = int(lines[2]) % 2**64 if len(lines) == 3 else None
    return Holder(int(lines[0]), lines[1], began, status.st_mtime)


def release(folder: Path, dead: Holder) -> bool:
    """Delete the lock of a process on another machine, which the caller knows to be gone; whether there was one.

    Where a file system locks files for all machines, a lock that is still held stays.
    """
    path = folder / NAME
    try:
        left = holder(path)
        if left is None or left.machine == this_machine() or left[:3] != dead[:3]:
            return False  # on this machine, whoever comes next sees that its process is gone
        with plain_files.open_existing(path) as file:
            if _try(file) is False or not _is(path, file):
                return False
            path.unlink()
    except OSError:
        return False
    return True


def this_process() -> Holder:
    """This process, as its locks name it."""
    return Holder(os.getpid(), this_machine(), _began(os.getpid()), time.time())


def this_machine() -> str:
    """The name of this machine, and of the part of it (a container) in which process numbers mean something."""
    name = "".join(c if c.isascii() and c.isprintable() and c not in " ?" else "-" for c in socket.gethostname())
    with suppress(OSError):
        namespace = os.stat("/proc/self/ns/pid").st_ino
        if namespace != INITIAL_PID_NAMESPACE:
            name += f"?pidns-{namespace:x}"
    return name[:253] or "?"


def is_gone(named: Holder) -> bool:
    """Whether a process of this machine has ended."""
    if not as_posix():
        return True  # Windows itself would have said that the file is held
    try:
        os.kill(named.process, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        pass  # somebody else's
    if _said_of(named.process)[:1] in (["Z"], ["X"]):  # it has ended, and its parent has not asked how
        return True
    began = _began(named.process)
    return named.began is not None and began is not None and began != named.began


def _began(process: int) -> int | None:
    """When a process began, in the system's own units; None where it does not say."""
    try:
        return int(_said_of(process)[19])
    except (ValueError, IndexError):
        return None


def _said_of(process: int) -> list[str]:
    """What Linux says of a process, from its state on; nothing elsewhere."""
    try:
        return Path(f"/proc/{process}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except (OSError, ValueError):
        return []


def take(handle: int, wait: bool = False) -> bool | None:
    """Hold an open file until it is closed; False where another process holds it, None where nothing can be held."""
    if not as_posix():
        return _take_as_windows(handle, wait)
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except (BlockingIOError, PermissionError):
        return False
    return True


def as_posix() -> bool:
    """Whether files and folders are locked as POSIX systems do."""
    try:
        import fcntl  # noqa: F401 (whether it is there)
    except ImportError:
        return False
    return True


def _take_as_windows(handle: int, wait: bool) -> bool | None:
    try:
        import msvcrt
    except ImportError:  # a system with neither
        return None
    while True:
        try:
            msvcrt.locking(handle, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
            return True
        except OSError:  # to wait is to ask ten times, once a second
            if not wait:
                return False


def others(folder: Path) -> Iterator[Path]:
    """What a folder holds beside its lock."""
    return (path for path in folder.iterdir() if path.name != NAME)
