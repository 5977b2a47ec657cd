"""Every kernel equals the reference: outputs, the states after step at_M, and the gradient of every input."""

from __future__ import annotations

import importlib
import itertools
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from helpers import CELL_VARIANTS, CPU, KNOWN, check_close, random_ids, random_tensor, torch_threads

from unroll.engines import kernels
from unroll.engines.cpu import cells as cpu_cells
from unroll.model import cells
from unroll.model.network import Layer, Network, States

TOLERANCE = 1e-10
B, H, V = 3, 5, 7
UNCLIPPED = 1e9


class Watched:
    """A cell that notes every gradient that arrives at a gate's sum, before the clip."""

    def __init__(self, cell: cells.RecurrentCell) -> None:
        self.cell, self.seen = cell, []

    def forward(self, pre_x, pre_h, state, extra, clip):
        def noted(sums: torch.Tensor) -> torch.Tensor:
            clipped = clip(sums)
            clipped.register_hook(lambda gradient: self.seen.append(gradient.abs().flatten()))
            return clipped

        return self.cell.forward(pre_x, pre_h, state, extra, noted)


class Ran(NamedTuple):
    h_MTBH: torch.Tensor
    at: States
    gradients: dict[str, torch.Tensor | None]


def gradients(output: torch.Tensor, inputs: list[torch.Tensor], arriving: torch.Tensor) -> list[torch.Tensor]:
    """As the engines ask for them: 0 where the output does not depend on an input."""
    found = torch.autograd.grad(output, inputs, arriving, allow_unused=True)
    return [torch.zeros_like(x) if d is None else d for x, d in zip(inputs, found, strict=True)]


def network(cell: cells.RecurrentCell, layers: int, M: int, clip: float) -> Network:
    built = []
    for layer in range(layers):
        shapes = {"W_x": (H if layer else V, cell.GATES * H), "W_h": (H, cell.GATES * H), "b": (cell.GATES * H,)}
        shapes |= cell.extra_shapes(H)
        own = {
            name: random_tensor(M, *shape, seed=100 * layer + n, scale=0.6, grad=True)
            for n, (name, shape) in enumerate(shapes.items())
        }
        built.append(Layer(own.pop("W_x"), own.pop("W_h"), own.pop("b"), own))
    return Network(cell, clip, tuple(built))


def run(kernel: str, net: Network, M: int, T: int) -> Ran:
    """Run a kernel and differentiate a random combination of its outputs."""
    first = tuple(
        tuple(random_tensor(M, B, H, seed=50 + 10 * layer + n, grad=True) for n in range(len(states)))
        for layer, states in enumerate([net.cell.STATES] * len(net.layers))
    )
    at_M = torch.tensor([1 + (3 * m + 1) % T for m in range(M)])
    h_MTBH, at = kernels.load(kernel).run(net, random_ids(M, T, B, symbols=V), first, at_M)
    inputs = {}
    for n, (layer, state) in enumerate(zip(net.layers, first, strict=True)):
        own = {"W_x": layer.W_x, "W_h": layer.W_h, "b": layer.b, **layer.extra}
        own |= {f"{name}0": s for name, s in zip(net.cell.STATES, state, strict=True)}
        inputs |= {f"layer {n} {name}": value for name, value in own.items()}
    arriving = random_tensor(M, T, B, H, seed=3)
    found = torch.autograd.grad(h_MTBH, list(inputs.values()), arriving, allow_unused=True)
    return Ran(h_MTBH, at, dict(zip(inputs, found, strict=True)))


def clipped_share(cell: cells.RecurrentCell, layers: int, M: int, T: int, clip: float) -> tuple[float, float]:
    """The share of gradients at the gates' sums above the clip, and their median."""
    watched = Watched(cell)
    watched.STATES = cell.STATES
    run("reference", network(cell, layers, M, clip)._replace(cell=watched), M, T)
    seen = torch.cat(watched.seen)
    return float((seen > clip).double().mean()), float(seen.median())


def check_equal(kernel: str, net: Network, M: int, T: int) -> None:
    got, truth = run(kernel, net, M, T), run("reference", net, M, T)
    where = f"{len(net.layers)} layers, M = {M}, T = {T}, clip {net.clip:.3g}:"
    check_close(got.h_MTBH, truth.h_MTBH, TOLERANCE, f"{where} h")
    for layer, (mine, true) in enumerate(zip(got.at, truth.at, strict=True)):
        for name, a, b in zip(net.cell.STATES, mine, true, strict=True):
            assert not a.requires_grad, "the states after step at_M are values"
            check_close(a, b, TOLERANCE, f"{where} {name} of layer {layer} after at_M")
    for name, gradient in truth.gradients.items():
        mine = got.gradients[name]
        if gradient is None:  # a cell may leave out what the caller computed, as minimal ones leave out h·W_h
            assert mine is None or not mine.any(), name
            continue
        assert gradient.abs().max() > 0, name
        check_close(mine, gradient, TOLERANCE, f"{where} gradient of {name}")


