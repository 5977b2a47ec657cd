"""On the CPU every kernel equals the reference in float64, in every precision: see `kernel_cases.py`."""

from __future__ import annotations

import amx_in_vectors
import pytest
import torch
from helpers import CPU, every_cell, random_ids, random_tensor, torch_threads
from kernel_cases import UNCLIPPED, UNIT, biting, check, inputs, network, outcome

from unroll.engines import kernels
from unroll.engines.cpu import amx, bf16, compiled_direct_head, compiled_head, head_code, layer_code, packing
from unroll.model import cells
from unroll.model.dropout import Dropout
from unroll.model.head import LEAK


@pytest.mark.parametrize("clipping", [False, True], ids=["unclipped", "clipped"])
@pytest.mark.parametrize("layers", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
@every_cell
def test_every_kernel_equals_the_reference(cell: str, peepholes: str, layers: int, clipping: bool) -> None:
    B, H = 17, 48
    for T, M, V in ((1, 1, 7), (1, 5, 33), (7, 5, 85), (100, 1, 7)):
        net = network(cells.load(cell, peepholes), layers, M, H, V, UNCLIPPED, CPU)
        net, truth = biting(net, T, B, V) if clipping else (net, None)
        able = {("compiled", "bfloat16"), ("compiled", "float32"), ("stacked", "float32")}
        able |= {("host", "float32")} if cell == "lstm" else set()
        assert able <= check(net, T, B, V, truth)


@pytest.mark.parametrize(("cell", "peepholes"), [("lstm", "paper"), ("gru", "off"), ("rnn", "off")])
@pytest.mark.parametrize(
    ("H", "B"),
    [(100, 65), *(pytest.param(*shape, marks=pytest.mark.slow) for shape in ((128, 64), (40, 1), (33, 400)))],
)
def test_every_division_of_the_work_equals_the_reference(H: int, B: int, cell: str, peepholes: str) -> None:
    net = network(cells.load(cell, peepholes), 2, 2, H, 33, UNCLIPPED, CPU)
    for threads in (1, 2, 3):
        with torch_threads(threads):
            assert ("compiled", "bfloat16") in check(net, 9, B, 33)


def test_bfloat16_differs_from_float32_by_its_rounding() -> None:
    """Otherwise a kernel that did not round at all would pass for one that does."""
    net = network(cells.load("lstm", "paper"), 1, 1, 128, 33, UNCLIPPED, CPU)
    given = inputs(net, 20, 8, 33)
    exact, rounded = (outcome("compiled", net, name, given) for name in ("float32", "bfloat16"))
    for name in ("h", "d 0 W_h", "d 0 h0"):
        error = float((rounded[name] - exact[name]).norm() / exact[name].norm())
        assert UNIT["bfloat16"] / 16 < error, name


@pytest.mark.slow
def test_a_processor_without_bfloat16_computes_the_same_bits_as_one_with_vectors_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(amx, "available", lambda: False)
    compile_again(monkeypatch)
    net, results = network(cells.load("lstm", "paper"), 2, 1, 48, 33, UNCLIPPED, CPU), []
    for has in (bf16.rounds(), False):
        monkeypatch.setattr(bf16, "rounds", lambda has=has: has)
        monkeypatch.setattr(bf16, "multiplies", lambda has=has: has)
        # With few rows, the weights' gradients are added up elsewhere than with many.
        few, many = (outcome("compiled", net, "bfloat16", inputs(net, 9, rows, 33)) for rows in (5, 20))
        results.append([*few.values(), *many.values(), *head_outcome()])
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


# Each is compiled anew, which takes its time: the others run with the slow tests.
AROUND_AMX = [
    ("lstm", "paper", 5),
    ("gru", "off", 70),
    *(
        pytest.param(*variant, marks=pytest.mark.slow)
        for variant in (
            ("lstm", "lasagne", 32), ("lstm", "off", 70), ("gru", "off", 5), ("rnn", "off", 5), ("rnn", "off", 70),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("cell", "peepholes", "B"), AROUND_AMX)
def test_the_code_around_amx_equals_the_reference(
    cell: str, peepholes: str, B: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    amx_in_vectors.imitate(monkeypatch)
    compile_again(monkeypatch)
    net = network(cells.load(cell, peepholes), 2, 2, 40, 33, UNCLIPPED, CPU)
    assert ("compiled", "bfloat16") in check(net, 9, B, 33)


def test_the_head_by_amx_equals_the_head_without(monkeypatch: pytest.MonkeyPatch) -> None:
    amx_in_vectors.imitate(monkeypatch)
    compile_again(monkeypatch)
    by_amx = head_outcome()
    monkeypatch.setattr(amx, "available", lambda: False)
    for with_amx, without in zip(by_amx, head_outcome(), strict=True):
        assert (with_amx - without).norm() <= UNIT["bfloat16"] * without.norm()


def compile_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep no compiled code, neither from before nor for later."""
    kept = {layer_code: ("forward_for", "backward_for", "weights_for"), head_code: ("forward_for", "backward_for")}
    for module, names in (kept | {packing: ("_pack_for",)}).items():
        for name in names:
            monkeypatch.setattr(module, name, getattr(module, name).__wrapped__)


def head_outcome() -> list[torch.Tensor]:
    """The head of 70 rows in bfloat16, and its gradients."""
    shapes = ((70, 40), (40, 100), (100,), (100, 33), (33,))
    values = [random_tensor(1, *shape, seed=n).float().requires_grad_() for n, shape in enumerate(shapes)]
    nll = compiled_head.nll(*values, random_ids(1, 70, symbols=33), LEAK, in_bf16=True)
    return [nll.detach(), *torch.autograd.grad(nll.sum(), values)]


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_head_in_bfloat16_equals_float64(threads: int, drops: bool) -> None:
    """h and weights are exact in bfloat16, so that no unit changes its side by rounding alone. The bound is 6 of its
    roundings, for the intermediate results: x, and the gradients of the logits and of x."""
    for M, N, H, D, V in ((1, 1, 32, 64, 1), (2, 300, 64, 160, 85), (1, 65, 50, 100, 33)):
        shapes = {(N, H): 0.5, (H, D): 2 * H**-0.5, (D,): 0.02, (D, V): 2 * D**-0.5, (V,): 0.1}
        exact = [
            (random_tensor(M, *shape, seed=n) * scale).bfloat16().double().requires_grad_()
            for n, (shape, scale) in enumerate(shapes.items())
        ]
        single = [value.detach().float().requires_grad_() for value in exact]
        targets, d = random_ids(M, N, symbols=V), random_tensor(M, N, seed=9)
        rates = torch.full((M,), 0.5 if drops else 0.0)
        seeds = [(m + 1, 5) for m in range(M)]

        def dropout(dtype: torch.dtype, rates: torch.Tensor = rates, seeds: list = seeds) -> Dropout:
            return Dropout(rates.to(dtype), tuple(seeds), torch.tensor(seeds), torch.tensor(7), drops)

        with torch_threads(threads):
            truth = compiled_head.nll(*exact, targets, LEAK, dropout(torch.float64))
            nll = compiled_head.nll(*single, targets, LEAK, dropout(torch.float32), in_bf16=True)
            expected = [truth.detach(), *torch.autograd.grad(truth, exact, d)]
            got = [nll.detach(), *torch.autograd.grad(nll, single, d.float())]
        for result, true in zip(got, expected, strict=True):
            error = float((result.double() - true).norm() / true.norm().clamp(min=1e-9))
            assert error <= 6 * UNIT["bfloat16"], error


@pytest.mark.parametrize("drops", [False, True])
def test_the_head_without_a_dense_layer_in_bfloat16_equals_float64(drops: bool) -> None:
    """h and weights are exact in bfloat16. The bound is 3 of its roundings: of h under dropout, and of the gradients of
    logits."""
    for M, N, H, V in ((1, 1, 32, 1), (2, 300, 64, 85), (1, 65, 50, 33)):
        shapes = {(N, H): 0.5, (H, V): 2 * H**-0.5, (V,): 0.1}
        exact = [
            (random_tensor(M, *shape, seed=n) * scale).bfloat16().double().requires_grad_()
            for n, (shape, scale) in enumerate(shapes.items())
        ]
        single = [value.detach().float().requires_grad_() for value in exact]
        targets, d = random_ids(M, N, symbols=V), random_tensor(M, N, seed=9)
        seeds = [(m + 1, 5) for m in range(M)]
        got, expected = [], []
        for values, results, dtype in ((exact, expected, torch.float64), (single, got, torch.float32)):
            rates = torch.full((M,), 0.3 if drops else 0.0, dtype=dtype)
            dropout = Dropout(rates, tuple(seeds), torch.tensor(seeds), torch.tensor(7), drops)
            nll = compiled_direct_head.nll(*values, targets, dropout, in_bf16=dtype == torch.float32)
            results += [nll.detach(), *torch.autograd.grad(nll, values, d.to(dtype))]
        for result, true in zip(got, expected, strict=True):
            error = float((result.double() - true).norm() / true.norm().clamp(min=1e-9))
            assert error <= 3 * UNIT["bfloat16"], error


def test_kernels_that_would_not_round_refuse() -> None:
    net = network(cells.load("lstm", "paper"), 1, 1, 16, 7, UNCLIPPED, CPU)._replace(precision="bfloat16")
    refusing = [name for name in ("reference", "stacked", "host") if kernels.load(name).supports(net, CPU)]
    assert refusing == ["reference", "stacked", "host"]
    assert kernels.choose(net, CPU) == "compiled"
