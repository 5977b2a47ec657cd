"""The GPU's engine says which choices it has no code for, in training and in sampling. No GPU is asked."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dropping import dropped_in

from unroll.engines.cuda.engine import CudaEngine
from unroll.engines.cuda.update import UnfusedUpdate
from unroll.engines.torch.engine import TorchEngine
from unroll.experiment.experiment import Experiment
from unroll.model import optimisers
from unroll.model.engine import FleetTensors
from unroll.model.gradients import Decay, NormLimit


def unknown(**settings: str | float) -> list[str]:
    """What the engine of a GPU says of an experiment with these settings."""
    device = torch.device("cuda")
    engine = CudaEngine(device, "stacked", TorchEngine(device, "stacked"))
    return engine.unknown(replace(Experiment(), **settings))


@pytest.mark.parametrize("peepholes", ["paper", "lasagne", "off"])
def test_the_lstm_has_code_for_training_and_for_sampling(peepholes: str) -> None:
    assert unknown(cell="lstm", peepholes=peepholes) == []


def test_the_gru_has_code_for_training_and_for_sampling() -> None:
    assert unknown(cell="gru", peepholes="off") == []


def test_the_rnn_has_code_for_sampling_alone() -> None:
    assert unknown(cell="rnn", peepholes="off") == ["the cell rnn in training"]


def test_a_cell_of_another_hand_has_no_code_at_all() -> None:
    with dropped_in("cells"):
        assert unknown(cell="mingru", peepholes="off") == ["the cell mingru"]


def test_weight_decay_clipping_by_norm_and_momentum_have_no_code_and_that_is_said() -> None:
    assert unknown(weight_decay=0.01, clip_norm=1.0, optimiser="sgd,momentum=0.9", schedule="cosine", warm_up=9) == [
        "the optimiser sgd",
        "weight decay",
        "clipping by norm",
    ]
    assert unknown(schedule="cosine", warm_up=9) == []


def test_what_the_fused_update_does_not_know_goes_to_the_unfused_one() -> None:
    device = torch.device("cuda")
    engine = CudaEngine(device, "stacked", TorchEngine(device, "stacked"))
    one_M = torch.ones(1)
    for changes in (
        {"decay": Decay(one_M, decoupled=True)},
        {"norm_limit": NormLimit(one_M, [{"W": (2, 3)}])},
        {"optimiser": optimisers.load("sgd,momentum=0.9")},
    ):
        assert isinstance(engine.update(replace(a_fleet(), **changes)), UnfusedUpdate), changes


def a_fleet() -> FleetTensors:
    """One run of one parameter, on the CPU: nothing is computed."""
    none_M, parameter = torch.zeros(1, dtype=torch.long), torch.zeros(1, 2, 3)
    return FleetTensors(
        optimiser=optimisers.load("adam"),
        parameters={"W": parameter},
        moments={"W": (parameter, parameter)},
        learning_rate_M=torch.ones(1),
        precision="float32",
        weights_MK=torch.ones(1, 1),
        rows=1,
        number=none_M[0],
        last_M=none_M,
        stopped_M=none_M,
        reason_M=none_M,
        loss_sum_M=torch.zeros(1, dtype=torch.float64),
        loss_count_M=none_M,
        largest_2M=torch.zeros(2, 1, dtype=torch.float64),
    )
