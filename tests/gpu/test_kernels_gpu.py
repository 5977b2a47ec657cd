"""On a CUDA device every kernel equals the reference in float64: see `kernel_cases.py`."""

from __future__ import annotations

import itertools
from functools import partial

import kernel_cases
import pytest
import torch
from helpers import CELL_VARIANTS
from kernel_cases import UNCLIPPED, able, biting, check, inputs, outcome

from unroll.engines import kernels
from unroll.model import cells

CUDA = torch.device("cuda")
network = partial(kernel_cases.network, device=CUDA)


@pytest.mark.parametrize("clipping", [False, True], ids=["unclipped", "clipped"])
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize(("cell", "peepholes"), CELL_VARIANTS)
def test_every_kernel_equals_the_reference(cell: str, peepholes: str, layers: int, clipping: bool) -> None:
    B, H = 17, 48
    for (T, M), V in zip(itertools.product((1, 7, 100), (1, 5, 20)), itertools.cycle((7, 33, 85)), strict=False):
        net = network(cells.load(cell, peepholes), layers, M, H, V, UNCLIPPED)
        net, truth = biting(net, T, B, V) if clipping else (net, None)
        assert ("stacked", "float32") in check(net, T, B, V, truth)


SIZES = [(128, 64, 1), (128, 64, 40), (256, 130, 5), (384, 64, 3), (512, 64, 1), (512, 64, 3), (512, 64, 20)]
SIZES += [(512, 1, 5), (600, 8, 2), (100, 64, 2)]


@pytest.mark.parametrize(("H", "B", "M"), SIZES)
@pytest.mark.parametrize(("cell", "peepholes"), [("lstm", "paper"), ("lstm", "lasagne"), ("gru", "off")])
def test_every_division_of_the_work_equals_the_reference(cell: str, peepholes: str, H: int, B: int, M: int) -> None:
    pairs = check(network(cells.load(cell, peepholes), 1, M, H, 96, UNCLIPPED), 9, B, 96)
    if H % 16 == 0 and H <= 512 and torch.cuda.get_device_capability()[0] == 9:
        assert ("persistent", "bfloat16") in pairs
    assert {("fused", name) for name in ("float32", "tf32", "bfloat16")} <= pairs


@pytest.mark.parametrize(("H", "B", "M"), [(48, 17, 3), (128, 64, 40), (512, 64, 1), (512, 64, 20), (512, 1, 5)])
@pytest.mark.parametrize(("cell", "peepholes"), [("lstm", "paper"), ("lstm", "off"), ("gru", "off")])
def test_a_first_state_that_all_rows_share_has_the_sum_of_their_gradients(
    cell: str, peepholes: str, H: int, B: int, M: int
) -> None:
    net = network(cells.load(cell, peepholes), 2, M, H, 33, UNCLIPPED)
    ids, first, at_M, d_h = inputs(net, 9, B, 33)
    once = tuple(tuple(s[:, :1] for s in state) for state in first)
    each = tuple(tuple(s.expand(-1, B, -1) for s in state) for state in once)
    for kernel, precision in able(net):
        if not getattr(kernels.load(kernel), "ONE_ROW", False):
            continue
        shared, expected = (outcome(kernel, net, precision, (ids, given, at_M, d_h)) for given in (once, each))
        for name, value in expected.items():
            if name.endswith("0"):
                value = value.sum(1, keepdim=True)
                assert (shared[name] - value).norm() <= 1e-5 * value.norm(), name
            else:
                assert torch.equal(shared[name], value), name


def test_a_kernel_says_in_words_what_it_cannot_run() -> None:
    net = network(cells.load("lstm", "paper"), 1, 1, 1024, 7, UNCLIPPED)
    words = kernels.load("persistent").supports(net._replace(precision="bfloat16"), CUDA)
    assert "512" in str(words)
    assert "bfloat16" in (kernels.load("persistent").supports(net, CUDA) or "")
