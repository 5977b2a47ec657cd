"""Compiled code computes the right numbers, for every size and every input."""

from __future__ import annotations

import itertools
import platform
from collections.abc import Callable

import pytest
import torch
from helpers import random_ids, random_tensor, torch_threads

from unroll.engines.cpu import (
    arithmetic,
    builder,
    compiled_direct_head,
    compiled_head,
    compiler,
    packing,
    products,
    threaded_head,
    transposed_products,
)
from unroll.engines.cpu.builder import Code, Value
from unroll.model import head
from unroll.model.head import LEAK

both = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
BLOCK = transposed_products.BLOCK
EPSILON = {torch.float32: 2.0**-23, torch.float64: 2.0**-52}


def applied(function: Callable[[Code, Value], Value], x: torch.Tensor) -> torch.Tensor:
    """Apply a pointwise function to a vector by compiled code."""

    def pointwise(code: Code, x: Value, out: Value, n: Value) -> None:
        with code.loop(n // code.lanes) as v:
            j = v * code.lanes
            code.store(function(code, code.load(code.at(x, j))), code.at(out, j))

    whole = packing.grown(x, 0, packing.padded(len(x), x.dtype))
    out = torch.empty_like(whole)
    compiler.make(pointwise, 8 * x.dtype.itemsize, "aan")(whole.data_ptr(), out.data_ptr(), len(whole))
    return out[: len(x)]


def value_of(function: Callable[[Code, Value], arithmetic.Fraction]) -> Callable[[Code, Value], Value]:
    """A fraction's value by a division that is shared with two others."""
    return lambda code, x: arithmetic.quotients(
        code, function(code, x), arithmetic.sigmoid(code, x), function(code, x)
    )[0]


def numbers(dtype: torch.dtype, most: float) -> torch.Tensor:
    size = torch.logspace(-12, 0, 5000, dtype=torch.float64) * most
    return torch.cat((-size, torch.zeros(1), size)).to(dtype)


@both
def test_tanh_and_the_sigmoid_are_within_a_few_units_in_the_last_place(dtype: torch.dtype) -> None:
    for function, truth in ((arithmetic.tanh, torch.tanh), (arithmetic.sigmoid, torch.sigmoid)):
        x = numbers(dtype, 100.0)
        expected = truth(x.double())
        error = (applied(value_of(function), x).double() - expected).abs()
        # e to a large number carries that number's own rounding; far out on the left the sigmoid stays above 0.
        allowed = (6 + x.double().abs()) * EPSILON[dtype] * expected.abs() + 1e-12
        assert (error <= allowed).all(), (error / expected.abs()).nan_to_num().max()


@both
def test_a_nan_stays_a_nan_and_infinities_reach_the_bounds(dtype: torch.dtype) -> None:
    x = torch.tensor([torch.nan, torch.inf, -torch.inf], dtype=dtype)
    for function, truth in ((arithmetic.tanh, torch.tanh), (arithmetic.sigmoid, torch.sigmoid)):
        got = applied(value_of(function), x)
        assert got[0].isnan()
        assert torch.allclose(got[1:], truth(x[1:]), rtol=0, atol=1e-12)


@both
def test_an_exponential_of_minus_infinity_is_exactly_0(dtype: torch.dtype) -> None:
    assert applied(arithmetic.exp, torch.tensor([-torch.inf, -1e5, 0.0], dtype=dtype)).tolist() == [0.0, 0.0, 1.0]


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="others are as fast with subnormal numbers")
@both
def test_subnormal_numbers_are_0_in_compiled_code_and_only_there(dtype: torch.dtype) -> None:
    least = torch.finfo(dtype).smallest_normal
    x = torch.tensor([least, least / 2, -least / 2, 3 * least], dtype=dtype)
    assert applied(lambda _code, x: x * 0.5, x).tolist() == [0.0, 0.0, 0.0, 1.5 * least]
    assert applied(lambda _code, x: x + x, x).tolist() == [2 * least, 0.0, 0.0, 6 * least]
    # The thread computes on as it did before.
    assert (x * 0.5).tolist() == [least / 2, least / 4, -least / 4, 1.5 * least]


@both
def test_a_rows_product_has_the_same_bits_among_any_number_of_rows(dtype: torch.dtype) -> None:
    def product(code: Code, out: Value, x: Value, W: Value, rows: Value, K: Value, N: Value) -> None:
        products.product(code, out, products.Left(x, K), W, rows, K, N, products.Begin(out, N))

    multiply = compiler.make(product, 8 * dtype.itemsize, "aaannn")
    N = 3 * packing.panel(dtype)
    x, base = random_tensor(29, 37, seed=1).to(dtype), random_tensor(29, N, seed=3).to(dtype)
    W = random_tensor(37, N, seed=2).to(dtype)
    packed = packing.packed(W.unsqueeze(0))
    results = []
    for rows in (1, 2, 3, 4, 7, 8, 12, 29):
        out = base[:rows].clone()
        multiply(out.data_ptr(), x.data_ptr(), packed.data_ptr(), rows, 37, N)
        results.append(out)
    expected = (base.double() + x.double() @ W.double()).to(dtype)
    assert torch.allclose(results[-1], expected, rtol=0, atol=200 * EPSILON[dtype])
    for out in results:
        assert torch.equal(out, results[-1][: len(out)])


