"""The buffer pool: no memory is given out twice at a time, and little unused memory is kept."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from unroll.engines.cpu import buffer_pool
from unroll.engines.cpu.buffer_pool import take

SHAPE = (3, 5, mmap.PAGESIZE // 4)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer_pool, "_rooms", buffer_pool._Rooms())


def test_a_room_is_free_again_when_its_last_view_is_gone() -> None:
    tensor = take(SHAPE, torch.float32)
    address, view = tensor.data_ptr(), tensor[1:].transpose(1, 2)
    del tensor
    assert take(SHAPE, torch.float32).data_ptr() != address
    del view
    assert take(SHAPE, torch.float32).data_ptr() == address


def test_the_memory_of_a_tensor_that_autograd_keeps_is_not_given_out() -> None:
    x = take(SHAPE, torch.float64).fill_(2.0)
    weight = torch.ones((), dtype=torch.float64, requires_grad=True)
    loss = (x * weight).sum()
    del x
    take(SHAPE, torch.float64).fill_(9.0)
    loss.backward()
    assert weight.grad is not None
    assert weight.grad.item() == 2.0 * 3 * 5 * mmap.PAGESIZE // 4


def test_threads_that_take_at_once_get_different_rooms() -> None:
    def addresses(_: int) -> list[torch.Tensor]:
        return [take(SHAPE, torch.float32) for _ in range(20)]

    with ThreadPoolExecutor(4) as pool:
        taken = [tensor for tensors in pool.map(addresses, range(4)) for tensor in tensors]
    assert len({tensor.data_ptr() for tensor in taken}) == 80


def test_rooms_of_sizes_that_are_no_longer_taken_are_given_back() -> None:
    for n in range(1, 60):
        take((n * mmap.PAGESIZE,), torch.uint8)
    kept = sum(size * len(rooms) for size, rooms in buffer_pool._rooms._made.items())
    assert kept <= 2 * 60 * mmap.PAGESIZE


FORKED = """
import os, torch
from unroll.engines.cpu.buffer_pool import take
tensor = take((5000,), torch.float32).fill_(1.0)
if os.fork() == 0:
    tensor.fill_(5.0)
    os._exit(0)
os.wait()
assert (tensor == 1).all()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_after_a_fork_neither_process_sees_what_the_other_writes() -> None:
    assert subprocess.run([sys.executable, "-c", FORKED], check=False).returncode == 0


def test_nothing_needs_no_room() -> None:
    assert take((0, 3), torch.float32).shape == (0, 3)
    assert not buffer_pool._rooms._made
