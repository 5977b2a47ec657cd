"""The time that arithmetic alone would take."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench_cases import CPU, tiny_corpus, tiny_shape
from torch.utils.flop_counter import FlopCounterMode

from unroll.engines.choice import engine_of
from unroll.studies.benchmark.floors import Rate, measure_rate, operations
from unroll.studies.benchmark.numerics import numerics
from unroll.studies.benchmark.record import Row
from unroll.studies.benchmark.shapes import Shape
from unroll.training.learner import Learner


@pytest.mark.parametrize("procedure", ["multi-loss", "single-loss", "conditional"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_count_is_what_torch_counts_in_the_plain_model(procedure: str, layers: int) -> None:
    shape = tiny_shape(layers=layers, procedure=procedure)
    # With dropout the head is plain torch, whose products torch can count; dropout itself has none.
    learner = Learner([replace(shape.experiment(), dropout=0.1)], [tiny_corpus(shape)], engine_of(CPU, "reference"))
    with FlopCounterMode(display=False) as counter:
        learner.step()
    assert operations(shape).total == counter.get_total_flops()


@pytest.mark.parametrize(
    ("layers", "hidden", "floor"), [(1, 128, 0.014), (1, 512, 0.081), (2, 128, 0.020), (2, 512, 0.183)]
)
def test_the_floors_at_790_tflops_are_those_worked_out_by_hand(layers: int, hidden: int, floor: float) -> None:
    total = operations(Shape(layers, hidden, "multi-loss")).total
    assert round(total / 790e12 * 1e3, 3) == floor


def test_single_loss_does_not_pay_for_positions_that_carry_no_loss() -> None:
    many, one = (operations(Shape(procedure=p)) for p in ("multi-loss", "single-loss"))
    assert (many.recurrent, many.dense, many.out) == (one.recurrent, 100 * one.dense, 100 * one.out)


def test_a_fleet_is_counted_a_run_at_a_time() -> None:
    alone = Row(Shape(), "unroll-fleet", "float32", 1)
    assert replace(alone, runs=28).operations == alone.operations


def test_a_rate_is_that_of_the_median_product() -> None:
    assert Rate(1000, (1.0, 2.0, 50.0)).operations_per_second == pytest.approx(1e12)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_rate_is_measured_in_any_precision(precision: str) -> None:
    rate = measure_rate(precision, CPU, size=64)
    assert (rate.size, len(rate.ms)) == (64, 5)
    assert rate.operations_per_second > 0


def test_torchs_switches_are_put_back_even_after_an_error() -> None:
    from unroll.studies.benchmark.numerics import PRODUCTS, _get, _set

    before = [_get("cuda", what) for what in PRODUCTS]
    _set("cuda", "matmul", "tf32")
    try:
        with numerics("float32"):
            assert [_get("cuda", what) for what in PRODUCTS] == ["ieee", "ieee"]
        with numerics("tf32"):
            assert [_get("cuda", what) for what in PRODUCTS] == ["tf32", "tf32"]
        with pytest.raises(ZeroDivisionError), numerics("float32"):
            _ = 1 / 0
        assert [_get("cuda", what) for what in PRODUCTS] == ["tf32", before[1]]
    finally:
        _set("cuda", "matmul", before[0])
