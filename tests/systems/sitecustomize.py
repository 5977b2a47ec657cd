"""Makes the Python of a test's process look as it does on another system: $UNROLL_SYSTEM is windows or macos.

What that system lacks is gone, and the calls below refuse what it refuses. Libraries are imported first: they were
installed for Linux. The package itself is imported afterwards, and so meets the other system.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import multiprocessing.connection
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# What a library looks up when it is imported, it shall find as Linux has it.
import matplotlib.backends.backend_agg
import matplotlib.figure
import matplotlib.pyplot
import numpy as np
import rich.console
import rich.live
import rich.progress
import rich.table
import safetensors.torch
import torch.utils._python_dispatch
import typer

IMPORTED = (matplotlib, np, rich, safetensors, torch, typer, multiprocessing.connection, tempfile)

NO_SIGNALS = ("SIGHUP", "SIGKILL", "SIGPIPE", "SIGSTOP", "SIGTSTP", "SIGCONT", "SIGALRM", "SIGUSR1", "SIGWINCH")
NO_MASKS = ("pthread_sigmask", "pthread_kill", "SIG_BLOCK", "SIG_UNBLOCK", "SIG_SETMASK", "sigwait", "setitimer")
NO_FLAGS = ("O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK", "O_CLOEXEC")
NO_CALLS = ("fork", "forkpty", "register_at_fork", "sched_getaffinity", "sysconf", "getuid", "geteuid", "killpg")
NO_MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty")
LINUX = ("/proc", "/sys", "/dev/fd", "/dev/shm")
FULL_SYNC = 51  # F_FULLFSYNC of a Mac

_looking = False
_listdir, _readlink, _scandir = os.listdir, os.readlink, os.scandir


def _missing(name: str) -> OSError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)


def _refused(name: Any) -> OSError:
    return PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(name))


def _audited(event: str, arguments: tuple[Any, ...]) -> None:
    """Only Linux keeps its facts in files."""
    if event not in ("open", "os.listdir", "os.scandir") or _looking:
        return
    if isinstance(arguments[0], str) and arguments[0].startswith(LINUX):
        raise _missing(arguments[0])


def _without(owner: Any, names: tuple[str, ...]) -> None:
    for name in names:
        if hasattr(owner, name):
            delattr(owner, name)


def macos() -> None:
    """No files of facts, no affinity, no futex; a call of its own that reaches the disk."""
    sys.platform = "darwin"
    _without(os, ("sched_getaffinity",))
    _without(mmap, ("MADV_HUGEPAGE",))
    call = fcntl.fcntl

    def control(handle: int, command: int, *rest: Any) -> Any:
        return os.fsync(handle) if command == FULL_SYNC else call(handle, command, *rest)

    fcntl.F_FULLFSYNC, fcntl.fcntl = FULL_SYNC, control  # type: ignore[attr-defined,assignment]


def windows() -> None:
    """No POSIX modules, calls, flags or signals; folders cannot be opened, nor open files renamed or removed."""
    sys.platform = "win32"
    flags, break_signal = fcntl.fcntl, signal.SIGUSR1
    lock, exclusive, at_once = fcntl.flock, fcntl.LOCK_EX, fcntl.LOCK_NB
    usage = shutil.disk_usage("/")
    for name in NO_MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    _without(signal, NO_SIGNALS + NO_MASKS)
    _without(mmap, ("MADV_HUGEPAGE",))
    _without(os, NO_FLAGS + NO_CALLS)
    signal.SIGBREAK = break_signal  # type: ignore[attr-defined]
    shutil.disk_usage = lambda path: usage  # type: ignore[assignment]

    def locking(handle: int, mode: int, size: int) -> None:
        try:
            lock(handle, exclusive | at_once)
        except BlockingIOError:
            raise _refused(handle) from None

    system = types.ModuleType("msvcrt")
    system.__dict__.update(locking=locking, LK_LOCK=1, LK_NBLCK=2)
    sys.modules["msvcrt"] = system
    open_, sync, dll = os.open, os.fsync, ctypes.CDLL

    def opened(path: Any, flags_: int, *rest: Any, **more: Any) -> int:
        if os.path.isdir(path):
            raise _refused(path)
        return open_(path, flags_, *rest, **more)

    def synced(handle: int) -> None:
        if flags(handle, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        sync(handle)

    def library(name: str | None, *rest: Any, **more: Any) -> Any:
        if name is None:
            raise TypeError("LoadLibrary() argument 1 must be str, not None")
        return dll(name, *rest, **more)

    def memory(status: Any) -> int:
        status._obj.free = 2**31
        return 1

    calls = types.SimpleNamespace(GlobalMemoryStatusEx=memory)
    ctypes.windll = types.SimpleNamespace(kernel32=calls)  # type: ignore[attr-defined]
    os.open, os.fsync, ctypes.CDLL = opened, synced, library  # type: ignore[assignment,misc]
    for name in ("replace", "rename", "unlink", "remove"):
        setattr(os, name, _refusing_open_files(getattr(os, name)))
    os.scandir = _listed  # type: ignore[assignment]


def _refusing_open_files(call: Any) -> Any:
    def refusing(*paths: Any, **more: Any) -> None:
        in_use = _in_use()
        for path in paths:
            if os.path.realpath(path) in in_use and not os.path.islink(path):
                raise _refused(path)
        call(*paths, **more)

    return refusing


def _in_use() -> set[str]:
    """The files that this process has open, or mapped into its memory."""
    global _looking
    found = set()
    _looking = True
    try:
        for handle in _listdir("/proc/self/fd"):
            try:
                found.add(_readlink(f"/proc/self/fd/{handle}"))
            except OSError:
                continue
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            found |= {line.split(maxsplit=5)[5].rstrip() for line in maps if "/" in line}
    finally:
        _looking = False
    return found


class _Listed:
    """An entry of a folder as Windows lists it: without the numbers that tell a file from others."""

    def __init__(self, entry: os.DirEntry[str]) -> None:
        self._entry = entry

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entry, name)

    def __fspath__(self) -> str:
        return self._entry.path

    def stat(self, **more: Any) -> os.stat_result:
        known = list(self._entry.stat(**more))
        known[stat.ST_INO] = known[stat.ST_DEV] = known[stat.ST_NLINK] = 0
        return os.stat_result(known)


@contextmanager
def _listed(path: Any = ".") -> Iterator[Iterator[Any]]:
    with _scandir(path) as entries:
        yield map(_Listed, entries)


if system := os.environ.get("UNROLL_SYSTEM"):
    subprocess.run(["true"], check=True)  # what it looks up is looked up
    sys.addaudithook(_audited)
    {"windows": windows, "macos": macos}[system]()
    # Windows has another encoding for files than UTF-8: none may be opened without its encoding.
    warnings.filterwarnings("ignore", category=EncodingWarning)
    warnings.filterwarnings("error", category=EncodingWarning, module=r"unroll\b")
