"""A run as a torch module computes what the run computes, and one step of torch's own training is one of ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from dropping import dropped_in
from exchange_cases import of_scheme, random_run
from helpers import CPU, check_close, check_identical, every_cell, random_ids, tiny_corpus
from torch import nn

from unroll import Run, from_torch, hidden_states, to_torch
from unroll.base.errors import ConfigurationError
from unroll.engines.choice import engine_of
from unroll.runs.exchange.cell_layers import PlainLayers
from unroll.runs.exchange.sequence_model import SequenceModel
from unroll.training.learner import Learner

every_scheme = pytest.mark.parametrize("scheme", [1, 2, 3, 4])
one_and_two = pytest.mark.parametrize("layers", [1, 2])


def logits_of(run: Run, ids_BT: torch.Tensor) -> torch.Tensor:
    """What the run itself predicts after each token: [B, T, V]."""
    first = run.model.first_state(len(ids_BT))
    with torch.no_grad():
        h_MTBH, _ = run.model.read(ids_BT.t().unsqueeze(0), first)
        return run.model.head(h_MTBH)[0, :, :, : len(run.vocabulary)].transpose(0, 1)


@every_scheme
@one_and_two
@pytest.mark.parametrize("dense", [0, 6])
@every_cell
def test_logits_are_equal_to_1e_6_in_float32(
    cell: str, peepholes: str, dense: int, layers: int, scheme: int, tmp_path: Path
) -> None:
    run = random_run(tmp_path / "run", of_scheme(scheme, cell=cell, peepholes=peepholes, layers=layers, dense=dense))
    module, ids_BT = to_torch(run), random_ids(4, 30)
    logits_BTV, _ = module(ids_BT)
    assert logits_BTV.dtype == torch.float32
    # Nothing dampens what a plain RNN of two layers rounds: either side is as far from float64.
    check_close(logits_BTV, logits_of(run, ids_BT), 2e-6 if cell == "rnn" else 1e-6)


def step_of_torch(module: SequenceModel, learner: Learner) -> None:
    """One step of torch's own Adam on the batch that the learner trains on next, with the scheme's loss."""
    batch, weights = learner.batches[learner.count], torch.tensor(module.scheme.weights)
    optimiser = torch.optim.Adam(module.parameters(), lr=module.experiment.learning_rate)
    logits_BTV, _ = module(batch.inputs_MTB[0].t())
    targets_BK = batch.targets_MKB[0].t().long()
    nll_BK = nn.functional.cross_entropy(
        logits_BTV[:, -targets_BK.shape[1] :].transpose(1, 2), targets_BK, reduction="none"
    )
    (nll_BK * weights).sum(1).mean().backward()
    optimiser.step()


@every_scheme
@pytest.mark.parametrize(("layers", "dense"), [(1, 6), (2, 6), (2, 0)])
@every_cell
def test_a_step_of_torchs_own_adam_is_a_step_of_ours(
    cell: str, peepholes: str, layers: int, dense: int, scheme: int, tmp_path: Path
) -> None:
    """Both begin from the values of `random_run`, whose gradients are far from the clip at 50.

    Both add ε = 1e-8 to the root of the corrected second moment. The first step is then the learning rate times
    g / (|g| + ε), so only an element whose gradient is as small as rounding noise could move otherwise here and there.
    """
    corpus = tiny_corpus()
    asked = of_scheme(scheme, cell=cell, peepholes=peepholes, layers=layers, dense=dense)
    run = random_run(tmp_path / "run", asked, corpus)
    learner = Learner([run.experiment], [corpus], engine_of(CPU, run.model.engine.kernel))
    with torch.no_grad():
        for name, value in run.model.parameters.items():
            learner.model.parameters[name].copy_(value)
    module = to_torch(run).train()
    step_of_torch(module, learner)
    learner.step()
    before, ours, theirs = run.model.values(0), learner.model.values(0), module.values()
    for name, value in ours.items():
        assert float((theirs[name] - value).abs().max()) < 1e-5, name
        first = name.endswith(("h0", "c0"))
        moved = float((value - before[name]).abs().max())
        assert moved == (0.0 if first and run.experiment.scheme.carries else pytest.approx(1e-3, rel=1e-2)), name


@every_cell
def test_torchs_own_layers_are_inside_where_torch_has_the_cell(cell: str, peepholes: str, tmp_path: Path) -> None:
    module = to_torch(random_run(tmp_path / "run", of_scheme(1, cell=cell, peepholes=peepholes)))
    torchs = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}[cell]
    assert type(module.recurrent) is (PlainLayers if peepholes in ("paper", "lasagne") else torchs)
    assert not module.training


@every_cell
def test_a_text_in_pieces_is_the_text_as_a_whole_and_gradients_pass_between_them(
    cell: str, peepholes: str, tmp_path: Path
) -> None:
    run = random_run(tmp_path / "run", of_scheme(1, cell=cell, peepholes=peepholes, layers=2))
    module, ids_BT = to_torch(run), random_ids(3, 12)
    whole, last = module(ids_BT)
    early, state = module(ids_BT[:, :5])
    late, again = module(ids_BT[:, 5:], state)
    check_close(torch.cat((early, late), dim=1), whole, 1e-6)
    for one, other in zip(torch.utils._pytree.tree_leaves(last), torch.utils._pytree.tree_leaves(again), strict=True):
        check_close(one, other, 1e-6)
    late[:, -1].sum().backward()
    assert float(module.h0.grad.abs().max()) > 0, "what is learned reaches the first state through both pieces"


@every_scheme
def test_the_first_state_is_trained_where_the_scheme_learns_it(scheme: int, tmp_path: Path) -> None:
    run = random_run(tmp_path / "run", of_scheme(scheme))
    module = to_torch(run)
    h, c = module.initial_state(4)
    assert h.shape == c.shape == (1, 4, run.experiment.hidden)
    assert module.h0.requires_grad == module.c0.requires_grad == run.experiment.scheme.learns
    assert bool(h.any()) == run.experiment.scheme.learns, "a text starts from 0 where states are carried"
    assert module.scheme == run.experiment.scheme
    assert module.vocabulary == run.vocabulary


@every_cell
def test_a_state_dict_makes_an_equal_module_elsewhere(cell: str, peepholes: str, tmp_path: Path) -> None:
    run = random_run(tmp_path / "run", of_scheme(4, cell=cell, peepholes=peepholes, layers=2))
    module = to_torch(run)
    torch.save(module.state_dict(), tmp_path / "weights.pt")
    other = SequenceModel(run.experiment, run.vocabulary)
    other.load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True))
    check_identical(other.values(), module.values())
    assert torch.equal(other(random_ids(2, 9))[0], module(random_ids(2, 9))[0])


def test_to_torch_leaves_torchs_generator_alone_and_the_run_too(tmp_path: Path) -> None:
    run = random_run(tmp_path / "run", of_scheme(1, peepholes="off"))
    kept, state = run.model.values(0), torch.get_rng_state()
    module = to_torch(run)
    assert torch.equal(torch.get_rng_state(), state)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(1)
    check_identical(run.model.values(0), kept)


def test_dropout_is_there_to_train_and_not_to_predict(tmp_path: Path) -> None:
    module, ids_BT = to_torch(random_run(tmp_path / "run", of_scheme(1, dropout=0.5))), random_ids(2, 8)
    assert torch.equal(module(ids_BT)[0], module(ids_BT)[0])
    module.train()
    assert not torch.equal(module(ids_BT)[0], module(ids_BT)[0])


@every_cell
def test_a_double_run_is_a_double_module_and_differs_by_rounding_alone(
    cell: str, peepholes: str, tmp_path: Path
) -> None:
    """In float32 a net of random weights enlarges each rounding; in float64 it shows that both compute one formula."""
    run = random_run(tmp_path / "run", of_scheme(1, precision="float64", cell=cell, peepholes=peepholes, layers=2))
    logits_BTV, _ = to_torch(run)(random_ids(4, 30))
    assert logits_BTV.dtype == torch.float64
    check_close(logits_BTV, logits_of(run, random_ids(4, 30)), 1e-14)


def test_a_state_of_another_shape_is_refused_in_words(tmp_path: Path) -> None:
    module = to_torch(random_run(tmp_path / "run", of_scheme(1)))
    with pytest.raises(ConfigurationError, match=r"h and c, each \[1, 2, 5\].*Got \[1, 3, 5\], \[1, 3, 5\]"):
        module(random_ids(2, 4), module.initial_state(3))
    with pytest.raises(ConfigurationError, match=r"A run is what unroll\.load"):
        to_torch(tmp_path / "run")


OWN_CELL = '''"""A cell of somebody's own: a leaky integrator with two states."""