@pytest.mark.parametrize("clipping", [False, True], ids=["unclipped", "clipped"])
@pytest.mark.parametrize(("kernel", "cell", "peepholes"), [known for known in KNOWN if known[0] != "reference"])
def test_a_kernel_equals_the_reference(kernel: str, cell: str, peepholes: str, clipping: bool) -> None:
    one = cells.load(cell, peepholes)
    for layers, M, T in itertools.product((1, 2, 3), (1, 3), (1, 7)):
        clip = clipped_share(one, layers, M, T, UNCLIPPED)[1] if clipping else UNCLIPPED
        if clipping:
            assert 0.1 <= clipped_share(one, layers, M, T, clip)[0] <= 0.9
        net = network(one, layers, M, clip)
        assert kernels.load(kernel).supports(net, CPU) is None
        check_equal(kernel, net, M, T)


@pytest.mark.parametrize(("kernel", "cell", "peepholes"), KNOWN)
def test_a_text_run_in_two_pieces_with_the_state_between_equals_one_pass(
    kernel: str, cell: str, peepholes: str
) -> None:
    T, cut, M = 9, 4, 2
    net = network(cells.load(cell, peepholes), 2, M, UNCLIPPED)
    ids = random_ids(M, T, B, symbols=V)
    first = tuple(tuple(torch.zeros(M, B, H).double() for _ in net.cell.STATES) for _ in net.layers)
    kernel_run = kernels.load(kernel).run
    whole, at_cut = kernel_run(net, ids, first, torch.tensor([cut] * M))
    rest, _ = kernel_run(net, ids[:, cut:], at_cut, torch.tensor([1] * M))
    check_close(rest, whole[:, cut:], 1e-12)


OF_THE_CPU = [known for known in KNOWN if known[0] in ("compiled", "host")]


@pytest.mark.parametrize(("kernel", "cell", "peepholes"), OF_THE_CPU)
def test_a_cpu_kernel_equals_the_reference_with_its_rows_divided_among_threads(
    kernel: str, cell: str, peepholes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "B", 6)
    for threads, M in itertools.product((2, 3, 4), (1, 2)):
        with torch_threads(threads):
            check_equal(kernel, network(cells.load(cell, peepholes), 2, M, 0.5), M, 7)


