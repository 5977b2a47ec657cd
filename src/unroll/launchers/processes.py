"""One fleet a core at a time, each in a process of its own: for models too small to be shared among cores.

Give such runs one thread each. A process that is told to stop saves first; one whose parent is gone stops at once, so
that whoever goes on finds nobody at work in its folders.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from unroll.errors import Interrupted, SaveError
from unroll.launchers import Failed, Job, Report
from unroll.launchers._work import unended, work
from unroll.library import Library

PATIENCE = 60.0  # seconds to save in, before a process is ended
DIE_WITH_PARENT = 1  # prctl's PR_SET_PDEATHSIG

Workers = dict[Connection, tuple[BaseProcess, Job]]


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(jobs: Sequence[Job], library: Library) -> Iterator[Report]:
    """The next job goes to whoever is free; reports of different fleets come interleaved."""
    waiting, at_work = list(reversed(jobs)), Workers()
    idle: list[tuple[Connection, BaseProcess]] = []
    try:
        while waiting or at_work:
            while waiting and len(at_work) < cores():
                line, process = idle.pop() if idle else _worker(library)
                job = waiting.pop()
                at_work[line] = process, job
                with suppress(OSError):  # it is gone: that is noticed below
                    line.send(job)
            for heard_of in wait(list(at_work)):
                assert isinstance(heard_of, Connection)
                process, job = at_work[heard_of]
                try:
                    heard = heard_of.recv()
                except (EOFError, OSError):
                    process.join()
                    del at_work[heard_of]
                    reason = f"The process that trained them ended with code {process.exitcode}."
                    if left := unended(job):
                        yield Failed(job.fleet, left, reason)
                    continue
                if heard is None:
                    del at_work[heard_of]
                    idle.append((heard_of, process))
                elif isinstance(heard, int):  # the signal that it was interrupted by
                    raise Interrupted(heard)
                elif isinstance(heard, SaveError):
                    raise heard
                else:
                    yield heard
    finally:
        _end([process for process, _ in at_work.values()] + [process for _, process in idle])


def _worker(library: Library) -> tuple[Connection, BaseProcess]:
    ours, theirs = multiprocessing.Pipe()
    # A new interpreter: what torch's threads hold does not survive a fork.
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs, library, os.getpid()))
    process.start()
    theirs.close()
    return ours, process


def _end(processes: Sequence[BaseProcess]) -> None:
    """Those at work save; the others have nothing to."""
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(PATIENCE)
        if process.is_alive():
            process.kill()
            process.join()
        process.close()


def _serve(line: Connection, library: Library, parent: int) -> None:
    """Train what comes down the line, until it ends."""
    _die_with(parent)
    with suppress(EOFError, OSError):  # the parent is gone
        while True:
            job = line.recv()
            try:
                for report in work(job, library):
                    line.send(report)
                line.send(None)
            except Interrupted as error:
                line.send(error.exit_code - 128)
            except SaveError as error:
                line.send(error)


def _die_with(parent: int) -> None:
    """Be killed when the parent is: it may have no time to say so."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
