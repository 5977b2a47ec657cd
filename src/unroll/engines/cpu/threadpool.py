"""Threads that wait for work in compiled code: awake for a moment, then asleep.

Waking a Python thread takes up to a tenth of a millisecond, and then it waits for Python's lock. OpenMP's threads,
which torch uses, stay awake for milliseconds; if another process wants their core as well, both lose most of their time
to waiting. Here an idle thread looks for work again and again for a moment, then offers its core to others between two
looks, and soon sleeps until it is woken. It never returns to Python and its lock.

Every Python thread that asks gets a pool of its own. There are pools on Linux, on the processors below.

Shapes: a post is the memory through which a worker and its leader exchange words, each on its own line of the cache.
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
SLEEP, WAKE = 128, 129  # the operations of that call, within one process
PAUSE = {"x86_64": ("x86.sse2.pause", ()), "aarch64": ("aarch64.hint", (1,))}  # LLVM's names, and their arguments
# How often a worker and a leader look before they sleep: first without a break, then after each offer of the core to
# others. The leader must not offer: if both are on one core, they would take turns there for good. A thread that sleeps
# is woken on a free core.
WORKER, LEADER = (500, 2000), (1500, 0)
FOREVER = 1 << 62

LINE = 8  # whole numbers in a line of the cache
TICKET, DONE, ASLEEP, AWAITED, WORK, JOB, NUMBER = range(0, 7 * LINE, LINE)  # the words of a post

Post = NDArray[np.int64]


class Threadpool:
    """The workers of one Python thread, its leader, which share its work."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._posts: list[Post] = []
        self._table = np.zeros(0, np.int64)  # the addresses of the posts
        self._lead = _lead()
        weakref.finalize(self, _dismiss, _dismissal(), self._posts, self.process).atexit = False

    def do(self, work: int, job: int, threads: int) -> None:
        """Call work(job, n) for every n below `threads`, all at the same time; `work` and `job` are addresses."""
        while len(self._table) < threads - 1:
            self._add_worker()
        self._lead(self._table.ctypes.data, threads - 1, work, job)

    def _add_worker(self) -> None:
        """Start one more worker. If no thread can be started, the pool stays as it was."""
        post = np.zeros(7 * LINE + LINE, np.int64)
        post = post[-post.ctypes.data % (8 * LINE) // 8 :]
        worker = threading.Thread(target=_run_worker, args=(_serve(), post), name="unroll pool", daemon=True)
        self._posts.append(post)  # before it starts, so that a worker is dismissed one day even if this is interrupted
        try:
            worker.start()
        except RuntimeError:
            del self._posts[-1]
            raise
        self._table = np.array([*self._table, post.ctypes.data], np.int64)


def current() -> Threadpool | None:
    """This thread's pool; None if this system has no pools."""
    if not available():
        return None
    if this_thread.pool is None or this_thread.pool.process != os.getpid():  # a forked process has only one thread
        this_thread.pool = Threadpool()
    return this_thread.pool


@cache
def available() -> bool:
    """Whether threads can wait in compiled code here."""
    return sys.platform == "linux" and platform.machine() in FUTEX


def _run_worker(serve: Callable[..., None], post: Post) -> None:
    serve(post.ctypes.data)


def _dismiss(dismissal: Callable[..., None], posts: list[Post], process: int) -> None:
    """Dismiss the workers of a pool that no thread has any more."""
    if os.getpid() == process:
        for post in posts:
            dismissal(post.ctypes.data)


def serve(code: Code, post: Value) -> None:
    """Write a worker's life: it serves ticket after ticket, until one has no work."""
    with code.loop(FOREVER) as n:
        _wait(code, post, TICKET, n, ASLEEP, WORKER)
        work, job, number = (code.load_index(post, code.number(word)) for word in (WORK, JOB, NUMBER))
        with code.builder.if_then(code.builder.icmp_unsigned("==", work.it, code.number(0).it)):
            code.builder.ret_void()
        _call(code, work, job, number)
        _notify(code, post, DONE, n + 1, AWAITED)


def dismissal(code: Code, post: Value) -> None:
    """Write a ticket without work."""
    _ticket(code, post, code.number(0), code.number(0), code.number(0))


def lead(code: Code, table: Value, workers: Value, work: Value, job: Value) -> None:
    """Write the leader's code: give each worker a ticket, do call 0, wait for all workers."""
    with code.loop(workers) as w:
        _ticket(code, code.pointer(code.load_index(table, w)), work, job, w + 1)
    _call(code, work, job, code.number(0))
    with code.loop(workers) as w:
        post = code.pointer(code.load_index(table, w))
        _wait(code, post, DONE, code.load_index(post, code.number(TICKET)) - 1, AWAITED, LEADER)


def _ticket(code: Code, post: Value, work: Value, job: Value, number: Value) -> None:
    for word, value in ((WORK, work), (JOB, job), (NUMBER, number)):
        code.builder.store(value.it, code.at_index(post, code.number(word)).it)
    _notify(code, post, TICKET, code.load_index(post, code.number(TICKET)) + 1, ASLEEP)


def _call(code: Code, work: Value, job: Value, number: Value) -> None:
    from llvmlite import ir

    kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 2)
    code.builder.call(code.builder.inttoptr(work.it, kind.as_pointer()), [job.it, number.it])