@pytest.mark.parametrize(("rows", "T", "hidden"), [(33, 17, 5), (300, 3, 5), (16, 40, 50)])
@pytest.mark.parametrize(("cell", "peepholes"), [("lstm", "paper"), ("gru", "off"), ("rnn", "off")])
def test_the_compiled_kernel_equals_the_reference_with_any_number_of_rows_in_a_block(
    rows: int, T: int, hidden: int, cell: str, peepholes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads of many rows add up shares of the weights' gradients, in blocks of steps or of rows."""
    if cell == "rnn" and hidden > 5:
        T = 8  # without gates such weights are chaos: every rounding doubles at each step
    monkeypatch.setattr(sys.modules[__name__], "B", rows)
    monkeypatch.setattr(sys.modules[__name__], "H", hidden)
    for threads, M in ((1, 1), (2, 2)):
        with torch_threads(threads):
            check_equal("compiled", network(cells.load(cell, peepholes), 2, M, 0.5), M, T)


@pytest.mark.parametrize(("kernel", "cell", "peepholes"), OF_THE_CPU)
def test_a_cpu_kernels_batch_is_not_disturbed_by_another_before_its_backward_pass(
    kernel: str, cell: str, peepholes: str
) -> None:
    """Buffers are used again, so two forward passes in a row must not share them."""
    net = network(cells.load(cell, peepholes), 2, 1, UNCLIPPED)
    first = tuple(tuple(random_tensor(1, B, H, seed=n) for n in range(len(net.cell.STATES))) for _ in net.layers)
    weights = [w for layer in net.layers for w in (layer.W_x, layer.W_h)]

    def forward(seed: int) -> torch.Tensor:
        ids = random_ids(1, 7, B, symbols=V, seed=seed)
        return kernels.load(kernel).run(net, ids, first, torch.tensor([1]))[0].sum()

    alone = torch.autograd.grad(forward(0), weights)
    one, other = forward(0), forward(1)
    torch.autograd.grad(other, weights)
    for got, expected in zip(torch.autograd.grad(one, weights), alone, strict=True):
        assert torch.equal(got, expected)


def test_all_kernels_of_the_cpu_know_every_cell_but_one_that_knows_every_lstm() -> None:
    for kernel in ("reference", "stacked"):
        assert {known[1:] for known in KNOWN if known[0] == kernel} == set(CELL_VARIANTS)
    with_code = {one for one in CELL_VARIANTS if cpu_cells.of(cells.load(*one))}
    assert {known[1:] for known in KNOWN if known[0] == "compiled"} == with_code >= {("gru", "off"), ("rnn", "off")}
    assert {known[1:] for known in KNOWN if known[0] == "host"} == {one for one in CELL_VARIANTS if one[0] == "lstm"}


def test_a_cells_machine_code_is_found_by_its_file_and_a_cell_from_elsewhere_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "two_words.py").write_text("class Step:\n    of = staticmethod(lambda cell: 'two words')\n")
    monkeypatch.setattr(cpu_cells, "__path__", [*cpu_cells.__path__, str(tmp_path)])
    importlib.invalidate_caches()

    def code_of(module: str) -> object:
        return cpu_cells.of(type("Cell", (), {"__module__": module})())

    assert code_of("unroll.model.cells.two_words") == "two words"
    assert code_of("unroll.model.cells.three") is None
    assert code_of("own.gru") is None
    assert type(code_of("unroll.model.cells.gru")).__module__ == "unroll.engines.cpu.cells.gru"


def test_an_unknown_kernel_is_answered_with_the_known_ones() -> None:
    with pytest.raises(Exception, match=r"compiled, fused, host, persistent.*Did you mean stacked"):
        kernels.load("stackd")


@pytest.mark.parametrize(("kernel", "cell", "peepholes"), KNOWN)
def test_the_last_steps_alone_have_the_bits_of_a_slice_and_its_gradients(
    kernel: str, cell: str, peepholes: str
) -> None:
    M, T = 2, 7
    for layers, K in itertools.product((1, 2), (1, 3, 7)):
        net = network(cells.load(cell, peepholes), layers, M, UNCLIPPED)
        first = tuple(tuple(random_tensor(M, B, H, seed=n) for n in range(len(net.cell.STATES))) for _ in net.layers)
        own, ids, at_M = kernels.load(kernel), random_ids(M, T, B, symbols=V), torch.tensor([2, T])
        weights = [w for layer in net.layers for w in (layer.W_x, layer.W_h, layer.b)]
        d = random_tensor(M, K, B, H, seed=4)
        h_MKBH, after = kernels.run_last(own, net, ids, first, at_M, K)
        h_MTBH, after_all = own.run(net, ids, first, at_M)
        assert torch.equal(h_MKBH, h_MTBH[:, -K:])
        assert all(
            torch.equal(*pair) for pairs in zip(after, after_all, strict=True) for pair in zip(*pairs, strict=True)
        )
        last, sliced = gradients(h_MKBH, weights, d), gradients(h_MTBH[:, -K:], weights, d)
        assert all(torch.equal(a, b) for a, b in zip(last, sliced, strict=True))


@pytest.mark.parametrize(("kernel", "cell", "peepholes"), KNOWN)
def test_a_first_state_that_all_rows_share_may_be_given_once(kernel: str, cell: str, peepholes: str) -> None:
    M, T = 2, 7
    net = network(cells.load(cell, peepholes), 2, M, UNCLIPPED)
    states = range(len(net.cell.STATES))
    once = tuple(tuple(random_tensor(M, 1, H, seed=n, grad=True) for n in states) for _ in net.layers)
    each = tuple(tuple(s.expand(-1, B, -1) for s in state) for state in once)
    own, ids, at_M, d = kernels.load(kernel), random_ids(M, T, B, symbols=V), torch.tensor([2, T]), []
    for first in (once, each):
        h_MTBH, _ = kernels.run_last(own, net, ids, first, at_M, T)
        inputs = [s for state in once for s in state]
        d.append((h_MTBH, *torch.autograd.grad(h_MTBH, inputs, random_tensor(M, T, B, H, seed=4))))
    assert all(torch.equal(*pair) for pair in zip(*d, strict=True))
