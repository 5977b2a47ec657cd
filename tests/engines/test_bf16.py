"""Compiled products of bfloat16: their rounding and the order of their sums, on every kind of processor."""

from __future__ import annotations

import amx_in_vectors
import pytest
import torch
from helpers import random_tensor

from unroll.engines.cpu import amx, bf16, builder, compiler, packing, products, transposed_products
from unroll.engines.cpu.builder import Code, Value

EPSILON, BLOCK = 2.0**-23, transposed_products.BLOCK
KINDS = {
    "this processor": None,
    "its vectors": builder.vector_bytes(),
    "others, wide": 64,
    "half as wide": 32,
    "the smallest vectors": 16,
    "AMX": 64,
}
every_processor = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def processor(kind: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """The bytes of a vector, on this processor, this one without AMX, one without bfloat16, or one with AMX."""
    width = KINDS[kind]
    if width is not None:
        has_bf16 = kind == "its vectors" and bf16.rounds()
        monkeypatch.setattr(amx, "available", lambda: False)
        monkeypatch.setattr(builder, "vector_bytes", lambda: width)
        monkeypatch.setattr(packing, "vector_bytes", lambda: width)
        monkeypatch.setattr(bf16, "rounds", lambda: has_bf16)
        monkeypatch.setattr(bf16, "multiplies", lambda: has_bf16)
        monkeypatch.setattr(packing, "_pack_for", packing._pack_for.__wrapped__)
    if kind == "AMX":
        amx_in_vectors.imitate(monkeypatch)
    return width or builder.vector_bytes()


def rounded(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().double()


def words(first: torch.Tensor, second: torch.Tensor, join) -> torch.Tensor:
    """Join two vectors to a vector of words, and read each word as two numbers, the lower first."""

    def joined(code: Code, x: Value, y: Value, out: Value) -> None:
        code.store(join(code, code.load(x), code.load(y)), out)

    out = torch.empty_like(first)
    compiler.make(joined, 32, "aaa", True)(first.data_ptr(), second.data_ptr(), out.data_ptr())
    return out.view(torch.bfloat16)


@every_processor
def test_numbers_are_rounded_to_the_nearest_and_halfway_to_the_even_one(processor: int) -> None:
    lanes = processor // 4
    halfway = torch.tensor([1 + 2.0**-8, 1 + 3 * 2.0**-8, -1 - 2.0**-8, 3.0000001, 1e38, -0.0, 1e-30, 255.5])
    x, y = halfway.repeat(4)[:lanes].clone(), random_tensor(lanes, seed=1).float()
    tiny = torch.tensor([0x007FFFFF, 0x00000001]).to(torch.int32).view(torch.float32).repeat(lanes // 2)
    assert (words(tiny, tiny, bf16.in_order) == 0).all(), "a subnormal number becomes 0"
    assert torch.equal(words(x, y, bf16.in_order), torch.cat((x, y)).bfloat16())
    assert torch.equal(words(x, y, bf16.paired), torch.stack((x, y), 1).flatten().bfloat16())


@every_processor
def test_a_nan_and_an_infinity_stay_what_they_are(processor: int) -> None:
    # The last NaN's bits would become those of −0 if they were rounded like a number's.
    odd = torch.tensor([torch.nan, torch.inf, -torch.inf, torch.nan])
    odd.view(torch.int32)[3] = -1
    x = odd.repeat(processor // 16).clone()
    joined = words(x, x, bf16.paired).float()
    assert torch.equal(joined.isnan(), x.repeat_interleave(2).isnan())
    assert torch.equal(joined[2:6], x[1:3].repeat_interleave(2))


@every_processor
def test_a_word_adds_the_upper_product_and_then_the_lower_each_rounded_once(processor: int) -> None:
    def dots(code: Code, a: Value, b: Value, sums: Value, n: Value) -> None:
        with code.loop(n // code.lanes) as v:
            x, y, sum_at = (code.at(each, v * code.lanes) for each in (a, b, sums))
            code.store(bf16.dot(code, code.load(x), code.load(y), code.load(sum_at)), sum_at)

    n = 1 << 12
    size = torch.exp(random_tensor(n, 2, seed=4) * 4)
    a, b = (random_tensor(n, 2, seed=1).bfloat16(), (random_tensor(n, 2, seed=2) * size).bfloat16())
    sums = random_tensor(n, seed=3).float()
    products = a.double() * b.double()
    upper = (sums.double() + products[:, 1]).float()
    expected = (upper.double() + products[:, 0]).float()
    compiler.make(dots, 32, "aaan", True)(a.data_ptr(), b.data_ptr(), sums.data_ptr(), n)
    assert torch.equal(sums, expected)


@every_processor
def test_a_product_is_that_of_rounded_factors_and_a_row_has_its_bits_among_any_rows(processor: int) -> None:
    def product(code: Code, out: Value, x: Value, W: Value, room: Value, rows: Value, K: Value, N: Value) -> None:
        left = products.left_side(code, x, rows, K, room)
        products.product(code, out, left, W, rows, K, N, products.Begin(out, N))

    multiply = compiler.make(product, 32, "aaaannn", True)
    panel = builder.VECTORS * processor // 4
    K, N = 3 * panel, 3 * panel
    x, base, W = (random_tensor(*shape, seed=n).float() for n, shape in enumerate(((70, K), (70, N), (K, N))))
    expected = base.double() + rounded(x) @ rounded(W)
    for packed in (
        packing.packed(W.unsqueeze(0), in_bf16=True),
        packing.packed(W.t().unsqueeze(0), True, in_bf16=True),
    ):
        results = []
        for rows in (1, 2, 3, 4, 7, 8, 12, 29, 32, 33, 70):
            out, room = base[:rows].clone(), torch.empty(products.room_for(rows, K, True))
            addresses = (tensor.data_ptr() for tensor in (out, x, packed, room))
            multiply(*addresses, rows, K, N)
            results.append(out)
        assert torch.allclose(results[-1].double(), expected, rtol=0, atol=4 * K * EPSILON)
        assert all(torch.equal(out, results[-1][: len(out)]) for out in results)


@every_processor
@pytest.mark.parametrize(
    ("rows", "steps", "apart"), [(1, 1, 1), (5, 3, 7), (2, 4, 2), (1, BLOCK, 1), (2 * BLOCK, 1, 400)]
)
def test_a_transposed_product_is_that_of_rounded_factors_with_any_rows_at_any_steps(
    processor: int, rows: int, steps: int, apart: int
) -> None:
    def product(code: Code, out: Value, x: Value, y: Value, *rest: Value) -> None:
        rows, steps, apart, K, N, first, columns = rest
        terms = transposed_products.Terms(rows, steps, apart)
        transposed_products.add_transposed_product(code, out, x, y, terms, K, N, first, columns)

    add = compiler.make(product, 32, "aaannnnnnn", True)
    panel = builder.VECTORS * processor // 4
    for count in (1, 3, 9):
        K, N = count * panel, 3 * panel
        shapes = ((steps, apart, K), (steps, apart, N), (K, transposed_products.spaced(N, processor // 4)))
        x, y, base = (random_tensor(*shape, seed=n).float() for n, shape in enumerate(shapes))
        out = base.clone()
        add(out.data_ptr(), x.data_ptr(), y.data_ptr(), rows, steps, apart, K, N, panel, 2 * panel)
        total = torch.einsum("rk,rn->kn", *(rounded(each[:, :rows].flatten(0, 1)) for each in (x, y)))
        expected = base.double()
        expected[:, panel:N] += total[:, panel:]  # the first panel is not among the columns to do
        assert torch.allclose(out.double(), expected, rtol=0, atol=16 * rows * steps * EPSILON)
