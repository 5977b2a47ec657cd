"""A model's initial values, its dropout, and its padded logits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers import (
    CPU,
    check_close,
    check_identical,
    every_cell,
    every_kernel,
    random_ids,
    random_model,
    random_tensor,
    tiny,
)
from hypothesis import given
from hypothesis import strategies as st

from unroll import Experiment
from unroll.engines.choice import engine_of
from unroll.model import cells
from unroll.model.initial_values import initial_parameters
from unroll.model.model import Model

V = 11


def initial(experiment: Experiment, vocabulary: int = V) -> dict[str, np.ndarray]:
    return initial_parameters(experiment, cells.load(experiment.cell, experiment.peepholes), vocabulary)


@every_cell
@pytest.mark.parametrize("hidden", [5, 16])
def test_each_gates_matrices_are_orthogonal_with_gain_1(cell: str, peepholes: str, hidden: int) -> None:
    values = initial(tiny(cell=cell, peepholes=peepholes, hidden=hidden, layers=2))
    gates = cells.load(cell, peepholes).GATES
    for name in ("layers.0.W_x", "layers.0.W_h", "layers.1.W_x", "layers.1.W_h"):
        blocks = np.split(values[name], gates, axis=1)
        for block in blocks:
            rows, columns = block.shape
            square = block @ block.T if rows < columns else block.T @ block
            assert np.abs(square - np.eye(len(square))).max() < 1e-12
        for a in range(gates):
            assert not any(np.allclose(blocks[a], blocks[b]) for b in range(a)), "gates are drawn separately"


def test_dense_layers_are_glorot_uniform() -> None:
    values = initial(tiny(hidden=40, dense=60), vocabulary=50)
    for name, shape in {"dense.W": (40, 60), "out.W": (60, 50)}.items():
        limit = math.sqrt(6 / sum(shape))
        assert values[name].shape == shape
        assert np.abs(values[name]).max() <= limit
        assert np.abs(values[name]).max() > 0.99 * limit
        assert values[name].std() == pytest.approx(limit / math.sqrt(3), rel=0.05)


def test_peepholes_are_normal_with_deviation_a_tenth() -> None:
    values = np.concatenate([initial(tiny(hidden=20, seed=s))["layers.0.w_c"].ravel() for s in range(100)])
    assert abs(values.mean()) < 4 * 0.1 / math.sqrt(len(values))
    assert values.std() == pytest.approx(0.1, rel=4 / math.sqrt(2 * len(values)))


@every_cell
def test_biases_and_first_states_start_at_0_but_for_the_forget_bias(cell: str, peepholes: str) -> None:
    values = initial(tiny(cell=cell, peepholes=peepholes, hidden=4, forget_bias=5.0))
    for name in ("dense.b", "out.b", "layers.0.h0"):
        assert (values[name] == 0).all()
    forget = values["layers.0.b"].reshape(-1, 4)
    assert forget.sum(1).tolist() == ([0, 20, 0, 0] if cell == "lstm" else [0] * len(forget))


@given(
    st.sampled_from(["equal", "last", "linear"]),
    st.sampled_from(["learned", "carried"]),
    st.integers(1, 9),
    st.integers(1, 9),
    st.floats(0, 0.9),
)
def test_the_same_seed_starts_from_the_same_values_whatever_the_scheme(
    loss: str, state: str, k1: int, k2: int, dropout: float
) -> None:
    plain = initial(tiny(seed=3))
    other = initial(tiny(seed=3, loss=loss, state=state, k1=k1, k2=k2, dropout=dropout, optimiser="rmsprop", rows=7))
    assert all(np.array_equal(plain[name], other[name]) for name in plain)


def test_every_seed_starts_from_other_values() -> None:
    a, b = initial(tiny(seed=1)), initial(tiny(seed=2))
    for name in ("layers.0.W_x", "layers.0.W_h", "layers.0.w_c", "dense.W", "out.W"):
        assert (a[name] != b[name]).all(), name


def test_a_fleet_starts_each_run_from_its_own_values_and_pads_with_0() -> None:
    runs, sizes = [tiny(seed=s) for s in range(3)], [11, 16, 13]
    together = Model.initial(runs, sizes, engine_of(CPU, "stacked"))
    for m, (run, size) in enumerate(zip(runs, sizes, strict=True)):
        alone = Model.initial([run], [size], engine_of(CPU, "stacked"))
        check_identical(together.values(m), alone.values(0))
        assert {k: v.tolist() for k, v in alone.values(0).items()} == {
            k: v.tolist() for k, v in initial(run, size).items()
        }
        assert (together.parameters["layers.0.W_x"][m, size:] == 0).all()


@every_cell
def test_adding_a_layer_leaves_the_others_as_they_were(cell: str, peepholes: str) -> None:
    one, two, three = (initial(tiny(cell=cell, peepholes=peepholes, layers=n)) for n in (1, 2, 3))
    assert all(np.array_equal(one[name], two[name]) for name in one)
    assert all(np.array_equal(two[name], three[name]) for name in two)


def test_float32_values_are_the_float64_ones_rounded() -> None:
    double, single = (
        Model.initial([tiny(precision=p)], [V], engine_of(CPU, "stacked")).values(0) for p in ("float64", "float32")
    )
    check_identical(single, {name: value.float() for name, value in double.items()})


def masks(model: Model, batch: int, purpose: str = "dropout.dense", shape: tuple[int, int] = (6, 7)) -> torch.Tensor:
    ones = torch.ones(len(model.experiments), *shape, dtype=model.dtype)
    return model._dropout(torch.tensor(batch)).dropped(ones, purpose)


def test_a_runs_dropout_is_the_same_alone_and_in_a_fleet() -> None:
    runs = [tiny(seed=s, dropout=d) for s, d in ((1, 0.25), (2, 0.0), (3, 0.6))]
    together = Model.initial(runs, [V] * 3, engine_of(CPU, "stacked"))
    for m, run in enumerate(runs):
        alone = Model.initial([run], [V], engine_of(CPU, "stacked"))
        for batch in (0, 1, 500):
            assert torch.equal(masks(together, batch)[m], masks(alone, batch)[0])
    assert (masks(together, 4)[1] == 1).all(), "a run without dropout drops nothing"


@pytest.mark.parametrize("rate", [0.1, 0.25, 0.75])
def test_dropout_drops_its_share_and_scales_the_rest_to_keep_the_mean(rate: float) -> None:
    mask = masks(Model.initial([tiny(dropout=rate)], [V], engine_of(CPU, "stacked")), 3, shape=(200, 200))
    n = mask.numel()
    dropped = float((mask == 0).double().mean())
    assert abs(dropped - rate) < 4 * math.sqrt(rate * (1 - rate) / n)
    assert mask.unique().tolist() == pytest.approx([0.0, 1 / (1 - rate)])


def test_dropout_masks_differ_between_batches_layers_and_seeds() -> None:
    model, other = (Model.initial([tiny(dropout=0.5, seed=s)], [V], engine_of(CPU, "stacked")) for s in (0, 1))
    seen = [masks(model, 0), masks(model, 1), masks(model, 0, "dropout.out"), masks(other, 0)]
    assert not any(torch.equal(seen[a], seen[b]) for a in range(4) for b in range(a))
    assert torch.equal(masks(model, 0), seen[0])


def test_without_a_batch_number_nothing_is_dropped() -> None:
    model = random_model([tiny(dropout=0.5)], [V])
    h = random_tensor(1, 2, 3, 5, seed=0)
    assert torch.equal(model.head(h), model.head(h))
    assert not torch.equal(model.head(h), model.head(h, batch=torch.tensor(0)))


def test_padded_symbols_have_no_probability_and_no_gradient() -> None:
    runs, sizes = [tiny(seed=0), tiny(seed=1)], [7, 16]
    model = random_model(runs, sizes)
    logits = model.head(random_tensor(2, 3, 4, 5, seed=0))
    assert logits.shape == (2, 3, 4, 16)
    assert (logits[0, ..., 7:] == -torch.inf).all()
    assert logits[1].isfinite().all()
    assert logits[0, ..., :7].isfinite().all()
    nll = torch.logsumexp(logits, -1) - logits[..., 0]
    weight, bias = torch.autograd.grad(nll.sum(), [model.parameters["out.W"], model.parameters["out.b"]])
    assert (weight[0, :, 7:] == 0).all()
    assert (bias[0, 7:] == 0).all()
    assert weight.isfinite().all()


def test_the_head_is_two_dense_layers_with_a_leaky_relu_between() -> None:
    model = random_model([tiny()], [V])
    h = random_tensor(1, 2, 3, 5, seed=0)
    values = {name: value.numpy() for name, value in model.values(0).items()}
    x = h.numpy()[0] @ values["dense.W"] + values["dense.b"]
    x = np.where(x > 0, x, 0.01 * x) @ values["out.W"] + values["out.b"]
    np.testing.assert_allclose(model.head(h)[0, ..., :V].detach().numpy(), x, rtol=1e-12)


def test_one_run_of_a_fleet_can_be_used_alone() -> None:
    model = random_model([tiny(seed=0), tiny(seed=1)], [7, 16])
    ids = random_ids(2, 3)
    together = model.advance(ids, model.first_state(3))
    alone = model.runs([1])
    (after,) = alone.advance(ids[1:], alone.first_state(3))
    for a, b in zip(after, together[0], strict=True):
        torch.testing.assert_close(a[0], b[1].detach(), rtol=1e-12, atol=1e-12)
    check_identical(alone.values(0), model.values(1))


def test_runs_taken_out_of_a_fleet_keep_their_values_while_the_fleet_trains_on() -> None:
    model = random_model([tiny(seed=seed) for seed in range(3)], [7, 16, 9])
    before = [model.values(m) for m in range(3)]
    taken = model.runs([2, 0])
    with torch.no_grad():
        for value in model.parameters.values():
            value.add_(1.0)
    assert taken.vocabularies == (9, 7)
    assert [e.seed for e in taken.experiments] == [2, 0]
    for slot, m in enumerate((2, 0)):
        check_identical(taken.values(slot), before[m])


@every_kernel
def test_reading_a_stretch_equals_reading_it_step_by_step(kernel: str, cell: str, peepholes: str) -> None:
    runs = [tiny(cell=cell, peepholes=peepholes, layers=2, seed=seed) for seed in range(2)]
    model, ids_MTB = random_model(runs, [V, V], kernel), random_ids(2, 6, 3)
    h_MTBH, after = model.read(ids_MTB, model.first_state(3))
    state = model.first_state(3)
    for t in range(6):
        state = model.advance(ids_MTB[:, t], state)
        check_close(h_MTBH[:, t], state[-1][0], 1e-12)
    for got, expected in zip(after, state, strict=True):
        for a, b in zip(got, expected, strict=True):
            check_close(a, b, 1e-12)