import torch

from unroll.model.cells import RecurrentCell, unclipped


class Cell(RecurrentCell):
    GATES = 1
    STATES = ("h", "slow")

    def extra_shapes(self, hidden):
        return {"pace": (hidden,)}

    def forward(self, pre_x, pre_h, state, extra, clip=unclipped):
        slow = torch.lerp(state[1], torch.tanh(clip(pre_x + pre_h)), torch.sigmoid(extra["pace"]).unsqueeze(-2))
        return (torch.tanh(slow), slow), (slow,)

    def backward(self, d_state, saved, extra, clip):
        raise NotImplementedError
'''


@pytest.fixture
def own_cell(tmp_path: Path) -> Iterator[None]:
    """One more file among the cells."""
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / "leaky.py").write_text(OWN_CELL)
    with dropped_in("cells", folder=tmp_path):
        yield


@pytest.mark.usefixtures("own_cell")
def test_a_cell_of_ones_own_goes_to_torch_and_back_and_trains_there(tmp_path: Path) -> None:
    run = random_run(tmp_path / "run", of_scheme(1, cell="leaky", layers=2))
    module, ids_BT = to_torch(run), random_ids(3, 12)
    logits_BTV, _ = module(ids_BT)
    check_close(logits_BTV, logits_of(run, ids_BT), 1e-6)
    logits_BTV.sum().backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in module.parameters())
    check_identical(from_torch(module, out=tmp_path / "back").model.values(0), run.model.values(0))
    assert set(hidden_states(run, "abc").states) == {"h", "slow"}
