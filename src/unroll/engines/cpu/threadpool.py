"""Threads that wait for work in compiled code: awake for a moment, then asleep.

To wake a Python thread takes up to a tenth of a millisecond, and then it has to wait for Python's lock. OpenMP's
threads, which torch has, stay awake for milliseconds; where another process wants their core as well, both lose most of
their time to waiting. Here a thread that has nothing to do looks for work again and again for a moment, then offers its
core to others between two looks, and soon sleeps until it is woken. It never comes back to Python and its lock.

Every thread of Python that asks has a crew of its own. There are crews on Linux, on the processors below.

Shapes: a post is what a worker and its leader tell each other, a word a line of the cache.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import threading
import weakref
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unroll.engines.cpu.builder import Code, Value
from unroll.engines.cpu.compiler import make
from unroll.engines.cpu.this_thread import this_thread

FUTEX = {"x86_64": 202, "aarch64": 98}  # the system call by which a thread sleeps until a word of memory changes
SLEEP, WAKE = 128, 129  # what it is asked for, within one process
PAUSE = {"x86_64": ("x86.sse2.pause", ()), "aarch64": ("aarch64.hint", (1,))}  # LLVM's names, and what they are told
# How often a thread looks at once, and how often after it has offered its core to others, before it sleeps: who waits
# for work, and who waits for a worker. That one must not offer: if both are on one core, they would take turns there
# for good. Asleep, it is woken where a core is free.
WORKER, LEADER = (500, 2000), (1500, 0)
FOREVER = 1 << 62

LINE = 8  # whole numbers of a line of the cache
TICKET, DONE, ASLEEP, AWAITED, WORK, TOLD, NUMBER = range(0, 7 * LINE, LINE)  # the words of a post

Post = NDArray[np.int64]


class Crew:
    """Workers who do their shares of what the thread that has them does."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._posts: list[Post] = []
        self._table = np.zeros(0, np.int64)  # where the posts are
        self._lead = _lead()
        weakref.finalize(self, _dismiss, _dismissal(), self._posts, self.process).atexit = False

    def do(self, work: int, told: int, threads: int) -> None:
        """work(told, n) for every n below `threads`, all at the same time; both are addresses."""
        while len(self._table) < threads - 1:
            self._hire()
        self._lead(self._table.ctypes.data, threads - 1, work, told)

    def _hire(self) -> None:
        """One more. Where no thread can be started the crew stays as it was."""
        post = np.zeros(7 * LINE + LINE, np.int64)
        post = post[-post.ctypes.data % (8 * LINE) // 8 :]
        worker = threading.Thread(target=_work, args=(_serve(), post), name="unroll crew", daemon=True)
        self._posts.append(post)  # before it starts: whoever interrupts this, a worker that began is dismissed one day
        try:
            worker.start()
        except RuntimeError:
            del self._posts[-1]
            raise
        self._table = np.array([*self._table, post.ctypes.data], np.int64)


def own() -> Crew | None:
    """This thread's crew; None where there are none."""
    if not available():
        return None
    if (
        this_thread.crew is None or this_thread.crew.process != os.getpid()
    ):  # a process that forked has no thread but one
        this_thread.crew = Crew()
    return this_thread.crew


@cache
def available() -> bool:
    """Whether threads can wait like this here."""
    return sys.platform == "linux" and platform.machine() in FUTEX


def _work(serve: Callable[..., None], post: Post) -> None:
    serve(post.ctypes.data)


def _dismiss(dismissal: Callable[..., None], posts: list[Post], process: int) -> None:
    """The workers of a crew that nobody has any more."""
    if os.getpid() == process:
        for post in posts:
            dismissal(post.ctypes.data)


def serve(code: Code, post: Value) -> None:
    """A worker's life: ticket after ticket, until the work is none."""
    with code.loop(FOREVER) as n:
        _wait(code, post, TICKET, n, ASLEEP, WORKER)
        work, told, number = (code.load_index(post, code.number(word)) for word in (WORK, TOLD, NUMBER))
        with code.builder.if_then(code.builder.icmp_unsigned("==", work.it, code.number(0).it)):
            code.builder.ret_void()
        _call(code, work, told, number)
        _tell(code, post, DONE, n + 1, AWAITED)


def dismissal(code: Code, post: Value) -> None:
    """A ticket without work."""
    _ticket(code, post, code.number(0), code.number(0), code.number(0))


def lead(code: Code, table: Value, workers: Value, work: Value, told: Value) -> None:
    """Give each worker a ticket, do the first share, wait for them all."""
    with code.loop(workers) as w:
        _ticket(code, code.pointer(code.load_index(table, w)), work, told, w + 1)
    _call(code, work, told, code.number(0))
    with code.loop(workers) as w:
        post = code.pointer(code.load_index(table, w))
        _wait(code, post, DONE, code.load_index(post, code.number(TICKET)) - 1, AWAITED, LEADER)


def _ticket(code: Code, post: Value, work: Value, told: Value, number: Value) -> None:
    for word, value in ((WORK, work), (TOLD, told), (NUMBER, number)):
        code.builder.store(value.it, code.at_index(post, code.number(word)).it)
    _tell(code, post, TICKET, code.load_index(post, code.number(TICKET)) + 1, ASLEEP)


def _call(code: Code, work: Value, told: Value, number: Value) -> None:
    from llvmlite import ir

    kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 2)
    code.builder.call(code.builder.inttoptr(work.it, kind.as_pointer()), [told.it, number.it])


