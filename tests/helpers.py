"""Tiny experiments, corpora and models that many tests share, and the comparisons made between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings

from unroll import Corpus, Experiment, Scheme
from unroll.base import plugins
from unroll.engines import devices, kernels
from unroll.engines.choice import engine_of
from unroll.experiment.decoding import Decoding
from unroll.model import cells
from unroll.model.initial_values import parameter_shapes
from unroll.model.model import Model
from unroll.sampling.streams import Stream
from unroll.training.learner import Learner

CPU = torch.device("cpu")
torch.set_num_threads(1)
# A busy machine is no fault of the code under test.
settings.register_profile("unhurried", deadline=None, max_examples=60)
settings.load_profile("unhurried")


def _variants(cell: str) -> list[tuple[str, str]]:
    """A cell with each choice of peepholes, if that choice changes its parameters."""
    with_peepholes = cells.load(cell, "paper").extra_shapes(1) != cells.load(cell, "off").extra_shapes(1)
    return [(cell, peepholes) for peepholes in (("paper", "lasagne", "off") if with_peepholes else ("off",))]


CELL_VARIANTS = [variant for cell in plugins.names("cells") for variant in _variants(cell)]
every_cell = pytest.mark.parametrize(("cell", "peepholes"), CELL_VARIANTS)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch have this many threads within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def on_the_cpu(kernel: str, cell: str, peepholes: str) -> bool:
    """Whether a kernel runs a cell here; those for GPUs are held to the reference in tests/gpu."""
    outline = devices.outline(tiny(cell=cell, peepholes=peepholes))
    return kernels.load(kernel).supports(outline, CPU) is None


# They start a cluster, or a process for each job: their rules take a minute.
SLOW_PLUGINS = {("launchers", "ray"), ("launchers", "slurm")}


def marks(family: str, name: str) -> list[pytest.MarkDecorator]:
    """What marks the tests of a plug-in."""
    return [pytest.mark.slow] if (family, name) in SLOW_PLUGINS else []


def every_plugin(family: str) -> pytest.MarkDecorator:
    """Run a test for every file of a plug-in folder: a new file is tested without an edit."""
    names = [pytest.param(name, marks=marks(family, name)) for name in plugins.names(family)]
    return pytest.mark.parametrize("name", names)


def tiny(**changes: Any) -> Experiment:
    """An experiment whose steps take a millisecond; the changes may include fields of the scheme."""
    scheme_fields = {k: changes.pop(k) for k in list(changes) if k in Scheme.__dataclass_fields__}
    scheme = Scheme(**{"k1": 3, "k2": 5} | scheme_fields)
    small = {"hidden": 5, "dense": 6, "rows": 3, "batches": 5, "precision": "float64", "device": "cpu"}
    return Experiment(**{"scheme": scheme} | small | changes)


def tiny_corpus(seed: int = 0, symbols: int = 7, tokens: int = 300) -> Corpus:
    """A random text in which every symbol occurs."""
    generator = np.random.default_rng(seed)
    ids = np.concatenate((np.arange(symbols), generator.integers(symbols, size=tokens - symbols)))
    return Corpus.from_text("".join(chr(97 + i) for i in ids))


def random_ids(*shape: int, symbols: int = 7, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(symbols, size=shape))


def random_tensor(*shape: int, seed: int, scale: float = 1.0, grad: bool = False) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(0, scale, shape)).requires_grad_(grad)


def random_model(
    experiments: Sequence[Experiment], vocabularies: Sequence[int], kernel: str = "reference", scale: float = 0.6
) -> Model:
    """A model whose values are random throughout, first states and biases too."""
    values = []
    for experiment, V in zip(experiments, vocabularies, strict=True):
        generator = np.random.default_rng(experiment.seed + 1)
        shapes = parameter_shapes(experiment, cells.load(experiment.cell, experiment.peepholes), V)
        values.append({name: generator.normal(0, scale, shape) for name, shape in shapes.items()})
    return Model.stacked(experiments, vocabularies, values, engine_of(CPU, kernel))


def snapshot(learner: Learner, m: int) -> dict[str, torch.Tensor]:
    """A copy of a run's snapshot: the learner's own may share memory with tensors that change later."""
    return {name: value.clone() for name, value in learner.snapshot(m).items()}


def relative_error(got: torch.Tensor | np.ndarray, expected: torch.Tensor | np.ndarray) -> float:
    """The largest difference, relative to the largest expected element."""
    a, b = (np.asarray(x.detach() if isinstance(x, torch.Tensor) else x, np.float64) for x in (got, expected))
    assert a.shape == b.shape, f"shapes {a.shape} and {b.shape}"
    return float(np.abs(a - b).max(initial=0.0) / max(np.abs(b).max(initial=0.0), 1e-3))


def check_close(got: Any, expected: Any, tolerance: float, what: str = "") -> None:
    error = relative_error(got, expected)
    assert error <= tolerance, f"{what} off by {error:.2e} of its largest element"


def check_all_close(
    got: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], tolerance: float, what: str = ""
) -> None:
    assert got.keys() == expected.keys()
    for name in expected:
        check_close(got[name], expected[name], tolerance, f"{what} {name}")


def check_identical(got: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    """Check that tensors are equal bit for bit."""
    assert got.keys() == expected.keys()
    assert [name for name in expected if not torch.equal(got[name], expected[name])] == []


# Every kernel with every cell that it knows, on the CPU.
KNOWN = [
    (kernel, *variant)
    for kernel in plugins.names("kernels")
    for variant in CELL_VARIANTS
    if on_the_cpu(kernel, *variant)
]
every_kernel = pytest.mark.parametrize(("kernel", "cell", "peepholes"), KNOWN)


def unlike_streams(count: int, decodings: Sequence[Decoding], symbols: int, k2: int, longest: int) -> list[Stream]:
    """Different prompts, lengths of prompts, lengths, controls and seeds."""
    generator = np.random.default_rng(7)
    return [
        Stream(
            generator.integers(symbols, size=generator.integers(1, 2 * k2 + 2)),
            int(generator.integers(1, longest)),
            decodings[n % len(decodings)],
            int(generator.integers(2**62)),
        )
        for n in range(count)
    ]
