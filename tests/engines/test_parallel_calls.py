"""Threads make every call once, whether they are a threadpool's or Python's."""

from __future__ import annotations

import gc
import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from helpers import CPU, check_identical, snapshot, tiny, tiny_corpus, torch_threads

from unroll.engines.choice import engine_of
from unroll.engines.cpu import threadpool
from unroll.engines.cpu.builder import Code, Value
from unroll.engines.cpu.compiler import make
from unroll.engines.cpu.parallel_calls import ready
from unroll.training.learner import Learner

ROWS = 40


def add(code: Code, address: Value, times: Value) -> None:
    """Add 1 to a vector, `times` times."""
    with code.loop(times):
        code.store(code.load(address) + code.constant(1.0), address)


@cache
def adding() -> Callable[..., None]:
    return make(add, 64, "an")


@pytest.fixture(params=["a threadpool's", "Python's"])
def threads_of(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "Python's":
        monkeypatch.setattr(threadpool, "available", lambda: False)


def check_done(threads: int, calls: int) -> None:
    sums = np.zeros((calls, 8))
    table = np.array([(row.ctypes.data, n + 1) for n, row in enumerate(sums)], np.int64).reshape(calls, 2)
    ready(adding(), table, threads)()
    assert sums[:, 0].tolist() == list(range(1, calls + 1))


@pytest.mark.usefixtures("threads_of")
@pytest.mark.parametrize("calls", [1, 2, 7, ROWS])
@pytest.mark.parametrize("threads", [1, 2, 3, 50])
def test_every_call_is_made_once_by_any_number_of_threads(threads: int, calls: int) -> None:
    check_done(threads, calls)


@pytest.mark.usefixtures("threads_of")
def test_calls_of_one_thread_are_made_in_their_order() -> None:
    # Each call of a thread doubles the number and adds 1; any other order gives another number.
    def step(code: Code, address: Value, times: Value) -> None:
        code.store(code.load(address) * 2.0 + code.constant(1.0), address)
        with code.loop(times):
            code.store(code.load(address) + code.constant(1.0), address)

    numbers = np.zeros((2, 8))
    table = np.array([(numbers[n % 2].ctypes.data, n) for n in range(10)], np.int64)
    ready(make(step, 64, "an"), table, 2)()
    for thread in range(2):
        expected = 0
        for n in range(thread, 10, 2):
            expected = 2 * expected + 1 + n
        assert numbers[thread, 0] == expected


def workers() -> int:
    return sum(thread.name == "unroll pool" for thread in threading.enumerate())


@pytest.mark.skipif(not threadpool.available(), reason="this system has no pools")
def test_every_thread_has_its_own_pool_which_ends_with_the_thread() -> None:
    before, wrong = workers(), []

    def ask() -> None:
        try:
            for _ in range(50):
                check_done(3, 7)
        except AssertionError as error:
            wrong.append(error)

    asking = [threading.Thread(target=ask) for _ in range(4)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert not wrong
    until = time.monotonic() + 20
    while workers() > before and time.monotonic() < until:
        time.sleep(0.01)
    assert workers() == before


def check_nothing_lost() -> None:
    """Work begins and ends at every moment of a worker's, and of the leader's, way to sleep."""
    sums = np.zeros((3, 8))
    for n in range(1, 600):
        counts = [1, (n * 37) % 4000, (n * 101) % 9000]
        before = sums[:, 0].copy()
        calls = np.array([(row.ctypes.data, k) for row, k in zip(sums, counts, strict=True)], np.int64)
        ready(adding(), calls, 3)()
        assert (sums[:, 0] - before).tolist() == counts
        time.sleep((n % 40) * 2e-5)


def check_pool_after_a_failed_start(start: Callable[[threading.Thread], None]) -> None:
    """The second worker cannot be started; later calls need as many threads as there are, and then more."""
    began = []

    def begin(thread: threading.Thread) -> None:
        began.append(thread)
        if len(began) == 2:
            raise RuntimeError("can't start new thread")
        start(thread)

    threading.Thread.start = begin  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="new thread"):
        check_done(3, 7)
    for threads in (2, 3, 5):
        check_done(threads, 7)
    assert len(began) == 5  # the four that work, and the one that failed


def check_first_training(threads: int) -> None:
    """Several of Python's threads need the same code at once, before it is compiled."""
    ready, snapshots = threading.Barrier(threads), []

    def train() -> None:
        with torch_threads(2):
            learner = Learner([tiny()], [tiny_corpus()], engine_of(CPU, "compiled"))
            ready.wait()
            for _ in range(5):
                learner.step()
                gc.collect()
            snapshots.append(snapshot(learner, 0))

    training = [threading.Thread(target=train) for _ in range(threads)]
    for thread in training:
        thread.start()
    for thread in training:
        thread.join()
    for other in snapshots[1:]:
        check_identical(other, snapshots[0])
    assert len(snapshots) == threads


def check_fork() -> None:
    """A forked process has its own threads, and need not compile their code again."""
    check_done(2, 5)
    child = os.fork()
    check_done(2, 5)
    if child:
        assert os.waitpid(child, 0)[1] == 0


def check_fork_in_training() -> None:
    """Both go on from the same recorded step, to the same bits."""
    reading, writing = os.pipe()
    with torch_threads(2):
        learner = Learner([tiny()], [tiny_corpus()], engine_of(CPU, "compiled"))
        learner.step()
        child = os.fork()
        learner.step()
    digest = hashlib.sha256(b"".join(value.numpy().tobytes() for value in snapshot(learner, 0).values())).digest()
    if not child:
        os.write(writing, digest)
        return
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(reading, len(digest)) == digest


@pytest.mark.skipif(not threadpool.available(), reason="this system has no pools")
@pytest.mark.parametrize(
    "check",
    [
        "check_nothing_lost()",
        "check_pool_after_a_failed_start(threading.Thread.start)",
        "check_first_training(4)",
        "check_fork()",
        "check_fork_in_training()",
    ],
)
def test_pools_work_in_a_process_that_would_hang_or_crash_if_they_did_not(check: str) -> None:
    settings = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    code = f"import threading, torch; from test_parallel_calls import *; {check}"
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", code]
    subprocess.run(command, env=settings, check=True, timeout=120)


@pytest.mark.usefixtures("threads_of")
def test_threads_without_calls_make_none() -> None:
    check_done(3, 0)
