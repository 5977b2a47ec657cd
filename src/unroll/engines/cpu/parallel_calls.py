"""Compiled code on several cores at once, thousands of times a second.

The threads of a pool (`threadpool.py`) share the calls of one function, whose arguments stand in a table. Where there
is no pool, the threads of `engines/cpu/workers.py` do.
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
    """What makes every call, call n by thread n % threads, in their order: as often as it is wanted.

    The function is one that `making_code.make` made of addresses and whole numbers.
    """
    threads = max(1, min(threads, len(calls)))
    if threads > 1 and threadpool.available():
        return _Shared(function, calls, threads)
    shares = [calls[thread::threads].tolist() for thread in range(threads)]

    def some(thread: int) -> None:
        for call in shares[thread]:
            function(*call)

    return partial(workers.each, threads, some)


class _Shared:
    """Calls for a crew: whoever's that is which does them."""

    def __init__(self, function: Callable[..., None], calls: Calls, threads: int) -> None:
        self._calls, self._threads = calls, threads
        self._told = np.array((threads, len(calls), calls.ctypes.data), np.int64)
        self._work = address_of(_share_for(address_of(function), calls.shape[1]))
        self._told_at = self._told.ctypes.data

    def __call__(self) -> None:
        found = threadpool.own()
        assert found
        found.do(self._work, self._told_at, self._threads)


def do(function: Callable[..., None], calls: Sequence[Sequence[int]]) -> None:
    """Every call of a function, all threads sharing them: now, and whenever a tape that records is replayed."""
    again = ready(function, np.array(calls, np.int64), workers.count())
    again()
    replay.done(again)


def _share(code: Code, told: Value, thread: Value, *, function: int, several: int) -> None:
    """What each thread does."""
    threads, calls, table = (code.load_index(told, code.number(n)) for n in range(3))
    goal = code.outside(function, several)
    with code.loop((calls - thread + threads - 1) // threads) as m:
        first = (thread + threads * m) * several
        given = [code.load_index(code.pointer(table), first + place).it for place in range(several)]
        code.builder.call(goal, given)


@cache
def _share_for(function: int, several: int) -> Callable[..., None]:
    return make(_share, 32, "an", function=function, several=several)
