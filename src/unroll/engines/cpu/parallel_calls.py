"""Runs calls of compiled code on several cores at once, thousands of times a second.

The calls are of one function; their arguments are rows of a table. The threads of a pool (`threadpool.py`) share them,
or the threads of `workers.py` if there is no pool.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from unroll.engines.cpu import replay, threadpool, workers
from unroll.engines.cpu.builder import Code, Value
from unroll.engines.cpu.compiler import make
from unroll.engines.cpu.threadpool import address_of

Calls = NDArray[np.int64]  # [calls, arguments]


def ready(function: Callable[..., None], calls: Calls, threads: int) -> Callable[[], None]:
    """Prepare calls that are made again and again: call n by thread n % threads, in order.

    The function is compiled by `compiler.make` and takes addresses and whole numbers alone.
    """
    threads = max(1, min(threads, len(calls)))
    if threads > 1 and threadpool.available():
        return _PooledCalls(function, calls, threads)
    calls_of = [calls[thread::threads].tolist() for thread in range(threads)]

    def work(thread: int) -> None:
        for call in calls_of[thread]:
            function(*call)

    return partial(workers.each, threads, work)


class _PooledCalls:
    """Calls for the threadpool of the thread that makes them."""

    def __init__(self, function: Callable[..., None], calls: Calls, threads: int) -> None:
        self._calls, self._threads = calls, threads
        self._job = np.array((threads, len(calls), calls.ctypes.data), np.int64)
        self._job_at = self._job.ctypes.data
        self._work = address_of(_calls_of_thread_for(address_of(function), calls.shape[1]))

    def __call__(self) -> None:
        pool = threadpool.current()
        assert pool
        pool.do(self._work, self._job_at, self._threads)


def do(function: Callable[..., None], calls: Sequence[Sequence[int]]) -> None:
    """Make every call of a function on all threads: now, and whenever a step that is being recorded is replayed."""
    make_calls = ready(function, np.array(calls, np.int64), workers.count())
    make_calls()
    replay.done(make_calls)


def _calls_of_thread(code: Code, job: Value, thread: Value, *, function: int, columns: int) -> None:
    """Make the calls of one thread. `job` holds the number of threads, the number of calls and the table's address."""
    threads, calls, table = (code.load_index(job, code.number(n)) for n in range(3))
    callee = code.outside(function, columns)
    with code.loop((calls - thread + threads - 1) // threads) as m:
        first = (thread + threads * m) * columns
        row = [code.load_index(code.pointer(table), first + n).it for n in range(columns)]
        code.builder.call(callee, row)


@cache
def _calls_of_thread_for(function: int, columns: int) -> Callable[..., None]:
    return make(_calls_of_thread, 32, "an", function=function, columns=columns)
