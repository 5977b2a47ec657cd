"""The limits of this process, and the errors that say that memory or files have run out.

Many messages say that memory has run out: Python's, NumPy's, torch's, the system's, and those for a library that cannot
be loaded or a thread that cannot be started. An error also counts if it was caused by one of these.
"""

from __future__ import annotations

import errno
import math
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from unroll.base.errors import SaveError

MEMORY, FILES = "memory", "open files"
NUMBERS = {errno.ENOMEM: MEMORY, errno.EMFILE: FILES, errno.ENFILE: FILES}
WORDS = (
    "out of memory",
    "defaultcpuallocator",
    "can't allocate memory",
    "cannot allocate",
    "not enough memory",
    "unable to allocate",
    "failed to map segment",  # of a library that is loaded late
    "cannot map zero-fill pages",
    "cannot create shared object descriptor",
    "can't start new thread",  # its stack is memory; and fewer runs at once do with fewer, too
)
# Bytes that a process takes only when it trains: libraries of machine code, the stacks of threads.
LATER = {"RLIMIT_AS": ("VmSize:", 200e6), "RLIMIT_DATA": ("VmData:", 60e6)}
OTHER_FILES = 24  # handles for everything else: checkpoints, libraries, pipes
ATTEMPTS = 65_536, 10_240  # tried on a system that states no limit and yet has one


class Shortage(NamedTuple):
    """A resource that has run out."""

    of: str  # MEMORY or FILES
    said: str  # the first line of the error that says so


def shortage(error: BaseException) -> Shortage | None:
    """The resource that has run out, by an error or by its cause; None if the error is about something else."""
    for one in _with_causes(error):
        said = (str(one).strip() or type(one).__name__).split("\n")[0]
        if isinstance(one, OSError) and one.errno is not None:  # a full disk is no shortage, whatever caused it
            return Shortage(NUMBERS[one.errno], said) if one.errno in NUMBERS else None
        if _is_of_memory(one):
            return Shortage(MEMORY, said)
    return None


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its causes; `from None` only hides them from readers."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__ or error.__context__


def _is_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's, if torch is there
        return True
    words = str(error).lower()
    return isinstance(error, RuntimeError | OSError | ImportError) and any(word in words for word in WORDS)


def memory_left() -> float:
    """The bytes that this process may still take under its limits, which `ulimit -v` and `ulimit -d` set."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        lines = Path("/proc/self/status").read_text("utf-8").splitlines()
        in_use = dict(line.split()[:2] for line in lines if "kB" in line)
        left = [
            resource.getrlimit(getattr(resource, name))[0] - 1024 * int(in_use[line]) - later
            for name, (line, later) in LATER.items()
            if resource.getrlimit(getattr(resource, name))[0] != resource.RLIM_INFINITY and line in in_use
        ]
        return max(0.0, min(left, default=math.inf))
    return math.inf


def files_left() -> int:
    """How many more folders this process may hold open, after its limit is raised as far as the system allows."""
    try:
        import resource
    except ImportError:  # not on this platform
        return sys.maxsize
    most, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (allowed, *ATTEMPTS):
        if most == allowed or most >= wanted > 0:
            break
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, allowed))
            most = wanted
            break
    if most == resource.RLIM_INFINITY:
        return sys.maxsize
    try:
        in_use = len(os.listdir("/dev/fd"))
    except OSError:  # no handle is left to look with, or there is nothing to look at
        in_use = most if Path("/dev/fd").is_dir() else 0
    return max(0, most - in_use - OTHER_FILES)


def require_files(runs: int) -> None:
    """Raise a SaveError if this process has too few handles to hold the runs' folders; a single run is always tried."""
    if runs > 1 and (left := files_left()) < runs:
        raise SaveError(
            f"{runs:,} runs side by side hold a folder open each, and this process may open {left:,} more. "
            "Raise that limit (ulimit -n), or train fewer side by side."
        ) from OSError(errno.EMFILE, os.strerror(errno.EMFILE))
