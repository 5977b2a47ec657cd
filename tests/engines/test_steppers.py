"""Every CPU stepper gives the plain stepper's probabilities; its rows can be restarted, dropped, moved and copied."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import every_cell, every_plugin, random_model, tiny

from unroll.engines.cpu import builder
from unroll.engines.cpu.steppers import compiled, host
from unroll.engines.cpu.steppers.host import STEPPERS
from unroll.engines.torch import stepper as torch_stepper
from unroll.model import cells, steppers
from unroll.model.cells import lstm
from unroll.model.model import Model

K2, V = 6, 7
BOUNDS = {"float64": 1e-12, "float32": 1e-5}


def one_model(
    cell: str = "lstm", peepholes: str = "paper", layers: int = 1, precision: str = "float64", dense: int = 6
) -> Model:
    shape = {"cell": cell, "peepholes": peepholes, "layers": layers, "hidden": 9, "dense": dense}
    return random_model([tiny(k2=K2, precision=precision, **shape)], [V])


def softmax(logits_BV: np.ndarray) -> np.ndarray:
    return torch.softmax(torch.from_numpy(logits_BV.astype(np.float64)), -1).numpy()


def pair(model: Model, procedure: str, rows: int) -> tuple[steppers.Stepper, steppers.Stepper]:
    backend = compiled if builder.available() and procedure in compiled.STEPPERS else host
    both = model.engine.rows(model, K2, procedure, rows), torch_stepper.Rows(model, K2, procedure)
    assert type(both[0]) is backend.STEPPERS[procedure]
    for stepper in both:
        stepper.begin(rows)
    return both


def check_alike(fast: steppers.Stepper, truth: steppers.Stepper, bound: float) -> None:
    difference = np.abs(softmax(fast.logits()) - softmax(truth.logits())).max()
    assert difference < bound


@every_cell
@pytest.mark.parametrize("precision", BOUNDS)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("procedure", STEPPERS)
@pytest.mark.parametrize("made", [True, False], ids=["compiled", "host"])
def test_steps_give_the_plain_steppers_probabilities(
    made: bool, procedure: str, layers: int, precision: str, cell: str, peepholes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "available", lambda: made)
    fast, truth = pair(one_model(cell, peepholes, layers, precision), procedure, 3)
    for ids_B in np.random.default_rng(0).integers(V, size=(4 * K2, 3)):
        fast.read(ids_B)
        truth.read(ids_B)
        check_alike(fast, truth, BOUNDS[precision])


@pytest.mark.parametrize("precision", BOUNDS)
@pytest.mark.parametrize("procedure", STEPPERS)
@pytest.mark.parametrize("made", [True, False], ids=["compiled", "host"])
def test_steps_without_a_dense_layer_give_the_plain_steppers_probabilities(
    made: bool, procedure: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "available", lambda: made)
    for rows in (1, 3, 70):
        fast, truth = pair(one_model("lstm", "off", 2, precision, dense=0), procedure, rows)
        for ids_B in np.random.default_rng(0).integers(V, size=(2 * K2, rows)):
            fast.read(ids_B)
            truth.read(ids_B)
        check_alike(fast, truth, BOUNDS[precision])


@pytest.mark.parametrize("precision", BOUNDS)
@pytest.mark.parametrize("peepholes", ["paper", "lasagne", "off"])
@pytest.mark.parametrize("procedure", STEPPERS)
def test_one_compiled_pass_after_torchs_products_gives_the_plain_steppers_probabilities(
    procedure: str, peepholes: str, precision: str
) -> None:
    settings = {"peepholes": peepholes, "precision": precision, "layers": 2, "hidden": 32, "k2": K2}
    model = random_model([tiny(**settings)], [V])
    fast, truth = host.prepare(model, K2, procedure, 3), torch_stepper.Rows(model, K2, procedure)
    for stepper in (fast, truth):
        stepper.begin(3)
    for ids_B in np.random.default_rng(0).integers(V, size=(2 * K2, 3)):
        for stepper in (fast, truth):
            stepper.read(ids_B)
        check_alike(fast, truth, BOUNDS[precision])


@every_plugin("cells")
@pytest.mark.parametrize("procedure", STEPPERS)
@pytest.mark.parametrize("taken", [[2, 0], [1], [0, 0, 0], [2, 2, 1], [2, 1, 0]], ids=str)
def test_rows_can_be_restarted_dropped_moved_and_copied(procedure: str, taken: list[int], name: str) -> None:
    fast, truth = pair(one_model(name, layers=2), procedure, 3)
    generator = np.random.default_rng(1)

    def read(rows: int, times: int) -> None:
        for ids_B in generator.integers(V, size=(times, rows)):
            for stepper in (fast, truth):
                stepper.read(ids_B)
            check_alike(fast, truth, 1e-12)

    read(3, K2 - 2)
    for stepper in (fast, truth):
        stepper.restart([1])
    read(3, K2 + 3)
    for stepper in (fast, truth):
        stepper.take(taken)
    check_alike(fast, truth, 1e-12)
    read(len(taken), 2 * K2)


@every_plugin("cells")
@pytest.mark.parametrize("procedure", STEPPERS)
def test_one_row_may_become_many_and_many_one(procedure: str, name: str) -> None:
    fast, truth = (
        one_model(name).engine.rows(one_model(name), K2, procedure, 70),
        torch_stepper.Rows(one_model(name), K2, procedure),
    )
    for stepper in (fast, truth):
        stepper.begin(1)
        stepper.read(np.array([3]))
        stepper.take([0] * 70)
        stepper.read(np.arange(70) % V)
    check_alike(fast, truth, 1e-12)
    for stepper in (fast, truth):
        stepper.take([69])
        stepper.read(np.array([5]))
    check_alike(fast, truth, 1e-12)


def test_a_prepared_stepper_keeps_the_models_old_values() -> None:
    model = one_model()
    stepper = model.engine.rows(model, K2, "progressive", 1)
    stepper.begin(1)
    stepper.read(np.array([1]))
    before = stepper.logits().copy()
    for value in model.parameters.values():
        value.data.fill_(0.5)
    stepper.begin(1)
    stepper.read(np.array([1]))
    assert np.array_equal(stepper.logits(), before)


class UnknownCell(lstm.Cell.__base__):  # type: ignore[misc, name-defined]
    """A cell from a user's own file: h′ = tanh(pre_x − pre_h)."""

    GATES, STATES = 1, ("h",)

    def forward(self, pre_x, pre_h, state, extra, clip=cells.unclipped):
        h = torch.tanh(pre_x - pre_h)
        return (h,), (h,)

    def backward(self, d_state, saved, extra, clip):
        raise NotImplementedError


def test_a_cell_that_has_no_steps_of_its_own_is_sampled_through_its_forward() -> None:
    model = one_model("rnn", "off")
    model.cell = UnknownCell("off")
    assert not host.supports(model, "windowed")
    stepper = model.engine.rows(model, K2, "windowed", 2)
    assert isinstance(stepper, torch_stepper.Rows)
    stepper.begin(2)
    stepper.read(np.array([1, 2]))
    assert stepper.logits().shape == (2, V)


@pytest.mark.parametrize(("processor", "taken"), [("znver4", True), ("emeraldrapids", False)])
def test_one_core_takes_a_model_of_six_megabytes_if_it_reads_its_cache_fast(
    processor: str, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from llvmlite import binding

    monkeypatch.setattr(binding, "get_host_cpu_name", lambda: processor)
    monkeypatch.setattr(compiled, "_most", compiled._most.__wrapped__)
    model = random_model([tiny(hidden=512, dense=1024, precision="float32")], [V])
    assert compiled.supports(model, "progressive") is taken
    assert compiled.supports(model, "windowed")