def _tell(code: Code, post: Value, word: int, value: Value, asleep: int) -> None:
    """Change a word that another thread waits for, and wake it if it sleeps."""
    place = code.at_index(post, code.number(word))
    _write(code, place, value)
    sleeps = _read(code, code.at_index(post, code.number(asleep)))
    with code.builder.if_then(code.builder.icmp_unsigned("!=", sleeps, code.number(0).it)):
        _system_call(code, place, WAKE, code.number(1))


def _wait(code: Code, post: Value, word: int, old: Value, asleep: int, patience: tuple[int, int]) -> None:
    """Until the word is no longer what it was."""
    places = (code.at_index(post, code.number(n)) for n in (word, asleep))
    code.call("wait", partial(_waiting, patience=patience), *places, old)


def _waiting(code: Code, word: Value, asleep: Value, old: Value, *, patience: tuple[int, int]) -> None:
    builder, (looks, offers) = code.builder, patience

    def leave_if_changed() -> None:
        with builder.if_then(builder.icmp_unsigned("!=", _read(code, word), old.it)):
            builder.ret_void()

    with code.loop(looks):
        leave_if_changed()
        _pause(code)
    with code.loop(offers):
        leave_if_changed()
        builder.call(code.outside(address_of(ctypes.CDLL(None).sched_yield), 0), ())
    with code.loop(FOREVER):
        # Who changes the word looks at this after; who says this looks at the word after: one of them sees the other.
        _write(code, asleep, code.number(1))
        with builder.if_then(builder.icmp_unsigned("!=", _read(code, word), old.it)):
            _write(code, asleep, code.number(0))
            builder.ret_void()
        _system_call(code, word, SLEEP, old)


def _read(code: Code, place: Value) -> Any:
    return code.builder.load_atomic(place.it, "seq_cst", 8, typ=code.number(0).it.type)


def _write(code: Code, place: Value, value: Value) -> None:
    # llvmlite wants to know what stands there.
    builder, kind = code.builder, value.it.type
    known = builder.inttoptr(builder.ptrtoint(place.it, kind), kind.as_pointer())
    builder.store_atomic(value.it, known, "seq_cst", 8)


def _system_call(code: Code, word: Value, asked: int, value: Value) -> None:
    builder, number = code.builder, FUTEX[platform.machine()]
    place = builder.ptrtoint(word.it, value.it.type)
    given = [code.number(number).it, place, code.number(asked).it, value.it, code.number(0).it]
    builder.call(code.outside(address_of(ctypes.CDLL(None).syscall), len(given)), given)


def _pause(code: Code) -> None:
    """Nothing, in the way that spares a core that waits."""
    from llvmlite import ir

    (name, told), module, small = PAUSE[platform.machine()], code.builder.module, ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [small] * len(told))
    function = module.globals.get(f"llvm.{name}") or ir.Function(module, kind, f"llvm.{name}")
    code.builder.call(function, [ir.Constant(small, x) for x in told])


def address_of(function: Any) -> int:
    """Where a function begins that ctypes knows."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@cache
def _serve() -> Callable[..., None]:
    return make(serve, 32, "a")


@cache
def _lead() -> Callable[..., None]:
    return make(lead, 32, "annn")


@cache
def _dismissal() -> Callable[..., None]:
    return make(dismissal, 32, "a")