@both
@pytest.mark.parametrize("threads", [1, 3])
def test_packed_panels_follow_each_other_and_transposing_while_packing_is_transposing_first(
    threads: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "ONE_THREAD", 0)
    width = packing.panel(dtype)
    W = random_tensor(2, 3 * width, 5 * width, seed=1).to(dtype)
    with torch_threads(threads):
        straight, transposed = packing.packed(W), packing.packed(W, transposed=True)
    assert torch.equal(straight, W.unflatten(2, (5, width)).transpose(1, 2))
    assert torch.equal(transposed, W.transpose(1, 2).unflatten(2, (3, width)).transpose(1, 2))


@both
@pytest.mark.parametrize("width", [16, 32, 64])
def test_a_transposed_product_takes_any_rows_at_any_steps_whatever_the_width_of_vectors(
    width: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "vector_bytes", lambda: width)

    def product(code: Code, out: Value, x: Value, y: Value, *rest: Value) -> None:
        rows, steps, apart, K, N, first, columns = rest
        terms = transposed_products.Terms(rows, steps, apart)
        transposed_products.add_transposed_product(code, out, x, y, terms, K, N, first, columns)

    add = compiler.make(product, 8 * dtype.itemsize, "aaannnnnnn")
    panel = builder.VECTORS * width // dtype.itemsize
    for count, (rows, steps, apart) in itertools.product((1, 3, 9), ((1, 1, 1), (5, 3, 7), (BLOCK, 1, BLOCK))):
        K, N = count * panel, 3 * panel
        spaced_N = transposed_products.spaced(N, panel // 2)
        x, y, base = (
            random_tensor(*shape, seed=n).to(dtype)
            for n, shape in enumerate(((steps, apart, K), (steps, apart, N), (K, spaced_N)))
        )
        out = base.clone()
        add(out.data_ptr(), x.data_ptr(), y.data_ptr(), rows, steps, apart, K, N, panel, 2 * panel)
        terms = (each[:, :rows].flatten(0, 1).double() for each in (x, y))
        expected = base.clone()
        # The first panel is not among the columns to do.
        expected[:, panel:N] += torch.einsum("rk,rn->kn", *terms).to(dtype)[:, panel:]
        assert torch.allclose(out, expected, rtol=0, atol=400 * EPSILON[dtype])


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_compiled_head_equals_the_plain_one_and_leaves_padding_at_exactly_0(threads: int) -> None:
    for M, N, H, D, V in itertools.product((1, 2), (1, 5, 300), (5, 16), (7, 40), (16,)):
        values = [
            random_tensor(M, *shape, seed=n, grad=True) for n, shape in enumerate([(N, H), (H, D), (D,), (D, V), (V,)])
        ]
        with torch.no_grad():
            values[-1][:, -3:] = -torch.inf
        targets, d = random_ids(M, N, symbols=V - 3), random_tensor(M, N, seed=9)
        with torch_threads(threads):
            plain = threaded_head.nll(*values, targets)
            compiled = compiled_head.nll(*values, targets, LEAK)
            gradients = torch.autograd.grad(compiled, values, d)
            truth = torch.autograd.grad(plain, values, d)
        assert torch.allclose(compiled, plain, rtol=0, atol=1e-12)
        for got, expected in zip(gradients, truth, strict=True):
            assert torch.allclose(got, expected, rtol=0, atol=1e-11)
    assert (got[:, -3:] == 0).all()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_compiled_head_without_a_dense_layer_equals_the_plain_one(threads: int) -> None:
    for M, N, H, V in itertools.product((1, 2), (1, 5, 300), (5, 16, 40), (7, 16, 85)):
        values = [random_tensor(M, *shape, seed=n, grad=True) for n, shape in enumerate([(N, H), (H, V), (V,)])]
        with torch.no_grad():
            values[-1][:, -3:] = -torch.inf
        targets, d = random_ids(M, N, symbols=V - 3), random_tensor(M, N, seed=9)
        h, W, b = values
        plain = head.nll(head.Head(head.Affine(W, b), None).logits(h, "float64", torch.bmm), targets)
        with torch_threads(threads):
            compiled = compiled_direct_head.nll(*values, targets)
            gradients = torch.autograd.grad(compiled, values, d)
        truth = torch.autograd.grad(plain, values, d)
        assert torch.allclose(compiled, plain, rtol=0, atol=1e-12)
        for got, expected in zip(gradients, truth, strict=True):
            assert torch.allclose(got, expected, rtol=0, atol=1e-11)
        assert (gradients[1][..., -3:] == 0).all()
        assert (gradients[2][:, -3:] == 0).all()
