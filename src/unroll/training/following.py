"""Trackers beside a training, each in a thread of its own: one that is slow, hangs or fails costs no batch.

What is told comes from `metrics.jsonl`: on begin the lines that stand, then each new one. The end of a training waits a
while for those that have more to say; a thread that hangs even then is left behind, and ends with the process.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue
from textwrap import shorten
from typing import Any

from unroll.base import atomic_files
from unroll.base.errors import RunError, UnrollError
from unroll.runs import status_file
from unroll.runs.folder import RunFolder
from unroll.training import trackers
from unroll.training.trackers import Following, Line, Tracked

SOON = 5.0  # seconds that the end of a training waits for its trackers without a word
PATIENCE = 60.0  # and then with one
HURRY = 5.0  # the same after Ctrl-C
MOMENT = 0.05  # seconds between two looks for a signal
LONGEST = 400  # letters of what went wrong


class Trackers:
    """The trackers of a fleet's runs. Without any, nothing is done."""

    def __init__(self, names: Iterable[str], runs: Sequence[Tracked]) -> None:
        self.runs, self.process = runs, os.getpid()
        self.left = set(range(len(runs)))  # the runs whose end was not yet told
        self._said: set[str] = set()
        self._own: list[str] = []
        self._closed = self._left = False
        self._threads = [_Thread(name) for name in names]

    def begin(self) -> None:
        """Begin with every run as it stands in its folder; one that has ended is told whole."""
        if not self._threads:
            return
        for m, run in enumerate(self.runs):
            try:
                lines = run.folder.metrics
                state = run.folder.status["state"]
            except RunError as error:
                self._own.append(f"The trackers were not told of a run: {error}")
                self.left.discard(m)
                continue
            for thread in self._threads:
                thread.todo.put(("begin", m, run, lines))
            if state in status_file.ENDED:
                self.end(m, state)

    def add(self, m: int, line: Line) -> None:
        """Another line of a run's metrics."""
        if self._threads and m in self.left:
            as_written = atomic_files.finite(dict(line))
            for thread in self._threads:
                thread.todo.put(("add", m, as_written))

    def end(self, m: int, state: str) -> None:
        """A run has ended."""
        if m in self.left:
            self.left.discard(m)
            for thread in self._threads:
                thread.todo.put(("end", m, state))

    def close(self, state: str) -> None:
        """End with the runs that are left, and hear nothing more."""
        if not self._closed:
            self._closed = True
            for m in sorted(self.left):
                self.end(m, state)
            for thread in self._threads:
                thread.todo.put(None)

    def wait(self, patience: float, check: Callable[[], object] = lambda: None) -> list[str]:
        """Wait for what was told to arrive; the names of the trackers that need longer."""
        if self.process != os.getpid():  # a process that forked has none of the threads
            return []
        until = time.monotonic() + patience
        while (busy := [thread for thread in self._threads if thread.is_alive()]) and time.monotonic() < until:
            check()
            busy[0].join(MOMENT)
        return [thread.name for thread in busy]

    def leave(self, state: str, patience: float = HURRY) -> None:
        """Close, and wait no longer than this."""
        if self._left or self.process != os.getpid():
            return
        self._left = True
        self.close(state)
        for name in self.wait(patience):
            words = "has not answered in time, and is left behind: metrics.jsonl has all that it lacks"
            self._own.append(f"The tracker {name} {words}.")

    def problems(self) -> list[str]:
        """What has gone wrong since the last call, in words; the same is said once."""
        said = list(self._own)
        for thread in self._threads:
            said += [f"The tracker {thread.name} is given up: {words}." for words in thread.problems]
        new = [words for words in dict.fromkeys(said) if words not in self._said]
        self._said.update(new)
        return new


class _Thread(threading.Thread):
    """One tracker at work."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.todo: SimpleQueue[Any] = SimpleQueue()
        self.problems: list[str] = []
        self._following: dict[int, Following] = {}
        self.start()

    def run(self) -> None:
        """Do what comes, until there is no more. A run with which something went wrong is followed no more."""
        while (task := self.todo.get()) is not None:
            what, m, *rest = task
            try:
                if what == "begin":
                    self._following[m] = self._begun(*rest)
                elif m in self._following:
                    following = self._following.pop(m) if what == "end" else self._following[m]
                    getattr(following, what)(*rest)
            except BaseException as error:  # a stranger's code may raise anything, and no signal comes to this thread
                self.problems.append(_in_words(error))
                self._following.pop(m, None)

    def _begun(self, run: Tracked, lines: Sequence[Line]) -> Following:
        tracker = trackers.load(self.name)
        if (reason := tracker.why_not()) is not None:
            raise RunError(reason)
        return tracker.begin(run, lines)


def _in_words(error: BaseException) -> str:
    name = type(error).__name__
    words = str(error) if isinstance(error, UnrollError) else f"{name}: {error}" if str(error) else name
    return shorten(words, LONGEST, placeholder=" …").rstrip(".")


def tell(folder: RunFolder, names: Sequence[str]) -> list[str]:
    """Tell trackers of a run that has ended, all of it; what went wrong, in words."""
    if not names:
        return []
    told = Trackers(names, [Tracked(folder, folder.experiment)])
    told.begin()
    told.leave("finished", PATIENCE)
    return told.problems()
