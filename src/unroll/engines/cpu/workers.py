"""Work on the CPU that falls into parts, each done by one thread from its beginning to its end.

torch shares every single operation among its threads, and they wait for each other after each: a training step has
thousands of operations too small for that, and where another process keeps one core busy, all wait for that core. Here
a thread takes a part of the rows, or of the columns, through hundreds of operations, and waits once. (torch and NumPy
let other Python threads go on while they compute.)

How many parts there are is torch's number of threads, as the caller set it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from queue import SimpleQueue

import torch

from unroll.engines.cpu.this_thread import this_thread

Work = Callable[[int], None]


_idle: list[_Worker] = []


def count() -> int:
    """How many parts work falls into that this thread divides; one that does a part divides it no further."""
    return this_thread.parts or torch.get_num_threads()


@contextmanager
def single() -> Iterator[None]:
    """Keep torch to one thread: threads that wait for its next operation take a core from those that work on parts."""
    threads = torch.get_num_threads()
    if threads == 1 or this_thread.parts:
        yield
        return
    this_thread.parts = threads
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        this_thread.parts = 0


def each(parts: int, work: Work) -> None:
    """work(0), work(1), … at the same time; the caller's thread does the first, and an error in any is raised."""
    if parts == 1:
        work(0)
        return
    with single():
        workers = [_idle.pop() if _idle else _Worker() for _ in range(parts - 1)]
        for part, worker in enumerate(workers, start=1):
            worker.begin(work, part)
        errors: list[BaseException] = []
        try:
            work(0)
        finally:
            errors += [error for worker in workers if (error := worker.end())]
            _idle.extend(workers)
        for error in errors:
            raise error


def each_of(M: int, parts: int, work: Callable[[int, int], None]) -> None:
    """work(m, part) for every run and every part, the threads sharing them."""
    tasks = iter([(m, part) for m in range(M) for part in range(parts)])
    threads = min(count(), M * parts)

    def some(thread: int) -> None:
        for task in tasks:  # the next free thread takes it
            work(*task)

    each(threads, some)


def divided(n: int, parts: int) -> list[slice]:
    """Cut n things into neighbouring stretches of nearly equal length."""
    bounds = [part * n // parts for part in range(parts + 1)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]


class _Worker:
    """A thread that waits for work, and ends with the process."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[tuple[Work, int]] = SimpleQueue()
        self._done: SimpleQueue[BaseException | None] = SimpleQueue()
        threads = torch.get_num_threads()
        threading.Thread(target=self._serve, name="unroll part", daemon=True).start()
        self._done.get()
        torch.set_num_threads(threads)  # torch gives threads born later the number that was set last, anywhere

    def begin(self, work: Work, part: int) -> None:
        self._asked.put((work, part))

    def end(self) -> BaseException | None:
        return self._done.get()

    def _serve(self) -> None:
        torch.get_num_threads()  # once asked, torch no longer gives this thread the number set last elsewhere
        torch.set_num_threads(1)
        torch.set_grad_enabled(False)  # torch keeps that for each thread
        self._done.put(None)
        while True:
            work, part = self._asked.get()
            try:
                work(part)
                found = None
            except BaseException as error:
                found = error
            del work  # it holds what it works on
            self._done.put(found)


# A process that forks has no threads but one: its child makes workers of its own.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)
