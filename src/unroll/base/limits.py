"""What the system lets this process have, and whether an error says that there is no more of it.

Memory runs out in many words: Python's, NumPy's, torch's, the system's own, those of a library that cannot be loaded
or a thread that cannot be started. An error counts as well where one of those stands behind it.
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
# What comes into a process only when it trains: libraries of machine code, the stacks of threads.
LATER = {"RLIMIT_AS": ("VmSize:", 200e6), "RLIMIT_DATA": ("VmData:", 60e6)}
OTHER_FILES = 24  # handles for everything else: checkpoints, libraries, pipes
ATTEMPTS = 65_536, 10_240  # for a system that has no limit, and yet refuses a process more than some


class Shortage(NamedTuple):
    """What there is too little of."""

    of: str  # MEMORY or FILES
    said: str  # the first line of the error that says so


def shortage(error: BaseException) -> Shortage | None:
    """What an error says has run out, itself or by what stands behind it; None where it is about something else."""
    for one in _behind(error):
        said = (str(one).strip() or type(one).__name__).split("\n")[0]
        if isinstance(one, OSError) and one.errno is not None:  # a full disk is none, whatever went before
            return Shortage(NUMBERS[one.errno], said) if one.errno in NUMBERS else None
        if _of_memory(one):
            return Shortage(MEMORY, said)
    return None


def _behind(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and what it came from; `from None` hides that only from readers."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__ or error.__context__


def _of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's, if that is there
        return True
    words = str(error).lower()
    return isinstance(error, RuntimeError | OSError | ImportError) and any(word in words for word in WORDS)


def memory_left() -> float:
    """Bytes that this process may still take under its own limits, as `ulimit -v` and `ulimit -d` set them."""
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
    """How many more folders this process may hold open; its limit is raised first, as far as the system allows."""
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
    except OSError:  # there is none left to look with, or nothing to look at
        in_use = most if Path("/dev/fd").is_dir() else 0
    return max(0, most - in_use - OTHER_FILES)


def require_files(runs: int) -> None:
    """Refuse to hold more folders than this process has handles for; one run alone is tried all the same."""
    if runs > 1 and (left := files_left()) < runs:
        raise SaveError(
            f"{runs:,} runs side by side hold a folder open each, and this process may open {left:,} more. "
            "Raise that limit (ulimit -n), or train fewer side by side."
        ) from OSError(errno.EMFILE, os.strerror(errno.EMFILE))
