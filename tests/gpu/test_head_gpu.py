"""On a CUDA device the head equals itself in float64: the likelihood of every target, and every gradient.

h, the weights and dropout's factors are exact in bfloat16, so that no unit changes its side of the leaky ReLU by
rounding alone. The intermediate results are rounded: x, the gradients of the logits, of x and of h. An error,
‖got − truth‖ / ‖truth‖, may be 6 of bfloat16's roundings.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from unroll.base import randomness
from unroll.engines.cuda import dropout_masks, hopper_head
from unroll.engines.cuda import head as cuda_head
from unroll.model.head import LEAK

CUDA = torch.device("cuda")
BOUND = {"bfloat16": 6 * 2.0**-9, "float32": 1e-5}
BATCH = 7


class Shape(NamedTuple):
    M: int
    N: int
    H: int
    D: int
    V: int


HOPPER = [  # what goes the way of engines/cuda/hopper_head.py
    Shape(2, 6400, 128, 1024, 85),  # three warpgroups a block, and rows beyond the last
    Shape(3, 6400, 128, 1024, 96),
    Shape(3, 5000, 128, 1024, 128),  # two
    Shape(66, 64, 128, 1024, 85),  # single-loss
    Shape(200, 64, 128, 64, 85),
    Shape(3, 64, 512, 1024, 85),
    Shape(2, 129, 384, 512, 33),
    Shape(3, 3000, 256, 1024, 128),
    Shape(3, 6400, 512, 1024, 85),  # d_h is a product of its own
    Shape(3, 6400, 512, 1024, 128),
    Shape(2, 77, 160, 192, 7),
    Shape(1, 1, 32, 64, 1),
]
OTHERS = [Shape(2, 200, 128, 1000, 85), Shape(2, 200, 130, 128, 85), Shape(2, 200, 128, 128, 300)]


def given(shape: Shape) -> dict[str, Tensor]:
    """Inputs of the size that training gives them, in float64."""
    draw = torch.Generator().manual_seed(sum(shape))
    M, N, H, D, V = shape

    def normal(*size: int, scale: float) -> Tensor:
        return (torch.randn(*size, generator=draw) * scale).bfloat16().double().to(CUDA)

    return {
        "h": normal(M, N, H, scale=0.5),
        "dense_W": normal(M, H, D, scale=2 * H**-0.5),
        "dense_b": normal(M, D, scale=0.02),
        "out_W": normal(M, D, V, scale=2 * D**-0.5),
        "out_b": normal(M, V, scale=0.1),
    }


def targets(shape: Shape) -> Tensor:
    draw = torch.Generator().manual_seed(1)
    return torch.randint(0, shape.V, (shape.M, shape.N), generator=draw).to(CUDA)


def upstream(shape: Shape) -> Tensor:
    draw = torch.Generator().manual_seed(2)
    return torch.randn(shape.M, shape.N, generator=draw).to(CUDA) / shape.N


def dropout(shape: Shape, drops: bool) -> dropout_masks.Dropout:
    """Runs of different rates, one of which is 0."""
    rates = [(0.0, 0.5, 0.75)[m % 3] if drops else 0.0 for m in range(shape.M)]
    keys = torch.tensor([[m + 1, 5] for m in range(shape.M)], dtype=torch.int32, device=CUDA)
    return dropout_masks.Dropout(torch.tensor(rates, device=CUDA), keys, torch.tensor(BATCH, device=CUDA), drops)


def mask(dropping: dropout_masks.Dropout, purpose: str, x: Tensor) -> Tensor:
    """What `base/randomness.py` lets through of x."""
    masks = []
    for rate, (low, high) in zip(dropping.rates_M.tolist(), dropping.keys_M2.tolist(), strict=True):
        words = randomness.words(low + (high << 32), purpose, BATCH, x[0].numel())
        kept = torch.from_numpy(words >= rate * 2.0**32).double() / (1.0 - rate)
        masks.append(kept.view(x[0].shape))
    return torch.stack(masks).to(CUDA)


def truth(values: dict[str, Tensor], ids: Tensor, dropping: dropout_masks.Dropout) -> Tensor:
    h, x_W, x_b, out_W, out_b = values.values()
    if dropping.any:
        h = h * mask(dropping, "dropout.dense", h)
    x = torch.nn.functional.leaky_relu(torch.bmm(h, x_W) + x_b.unsqueeze(1), LEAK)
    if dropping.any:
        x = x * mask(dropping, "dropout.out", x)
    logits = torch.bmm(x, out_W) + out_b.unsqueeze(1)
    return torch.logsumexp(logits, -1) - logits.gather(-1, ids.unsqueeze(-1)).squeeze(-1)


def leaves(values: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    return {name: value.to(dtype, copy=True).requires_grad_() for name, value in values.items()}


def outcome(nll: Tensor, parameters: dict[str, Tensor], d: Tensor) -> dict[str, Tensor]:
    gradients = torch.autograd.grad(nll, list(parameters.values()), d.to(nll.dtype))
    return {"nll": nll.detach()} | {f"d {name}": g for name, g in zip(parameters, gradients, strict=True)}


def poison() -> None:
    """Let memory that is not written be NaN: new tensors reuse the memory of this one."""
    torch.full((2**28,), torch.nan, device=CUDA)


def check(shape: Shape, precision: str, drops: bool) -> None:
    values, ids, d, dropping = given(shape), targets(shape), upstream(shape), dropout(shape, drops)
    exact = leaves(values, torch.float64)
    expected = outcome(truth(exact, ids, dropping), exact, d)
    got = leaves(values, torch.float32)
    poison()
    results = outcome(cuda_head.nll(*got.values(), ids, dropping, precision, LEAK), got, d)
    for name, value in results.items():
        error = float((value.double() - expected[name]).norm() / expected[name].norm().clamp(min=1e-9))
        assert error <= BOUND[precision], f"{name}: {error:.1e}"


def is_hopper() -> bool:
    return torch.cuda.get_device_capability()[0] == 9


def goes_the_new_way(shape: Shape, precision: str = "bfloat16") -> bool:
    values = given(shape)
    return hopper_head.why_not(values["h"], values["dense_W"], values["out_W"], precision) is None


@pytest.mark.parametrize("drops", [False, True], ids=["whole", "dropout"])
@pytest.mark.parametrize("shape", [*HOPPER, *OTHERS], ids=str)
def test_the_head_in_bfloat16_equals_float64(shape: Shape, drops: bool) -> None:
    assert goes_the_new_way(shape) == (is_hopper() and shape in HOPPER)
    check(shape, "bfloat16", drops)


@pytest.mark.parametrize("drops", [False, True], ids=["whole", "dropout"])
def test_the_head_in_float32_equals_float64(drops: bool) -> None:
    for shape in (HOPPER[4], *OTHERS):
        assert not goes_the_new_way(shape, "float32")
        check(shape, "float32", drops)


@pytest.mark.parametrize("shape", [HOPPER[0], HOPPER[8]], ids=str)
def test_the_head_gives_the_same_bits_again_and_in_a_recording(shape: Shape) -> None:
    ids, d, dropping, got = targets(shape), upstream(shape), dropout(shape, True), leaves(given(shape), torch.float32)

    def once() -> dict[str, Tensor]:
        return outcome(cuda_head.nll(*got.values(), ids, dropping, "bfloat16", LEAK), got, d)

    first, second = once(), once()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = once()
    graph.replay()
    with torch.no_grad():
        unread = cuda_head.nll(*got.values(), ids, dropping, "bfloat16", LEAK)
    assert torch.equal(unread, first["nll"])
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
        assert torch.equal(value, recorded[name]), name


def test_a_symbol_that_cannot_be_predicted_gets_no_gradient() -> None:
    shape = HOPPER[0]
    values, ids, dropping = given(shape), targets(shape) % (shape.V - 1), dropout(shape, False)
    values["out_b"][:, -1] = -torch.inf
    got = leaves(values, torch.float32)
    results = outcome(cuda_head.nll(*got.values(), ids, dropping, "bfloat16", LEAK), got, upstream(shape))
    assert all(bool(value.isfinite().all()) for value in results.values())
    assert not results["d out_W"][..., -1].any()
    assert not results["d out_b"][..., -1].any()


def test_h_may_be_a_part_of_a_longer_tensor() -> None:
    shape = HOPPER[0]
    values, ids, dropping = leaves(given(shape), torch.float32), targets(shape), dropout(shape, False)
    longer = torch.cat((values["h"][:, :64], values["h"]), 1).bfloat16()
    whole, part = (cuda_head.nll(h, *list(values.values())[1:], ids, dropping, "bfloat16", LEAK)
                   for h in (values["h"].bfloat16(), longer[:, 64:]))  # fmt: skip
    assert torch.equal(whole, part)
