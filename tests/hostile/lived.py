"""Commands of ours in another process, so that their end, memory and time are seen from outside.

One process runs many commands, one after the other; a command that hangs or dies costs that process, and the next one
gets another. It is forked from a server that has imported everything.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

PATIENCE = 10.0  # seconds after which a command hangs
MEGABYTES = 500  # that a command may take
SMALL_CACHE = 1_000  # bytes and tokens from which a corpus, and the order of its suffixes, are cached here


@dataclass(frozen=True)
class Command:
    """What is run, and where."""

    words: tuple[str, ...]
    cache: Path
    output: Path  # a folder for what it prints


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int | None  # None: it raised, or died
    out: str
    err: str
    megabytes: float
    seconds: float
    hung: bool = False

    def complaint(self) -> str | None:
        """What no command may do, whatever it reads; None where it did none of that."""
        if self.hung:
            return f"it hung for {PATIENCE:g} s"
        if self.code is None or "Traceback" in self.err:
            return f"it ended with a traceback or died: {self.err[-1500:]}"
        if self.code not in (0, 1, 2):
            return f"it exited with {self.code}: {self.err[-500:]}"
        if self.code and not self.err.strip():
            return f"it exited with {self.code} without a word"
        if self.megabytes > MEGABYTES:
            return f"it took {self.megabytes:.0f} MB"
        if any(ord(c) < 32 and c not in "\n\t" for c in self.err):
            return f"a control character reached the terminal: {self.err!r}"
        return None


class Worker:
    """A process that runs commands."""

    def __init__(self) -> None:
        self._process: BaseProcess | None = None
        self._line: Connection | None = None

    def run(self, command: Command) -> Ended:
        """Run a command, or kill the process when it takes too long."""
        line = self._started()
        began = time.perf_counter()
        line.send(command)
        hung = not line.poll(PATIENCE)
        seconds = time.perf_counter() - began
        code, megabytes = None, 0.0
        try:
            if not hung:
                code, megabytes = line.recv()
        except EOFError:  # it died
            self.stop()
        if hung:
            self.stop()
        out, err = ((command.output / name).read_text("utf-8", "backslashreplace") for name in ("out", "err"))
        return Ended(code, out, err, megabytes, seconds, hung)

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        if self._process is not None and self._line is not None:
            self._process.kill()
            self._process.join()
            self._line.close()
            self._process.close()
        self._process = self._line = None

    def _started(self) -> Connection:
        if self._line is None:
            self._line, theirs = multiprocessing.Pipe()
            self._process = _server().Process(target=_serve, args=(theirs,))
            self._process.start()
            theirs.close()
            assert self._line.recv() == "ready"
        return self._line


@cache
def _server() -> multiprocessing.context.ForkServerContext:
    here = Path(__file__).parent
    paths = (str(here), str(here.parent), os.environ.get("PYTHONPATH"))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["precompiled", "warmed", "lived"])
    return context


def _serve(line: Connection) -> None:
    from typer.main import get_command

    from unroll import cli
    from unroll.corpus import encoding
    from unroll.runs import memorisation

    encoding.CACHED_FROM = memorisation.CACHED_FROM = SMALL_CACHE
    cli.app = get_command(cli.app)  # type: ignore[assignment]  (made once, it takes a tenth of a second)
    os.environ["NO_COLOR"] = "1"
    line.send("ready")
    while True:
        line.send(_live(line.recv()))


def _live(command: Command) -> tuple[int | None, float]:
    """The exit code of a command, or None where it raised; and the megabytes that it took at most."""
    from unroll.__main__ import main

    os.environ["UNROLL_CACHE"] = str(command.cache)
    command.output.mkdir(parents=True, exist_ok=True)
    for name, handle in (("out", 1), ("err", 2)):
        file = os.open(command.output / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, handle)
        os.close(file)
    sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.argv = ["unroll", *command.words]
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    code: int | None = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    except BaseException:
        traceback.print_exc()
        code = None
    finally:
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # which a command may change for its own process
    sys.stdout.flush()
    sys.stderr.flush()
    return code, _peak()


def _peak() -> float:
    """Megabytes at most. Not getrusage: there a process starts with its parent's peak."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1000
    raise RuntimeError("no VmHWM in /proc/self/status")
