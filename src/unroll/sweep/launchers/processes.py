"""One fleet per core at a time, or per GPU, each in a process of its own.

It is for many GPUs, and for models too small to be shared among cores: give these runs one thread each. A process that
trains on a GPU sees no other one. A process is a new interpreter that runs nothing of the program which starts it, so a
script needs no `if __name__ == "__main__":` for it, and a notebook or a program read from a pipe will do. A process
that is asked to stop saves first; one whose parent is gone stops at once, so that nobody is at work in its folders.
"""

from __future__ import annotations

import ctypes
import io
import mmap
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unroll.base import generators
from unroll.base.errors import Interrupted, SaveError, UnrollError
from unroll.base.wording import at_a_shell, shell_words
from unroll.sweep.launchers import Failed, Job, Report, chosen, require_reach, unended, work
from unroll.training.signals import Pressed, Watch

if TYPE_CHECKING:
    from unroll.corpus.open_corpora import Library

ELSEWHERE = True  # what this process registered, the others do not know
GPU = "cuda"  # the one that a process sees
CORE = "cpu"  # where a fleet trains that needs no GPU; each core is one
PATIENCE = 60.0  # seconds to save in, before a process is ended
OFTEN = 0.2  # seconds between two looks for a signal, while no process has anything to say
DIE_WITH_PARENT = 1  # prctl's PR_SET_PDEATHSIG
READY = "ready"
WINDOWS = (
    "The launcher processes needs a POSIX system: Windows ends a process without letting it save. "
    "Leave --launcher out: runs are trained in this process."
)
BEGIN = """
import sys
from multiprocessing.connection import Connection
line = Connection(int(sys.argv[1]))
sys.path[:] = line.recv()
from unroll.sweep.launchers.processes import serve
serve(line, int(sys.argv[2]), sys.argv[3] == 'shell')
"""


@dataclass
class Worker:
    """A process, what is said to it and heard from it, and the fleet that it trains."""

    process: subprocess.Popen[bytes]
    line: Connection
    place: str  # a core, or the GPU that it sees
    job: Job | None = None
    ready: bool = False

    def say(self, what: Any) -> None:
        """Send something; that a process is gone is noticed where it is listened to."""
        with suppress(OSError):
            self.line.send(what)


def why_not() -> str | None:
    """Why no process can be asked to save and end here, in words; None where that can be."""
    return None if hasattr(signal, "pthread_sigmask") else WINDOWS


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(jobs: Sequence[Job], library: Library) -> Generator[Report, None, None]:
    """The next job goes to a process that is free; reports of different fleets come interleaved."""
    told = [name for job in jobs for name in job.track]
    require_reach(chosen("processes"), [experiment for job in jobs for experiment in job.experiments], told)
    return generators.closed_at_exit(_run(_Team(jobs, library)))


def _run(team: _Team) -> Generator[Report, None, None]:
    try:
        with Watch() as watch:
            while team.busy:
                watch.check()
                team.employ()
                yield from team.heard()
    except Pressed as pressed:
        raise Interrupted(pressed.number) from None
    finally:
        team.end()