def _notify(code: Code, post: Value, word: int, value: Value, asleep: int) -> None:
    """Change a word that another thread waits for, and wake that thread if it sleeps."""
    address = code.at_index(post, code.number(word))
    _write(code, address, value)
    sleeps = _read(code, code.at_index(post, code.number(asleep)))
    with code.builder.if_then(code.builder.icmp_unsigned("!=", sleeps, code.number(0).it)):
        _system_call(code, address, WAKE, code.number(1))


def _wait(code: Code, post: Value, word: int, old: Value, asleep: int, patience: tuple[int, int]) -> None:
    """Wait until a word is no longer the old one."""
    addresses = (code.at_index(post, code.number(n)) for n in (word, asleep))
    code.call("wait", partial(_waiting, patience=patience), *addresses, old)


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
        # This thread writes `asleep` and then reads the word; the other writes the word and then reads `asleep`. So at
        # least one of them sees the other's write.
        _write(code, asleep, code.number(1))
        with builder.if_then(builder.icmp_unsigned("!=", _read(code, word), old.it)):
            _write(code, asleep, code.number(0))
            builder.ret_void()
        _system_call(code, word, SLEEP, old)


def _read(code: Code, address: Value) -> Any:
    return code.builder.load_atomic(address.it, "seq_cst", 8, typ=code.number(0).it.type)


def _write(code: Code, address: Value, value: Value) -> None:
    # llvmlite wants a typed pointer.
    builder, kind = code.builder, value.it.type
    typed = builder.inttoptr(builder.ptrtoint(address.it, kind), kind.as_pointer())
    builder.store_atomic(value.it, typed, "seq_cst", 8)


def _system_call(code: Code, word: Value, operation: int, value: Value) -> None:
    builder, futex = code.builder, FUTEX[platform.machine()]
    address = builder.ptrtoint(word.it, value.it.type)
    arguments = [code.number(futex).it, address, code.number(operation).it, value.it, code.number(0).it]
    builder.call(code.outside(address_of(ctypes.CDLL(None).syscall), len(arguments)), arguments)


def _pause(code: Code) -> None:
    """Do nothing, with the instruction that saves power while a core waits."""
    from llvmlite import ir

    name, hint = PAUSE[platform.machine()]
    module = code.builder.module
    small = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [small] * len(hint))
    function = module.globals.get(f"llvm.{name}") or ir.Function(module, kind, f"llvm.{name}")
    code.builder.call(function, [ir.Constant(small, x) for x in hint])


def address_of(function: Any) -> int:
    """The address of a function that ctypes knows."""
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
