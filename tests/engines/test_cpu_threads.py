"""Work in parts: every part is done, each thread's torch has one thread, and errors are raised."""

from __future__ import annotations

import threading

import pytest
import torch
from helpers import torch_threads

from unroll.engines.cpu import workers


def test_stretches_cover_everything_once_in_order() -> None:
    for n in (0, 1, 5, 64):
        for count in (1, 2, 3, 7):
            indices = [i for stretch in workers.divided(n, count) for i in range(stretch.start, stretch.stop)]
            assert indices == list(range(n))


def test_every_run_and_part_is_done_once_with_torch_at_one_thread_and_no_gradients() -> None:
    seen: list[tuple[int, int]] = []
    states: set[tuple[int, bool]] = set()
    threads: set[str] = set()
    together = threading.Barrier(3)

    def work(m: int, part: int) -> None:
        if m == 0:
            together.wait(10)  # passes only if the three parts run at the same time
        seen.append((m, part))
        threads.add(threading.current_thread().name)
        states.add((torch.get_num_threads(), torch.is_grad_enabled()))

    with torch_threads(3), torch.no_grad():
        workers.each_of(2, 3, work)
        assert torch.get_num_threads() == 3
    assert sorted(seen) == [(m, part) for m in range(2) for part in range(3)]
    assert states == {(1, False)}
    assert len(threads) >= 2


def test_the_number_of_parts_is_the_number_of_threads_that_torch_was_given() -> None:
    with torch_threads(2):
        with workers.single():
            assert torch.get_num_threads() == 1
            assert workers.count() == 2
        assert torch.get_num_threads() == workers.count() == 2


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_in_any_part_is_raised_and_the_next_work_is_done(failing: int) -> None:
    def work(part: int) -> None:
        if part == failing:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        workers.each(2, work)
    done: list[int] = []
    workers.each(2, done.append)
    assert sorted(done) == [0, 1]