class _Team:
    """Processes, the jobs that they have, and those that nobody has yet."""

    def __init__(self, jobs: Sequence[Job], library: Library) -> None:
        from unroll.engines import devices
        from unroll.training import relocate

        self.waiting, self.library, self.most = list(jobs), library, 0
        self.places: dict[str, tuple[str, ...]] = {}  # where each job may train, by its fleet
        for job in jobs:
            hosted = devices.is_host(job.device)
            self.places[job.fleet] = (CORE,) if hosted else relocate.places(job.device)
        every = {place for places in self.places.values() for place in places}
        self.room = {place: cores() if place == CORE else 1 for place in every}
        self.most = sum(self.room.values())
        self.at_work: list[Worker] = []
        self.idle: list[Worker] = []

    @property
    def busy(self) -> bool:
        """Whether a job is left."""
        return bool(self.waiting or self.at_work)

    def employ(self) -> None:
        """Give jobs to those that are idle, and to new ones while there are cores, or GPUs."""
        while len(self.at_work) < self.most and (next_one := self._next()):
            job, place = next_one
            idle = next((worker for worker in self.idle if worker.place == place), None)
            try:
                worker = idle or _started(place)
            except OSError as error:
                self._do_with_fewer(f"No process to train in can be started: {error.strerror or error}.")
                return
            if idle:
                self.idle.remove(idle)
            self.waiting.remove(job)
            worker.job = job if place == CORE else job.on(GPU)
            self.at_work.append(worker)
            if worker.ready:
                worker.say(worker.job)

    def _next(self) -> tuple[Job, str] | None:
        """The first job for which a place is free, and that place."""
        taken = Counter(worker.place for worker in self.at_work)
        for job in self.waiting:
            for place in self.places[job.fleet]:
                if taken[place] < self.room[place]:
                    return job, place
        return None

    def heard(self) -> Iterator[Report]:
        """What they say within a moment."""
        lines = {worker.line: worker for worker in self.at_work}
        for line in wait(list(lines), OFTEN):
            assert isinstance(line, Connection)
            worker = lines[line]
            try:
                said = line.recv()
            except (EOFError, OSError):
                yield from self._gone(worker)
                continue
            if said == READY:
                worker.ready = True
                worker.say(packed(self.library))
                worker.say(worker.job)
            elif said is None:
                self.at_work.remove(worker)
                self.idle.append(worker)
            elif isinstance(said, int):  # the signal that it was interrupted by
                raise Interrupted(said)
            elif isinstance(said, SaveError):
                raise said
            else:
                yield said

    def _gone(self, worker: Worker) -> Iterator[Report]:
        """One has ended without a word: that is a failure of its runs, unless it never began with them."""
        self.at_work.remove(worker)
        worker.line.close()
        code, job = worker.process.wait(), worker.job
        assert job is not None
        if not worker.ready:
            self.waiting.insert(0, job)
            self._do_with_fewer(f"A process to train in ended with code {code} before it was ready.")
        elif left := unended(job):
            yield Failed(job.fleet, left, f"The process that trained them ended with code {code}.")

    def _do_with_fewer(self, reason: str) -> None:
        """Go on with those that there are; where there are none, nothing can be done."""
        self.most = len(self.at_work)
        if not self.most:
            raise UnrollError(f"{reason} Train in this process: with the launcher local.")

    def end(self) -> None:
        """Those at work save; the others have nothing to."""
        workers = [*self.at_work, *self.idle]
        for worker in workers:
            worker.process.terminate()
            worker.line.close()  # one that waits to be heard hears that nobody listens
        for worker in workers:
            try:
                worker.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()


def _started(place: str) -> Worker:
    from unroll.engines import devices

    environment = None if place == CORE else {**os.environ, "CUDA_VISIBLE_DEVICES": devices.visible(place)}
    ours, theirs = multiprocessing.Pipe()
    with theirs:  # this process must not hold it: that is how it hears of the other's end
        words = "shell" if at_a_shell() else "Python"
        command = [sys.executable, "-P", "-c", BEGIN, str(theirs.fileno()), str(os.getpid()), words]
        # A terminal sends Ctrl-C to all: this process decides. The other one is deaf to it until it says what it does.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    worker = Worker(process, ours, place)
    worker.say([place for place in sys.path if isinstance(place, str)])
    return worker


# --- in the other process -----------------------------------------------------------------------------------------


def serve(line: Connection, parent: int, shell: bool = True) -> None:
    """Train what comes down the line, until it ends."""
    _die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    with shell_words(shell), suppress(EOFError, OSError, KeyboardInterrupt):  # the parent is gone, or quits at once
        line.send(READY)
        library: Library = pickle.loads(line.recv())
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


# --- what travels -------------------------------------------------------------------------------------------------


def packed(library: Library) -> bytes:
    """A library as bytes; ids that are mapped from a file travel as its name, so that they stay in memory once."""
    content = io.BytesIO()
    _Packer(content, pickle.HIGHEST_PROTOCOL).dump(library)
    return content.getvalue()


class _Packer(pickle.Pickler):
    def reducer_override(self, thing: Any) -> Any:
        # A part of what is mapped has the file's name as well, but another base.
        if not isinstance(thing, np.memmap) or not isinstance(thing.base, mmap.mmap) or not thing.filename:
            return NotImplemented
        if not os.path.isfile(thing.filename):  # it was deleted since
            return np.asarray(thing).__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return _mapped, (os.fspath(thing.filename), thing.dtype.str, thing.offset, thing.shape)


def _mapped(path: str, dtype: str, offset: int, shape: tuple[int, ...]) -> NDArray[Any]:
    return np.memmap(path, dtype=dtype, mode="c", offset=offset, shape=shape)
