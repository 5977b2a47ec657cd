"""The buffer pool: no memory is given out twice at a time, and little unused memory is kept."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from helpers import CPU, random_ids, tiny

from unroll.engines.choice import engine_of
from unroll.engines.cpu import buffer_pool
from unroll.engines.cpu.buffer_pool import take
from unroll.model.model import Model

SHAPE = (3, 5, mmap.PAGESIZE // 4)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer_pool, "_pool", buffer_pool._Pool())


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
    kept = buffer_pool._pool.bytes()
    assert kept <= 2 * 60 * mmap.PAGESIZE


def test_a_kernel_keeps_an_object_for_the_next_batch_until_memory_is_given_back() -> None:
    first = buffer_pool.keep(1000, "views", list)
    assert buffer_pool.keep(1000, "views", list) is not first
    address = id(first)
    del first
    assert id(buffer_pool.keep(1000, "views", list)) == address
    assert buffer_pool._pool.bytes() == 2000
    buffer_pool.give_back()
    assert buffer_pool._pool.bytes() == 0


@pytest.mark.parametrize("reads", [True, False], ids=["evaluation", "training"])
def test_the_host_kernel_keeps_one_layers_buffers_for_the_next_batch_and_gives_them_back(reads: bool) -> None:
    model = Model.initial([tiny()], [7], engine_of(CPU, "host"))
    ids_MTB, at_M = random_ids(1, 6, 3), torch.tensor([6])
    for _ in range(3):
        with torch.set_grad_enabled(not reads):
            h_MTBH, _ = model.engine.recurrence(model.network, ids_MTB, model.first_state(3), at_M)
        if not reads:
            h_MTBH.sum().backward()
    (held,) = [size for (size, kind), made in buffer_pool._pool._made.items() if kind is not None for _ in made]
    assert held > 0
    buffer_pool.give_back()
    assert buffer_pool._pool.bytes() == 0


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
    assert not buffer_pool._pool._made
