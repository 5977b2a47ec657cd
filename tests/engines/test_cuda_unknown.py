"""The GPU's engine says which choices it has no code for, in training and in sampling. No GPU is asked."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dropping import dropped_in

from unroll.engines.cuda.engine import CudaEngine
from unroll.engines.torch.engine import TorchEngine
from unroll.experiment.experiment import Experiment


def unknown(**settings: str) -> list[str]:
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
