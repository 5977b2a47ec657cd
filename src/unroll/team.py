"""Compiled code on several cores at once, thousands of times a second.

A Python thread that waits is asleep, and to wake it takes up to a tenth of a millisecond: a good part of a step of
sampling, and of the small passes of a training step. torch's threads stay awake for some milliseconds after each
operation, and they are OpenMP's, whose library is in the process with torch. So they are asked, as a C compiler's code
asks them. Where there is no such library, the threads of `parts.py` do the work; so they do in a process that forked
from one whose threads it does not have.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unroll import parts, tape
from unroll.machine_code import Code, Value
from unroll.making_code import make

Calls = NDArray[np.int64]  # [calls, arguments]
MAPS = Path("/proc/self/maps")  # where Linux tells which libraries a process holds
BORN_IN = os.getpid()
NAMES = ("libgomp", "libiomp5", "libomp")  # all understand the first one's calls


class Team:
    """Threads that call one function, which `machine_code.make` made of addresses and whole numbers."""

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function

    def do(self, calls: Calls, threads: int) -> None:
        """Every call, call n by thread n % threads, in their order."""
        self.ready(calls, threads)()

    def ready(self, calls: Calls, threads: int) -> Callable[[], None]:
        """What does that, as often as it is wanted."""
        threads = min(threads, len(calls))
        if threads == 1:
            return partial(self._some, calls.tolist())
        library = _openmp()
        if not library:
            shares = [calls[thread::threads].tolist() for thread in range(threads)]
            return lambda: parts.each(threads, lambda thread: self._some(shares[thread]))
        member = _member_for(_address(self._function), calls.shape[1])
        told = np.array((threads, len(calls), calls.ctypes.data), np.int64)
        return _Asked(partial(library.GOMP_parallel, _address(member), told.ctypes.data, threads, 0), told, calls)

    def _some(self, calls: list[list[int]]) -> None:
        for call in calls:
            self._function(*call)


class _Asked:
    """A call of OpenMP's threads, and the memory it tells them of."""

    def __init__(self, ask: Callable[[], None], *held: Calls) -> None:
        self._ask, self._held = ask, held

    def __call__(self) -> None:
        self._ask()


def do(function: Callable[..., None], calls: Sequence[Sequence[int]]) -> None:
    """Every call of a function, all threads sharing them: now, and whenever a tape that records is replayed."""
    again = Team(function).ready(np.array(calls, np.int64), parts.count())
    again()
    tape.done(again)


def _member(code: Code, told: Value, *, function: int, several: int) -> None:
    """What each of OpenMP's threads does. If they are fewer than was asked for, some do the work of two."""
    library = _openmp()
    assert library  # or there were no members
    builder = code.builder
    threads, calls, table = (code.load_index(told, code.number(n)) for n in range(3))
    table = Value(code, builder.inttoptr(table.it, told.it.type))
    own, present = (
        Value(code, builder.zext(builder.call(_outside(code, _address(asked), "int", 0), ()), threads.it.type))
        for asked in (library.omp_get_thread_num, library.omp_get_num_threads)
    )
    goal = _outside(code, function, "nothing", several)
    with code.loop((threads - own + present - 1) // present) as n:
        thread = own + present * n
        with code.loop((calls - thread + threads - 1) // threads) as m:
            first = (thread + threads * m) * several
            builder.call(goal, [code.load_index(table, first + place).it for place in range(several)])


@cache
def _member_for(function: int, several: int) -> Callable[..., None]:
    return make(_member, 32, "a", function=function, several=several)


def _outside(code: Code, address: int, gives: str, arguments: int) -> Any:
    """A function that is there already, by its address, for code that calls it; addresses are passed as numbers are."""
    from llvmlite import binding, ir

    name = f"at_{address:x}"
    binding.add_symbol(name, address)
    result = ir.IntType(32) if gives == "int" else ir.VoidType()
    return ir.Function(code.builder.module, ir.FunctionType(result, [ir.IntType(64)] * arguments), name)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _openmp() -> Any:
    """The library of torch's threads, or None."""
    return _library() if os.getpid() == BORN_IN else None


@cache
def _library() -> Any:
    held = {line.split()[-1] for line in MAPS.read_text().splitlines()} if MAPS.exists() else set()
    found = [path for path in sorted(held) if Path(path).name.startswith(NAMES)]
    # Another package may have brought one of its own.
    found.sort(key=lambda path: "torch" not in Path(path).parts)
    library: Any = ctypes.CDLL(found[0]) if found else None
    if not hasattr(library, "GOMP_parallel"):
        return None
    library.GOMP_parallel.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    library.GOMP_parallel.restype = None
    return library
