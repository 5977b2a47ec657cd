"""A team makes every call once, whoever its threads are."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from unroll import crew
from unroll.machine_code import Code, Value
from unroll.making_code import make
from unroll.team import Team

ROWS = 40


def add(code: Code, place: Value, times: Value) -> None:
    """1 to a vector, so many times."""
    with code.loop(times):
        code.store(code.load(place) + code.constant(1.0), place)


@cache
def adding() -> Callable[..., None]:
    return make(add, 64, "an")


@pytest.fixture(params=["a crew's", "Python's"])
def whose(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "Python's":
        monkeypatch.setattr(crew, "available", lambda: False)


def check_done(threads: int, calls: int) -> None:
    found = np.zeros((calls, 8))
    table = np.array([(row.ctypes.data, n + 1) for n, row in enumerate(found)], np.int64)
    Team(adding()).do(table, threads)
    assert found[:, 0].tolist() == list(range(1, calls + 1))


@pytest.mark.usefixtures("whose")
@pytest.mark.parametrize("calls", [1, 2, 7, ROWS])
@pytest.mark.parametrize("threads", [1, 2, 3, 50])
def test_every_call_is_made_once_by_any_number_of_threads(threads: int, calls: int) -> None:
    check_done(threads, calls)


@pytest.mark.usefixtures("whose")
def test_calls_of_one_thread_are_made_in_their_order() -> None:
    # Calls of a thread double what the one before left and add 1; any other order gives another number.
    def step(code: Code, place: Value, more: Value) -> None:
        code.store(code.load(place) * 2.0 + code.constant(1.0), place)
        with code.loop(more):
            code.store(code.load(place) + code.constant(1.0), place)

    found = np.zeros((2, 8))
    table = np.array([(found[n % 2].ctypes.data, n) for n in range(10)], np.int64)
    Team(make(step, 64, "an")).do(table, 2)
    for thread in range(2):
        expected = 0
        for n in range(thread, 10, 2):
            expected = 2 * expected + 1 + n
        assert found[thread, 0] == expected


def workers() -> int:
    return sum(thread.name == "unroll crew" for thread in threading.enumerate())


@pytest.mark.skipif(not crew.available(), reason="this system has no crews")
def test_every_thread_has_a_crew_of_its_own_which_goes_when_the_thread_does() -> None:
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


@pytest.mark.skipif(not crew.available(), reason="this system has no crews")
def test_nothing_is_lost_between_awake_and_asleep() -> None:
    """Work comes at every moment of a worker's going to sleep, and shares end at every moment of the leader's."""
    found = np.zeros((3, 8))
    for n in range(1, 600):
        shares = [1, (n * 37) % 4000, (n * 101) % 9000]
        before = found[:, 0].copy()
        Team(adding()).do(np.array([(row.ctypes.data, k) for row, k in zip(found, shares, strict=True)], np.int64), 3)
        assert (found[:, 0] - before).tolist() == shares
        time.sleep((n % 40) * 2e-5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_process_that_forked_has_its_own_threads() -> None:
    code = "import os, torch; from test_team import check_done; check_done(2, 5); child = os.fork()\n"
    code += "check_done(2, 5)\nif child: assert os.waitpid(child, 0)[1] == 0"
    settings = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", code], env=settings, check=True, timeout=60)
