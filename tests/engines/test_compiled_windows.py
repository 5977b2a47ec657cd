"""Rolling windows as machine code: the same to the last bit for any division among threads, and optional."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import every_plugin, random_model, tiny, torch_threads

from unroll.engines.cpu import builder, threadpool
from unroll.engines.cpu.steppers import compiled_weights, compiled_windows, host_windows
from unroll.model.model import Model

K2, V = 70, 7


def model(layers: int = 1, precision: str = "float32", hidden: int = 40, dense: int = 60, **cell: str) -> Model:
    """A model; with many hidden and dense units, several threads read a row's head."""
    shape = {"layers": layers, "hidden": hidden, "dense": dense, **cell}
    return random_model([tiny(k2=K2, precision=precision, **shape)], [V], scale=0.1)


def logits(a_model: Model, rows: int, tokens: int = K2 + 20) -> np.ndarray:
    """The logits of rows after each token, while windows begin and after all have begun."""
    stepper = a_model.engine.rows(a_model, K2, "windowed", rows)
    assert isinstance(stepper, compiled_windows.Rolling)
    stepper.begin(rows)
    by_token = []
    for ids_B in np.random.default_rng(0).integers(V, size=(tokens, 3)):
        stepper.read(ids_B[:rows])
        by_token.append(stepper.logits().copy())
    return np.array(by_token)


@every_plugin("cells")
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(("hidden", "dense"), [(40, 60), (300, 1000)])
def test_any_number_of_threads_gives_the_same_bits(
    layers: int, precision: str, hidden: int, dense: int, name: str
) -> None:
    a_model = model(layers, precision, hidden, dense, cell=name)
    alone = logits(a_model, 1)
    for threads in (2, 3, 5):
        with torch_threads(threads):
            assert np.array_equal(logits(a_model, 1), alone)
            assert np.array_equal(logits(a_model, 3)[:, :1], alone)


@pytest.mark.parametrize("dense", [0, 60])
def test_threads_that_divide_a_single_rows_head_give_the_same_bits(dense: int, monkeypatch: pytest.MonkeyPatch) -> None:
    a_model = model(dense=dense, hidden=90)
    whole = logits(a_model, 1)
    monkeypatch.setattr(compiled_weights, "WIDE", 0)
    for threads in (1, 2, 3):
        with torch_threads(threads):
            assert np.array_equal(logits(a_model, 1), whole)


def test_threads_may_change_between_two_tokens() -> None:
    a_model = model()
    expected, stepper, by_token = logits(a_model, 1), a_model.engine.rows(a_model, K2, "windowed", 1), []
    stepper.begin(1)
    for n, ids_B in enumerate(np.random.default_rng(0).integers(V, size=(len(expected), 3))):
        with torch_threads(1 + n % 3):
            stepper.read(ids_B[:1])
            by_token.append(stepper.logits().copy())
    assert np.array_equal(by_token, expected)


def test_pythons_threads_give_the_same_bits_as_a_threadpool(monkeypatch: pytest.MonkeyPatch) -> None:
    a_model = model(2, hidden=300, dense=1000)
    with torch_threads(2):
        expected = logits(a_model, 2)
        monkeypatch.setattr(threadpool, "available", lambda: False)
        assert np.array_equal(logits(a_model, 2), expected)


@pytest.mark.parametrize("peepholes", ["paper", "lasagne", "off"])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_without_machine_code_torch_multiplies_the_windows(
    precision: str, peepholes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_model = model(2, precision, peepholes=peepholes)
    compiled = logits(a_model, 1)
    monkeypatch.setattr(builder, "available", lambda: False)
    stepper = a_model.engine.rows(a_model, K2, "windowed", 1)
    assert isinstance(stepper, host_windows.Rolling)
    stepper.begin(1)
    for ids_B, expected in zip(np.random.default_rng(0).integers(V, size=(len(compiled), 3)), compiled, strict=True):
        stepper.read(ids_B[:1])
        assert np.abs(stepper.logits() - expected).max() < (1e-12 if precision == "float64" else 1e-5)
