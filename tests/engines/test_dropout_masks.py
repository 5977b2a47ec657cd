"""Dropout by machine code: the run's seed decides every factor, and the head's gradients equal the plain head's."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch
from helpers import random_ids, random_model, random_tensor, tiny, torch_threads
from torch import Tensor

from unroll.base import randomness
from unroll.engines.cpu import builder, dropout_masks
from unroll.model.dropout import Dropout
from unroll.model.model import Model

RUNS = [(1, 0.25), (2**40 + 7, 0.0), (2**63 - 1, 0.999), (3, 1e-9), (2**32, 0.5)]
V = 7


@pytest.fixture(params=[16, 32, 64], ids=lambda width: f"{width} bytes")
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Vectors of this width, which LLVM makes from those of the processor."""
    for module in (builder, dropout_masks):
        monkeypatch.setattr(module, "vector_bytes", lambda: request.param)
    dropout_masks._factors_for.cache_clear()
    yield request.param
    dropout_masks._factors_for.cache_clear()


@pytest.mark.usefixtures("width")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_element_is_dropped_by_its_own_word(dtype: torch.dtype) -> None:
    rates = torch.tensor([rate for _, rate in RUNS], dtype=dtype)
    words_M = tuple(randomness.seed_words(seed) for seed, _ in RUNS)
    dropout = Dropout(rates, words_M, torch.tensor(words_M).to(torch.int32), torch.tensor(12345), drops=True)
    for threads, (N, H), purpose in itertools.product(
        (1, 3), ((1, 1), (6, 7), (33, 64)), ("dropout.dense", "dropout.out")
    ):
        with torch_threads(threads):
            factors = dropout_masks.factors(dropout, purpose, N, H)
        for m, (seed, _) in enumerate(RUNS):
            words = torch.from_numpy(randomness.words(seed, purpose, 12345, N * H)).view(N, H)
            kept = words >= rates[m].double() * 2.0**32
            assert torch.equal(factors[m], kept / (1 - rates[m]))
        assert torch.equal(dropout.dropped(torch.ones_like(factors), purpose), factors)


def scored(model: Model, threads: int = 1) -> tuple[Tensor, list[Tensor]]:
    """The loss of every target, and the gradients of h and of the head's parameters."""
    K, B, H = 5, 30, model.experiments[0].hidden
    h = torch.stack([random_tensor(K, B, H, seed=e.seed) for e in model.experiments]).requires_grad_()
    of_head = [value for name, value in model.parameters.items() if name.startswith(("dense.", "out."))]
    values = [h, *(value.requires_grad_() for value in of_head)]
    targets = torch.stack([random_ids(K, B, symbols=V, seed=e.seed) for e in model.experiments])
    with torch_threads(threads):
        nll = model._nll_of(h, targets, torch.tensor(9))
        d = torch.stack([random_tensor(K, B, seed=e.seed + 50) for e in model.experiments])
        return nll, list(torch.autograd.grad(nll, values, d))


def model(kernel: str, runs: tuple[int, ...] = (0, 1, 2), dense: int = 40) -> Model:
    rates = (0.25, 0.0, 0.6)
    return random_model([tiny(seed=n, dropout=rates[n], hidden=9, dense=dense) for n in runs], [V] * len(runs), kernel)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dense", [0, 6, 64])
def test_the_compiled_head_drops_as_the_plain_one_and_gives_its_gradients(dense: int, threads: int) -> None:
    (truth, expected), (nll, gradients) = (
        scored(model("reference", dense=dense)),
        scored(model("compiled", dense=dense), threads),
    )
    assert torch.allclose(nll, truth, rtol=0, atol=1e-12)
    for got, right in zip(gradients, expected, strict=True):
        assert torch.allclose(got, right, rtol=0, atol=1e-11)


def test_a_run_with_dropout_is_the_same_alone_and_in_a_fleet() -> None:
    nll, gradients = scored(model("compiled"))
    for n in range(3):
        alone, gradients_alone = scored(model("compiled", (n,)))
        assert torch.equal(alone[0], nll[n])
        for got, together in zip(gradients_alone, gradients, strict=True):
            assert torch.equal(got[0], together[n])


def test_memory_that_is_used_again_changes_no_later_batch() -> None:
    first, again = scored(model("compiled")), scored(model("compiled"))
    assert torch.equal(first[0], again[0])
    for a, b in zip(first[1], again[1], strict=True):
        assert torch.equal(a, b)
