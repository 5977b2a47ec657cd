"""What torch holds becomes a run: bit for bit where `to_torch` made it, equal in what it predicts where people did."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import unroll
from exchange_cases import of_scheme, random_run
from helpers import check_close, check_identical, every_cell, random_ids, tiny_corpus
from torch import Tensor, nn

from unroll import (
    SCHEMES,
    Corpus,
    Experiment,
    Scheme,
    from_torch,
    hidden_states,
    perplexity,
    sample,
    score,
    to_torch,
    train,
)
from unroll.base.errors import ConfigurationError, RunError
from unroll.runs.folder import RunFolder

SYMBOLS = "abcdefg"
KINDS = pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])


class Model(nn.Module):
    """What people write: an embedding or one-hot vectors, recurrent layers, a decoder."""

    def __init__(self, kind: type[nn.RNNBase], decoder: nn.Module, embedding: int = 0, layers: int = 1) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embedding = nn.Embedding(len(SYMBOLS), embedding) if embedding else None
        self.recurrent = kind(embedding or len(SYMBOLS), 6, layers, batch_first=True)
        self.decoder = decoder

    def forward(self, ids_BT: Tensor) -> Tensor:
        if self.embedding is None:
            x = nn.functional.one_hot(ids_BT, len(SYMBOLS)).to(next(self.parameters()).dtype)
        else:
            x = self.embedding(ids_BT)
        return self.decoder(self.recurrent(x)[0])


def progressive_perplexity(model: Model, ids_N: Tensor, k2: int) -> float:
    """By torch alone: exp of the mean negative log-likelihood of every token after the first k2."""
    with torch.no_grad():
        logits_NV = model(ids_N[None, :-1])[0].double()
    return math.exp(nn.functional.cross_entropy(logits_NV[k2 - 1 :], ids_N[k2:]).item())


def windowed_perplexity(model: Model, ids_N: Tensor, k2: int) -> float:
    with torch.no_grad():
        logits_NV = model(ids_N[:-1].unfold(0, k2, 1))[:, -1].double()
    return math.exp(nn.functional.cross_entropy(logits_NV, ids_N[k2:]).item())


@pytest.mark.parametrize("scheme", [1, 2, 3, 4])
@pytest.mark.parametrize(("layers", "dense"), [(1, 6), (2, 6), (2, 0)])
@every_cell
def test_there_and_back_is_the_same_to_the_last_bit(
    cell: str, peepholes: str, layers: int, dense: int, scheme: int, tmp_path: Path
) -> None:
    run = random_run(tmp_path / "run", of_scheme(scheme, cell=cell, peepholes=peepholes, layers=layers, dense=dense))
    back = from_torch(to_torch(run), out=tmp_path / "back")
    (ours, _), (theirs, _) = run.folder.weights(), back.folder.weights()
    check_identical(theirs, ours)
    assert (back.experiment, back.vocabulary) == (run.experiment, run.vocabulary)


KNOWN_DECODERS = {
    "linear": lambda: nn.Linear(6, len(SYMBOLS)),
    "without bias": lambda: nn.Linear(6, len(SYMBOLS), bias=False),
    "in a sequence": lambda: nn.Sequential(nn.Linear(6, len(SYMBOLS))),
    "leaky": lambda: nn.Sequential(nn.Linear(6, 9), nn.LeakyReLU(0.01), nn.Linear(9, len(SYMBOLS))),
    "another slope": lambda: nn.Sequential(nn.Linear(6, 9), nn.LeakyReLU(0.2), nn.Linear(9, len(SYMBOLS))),
    "relu": lambda: nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, len(SYMBOLS))),
}


@pytest.mark.parametrize("decoder", KNOWN_DECODERS)
@pytest.mark.parametrize("embedding", [0, 4])
@pytest.mark.parametrize("layers", [1, 2])
@KINDS
def test_a_model_made_by_hand_has_the_perplexity_that_torch_computes(
    kind: type[nn.RNNBase], layers: int, embedding: int, decoder: str, tmp_path: Path
) -> None:
    model = Model(kind, KNOWN_DECODERS[decoder](), embedding, layers)
    corpus = tiny_corpus(tokens=200)
    run = from_torch(
        model.recurrent,
        SYMBOLS,
        out=tmp_path / "run",
        decoder=model.decoder,
        embedding=model.embedding,
        scheme=Scheme(k1=3, k2=5),
    )
    ids_N = torch.from_numpy(corpus.ids.astype(np.int64))
    (progressive,), (windowed,) = (perplexity(run, way, corpus) for way in ("progressive", "windowed"))
    assert progressive.perplexity == pytest.approx(progressive_perplexity(model, ids_N, 5), abs=1e-6)
    assert windowed.perplexity == pytest.approx(windowed_perplexity(model, ids_N, 5), abs=1e-6)


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_what_was_brought_in_is_a_run_like_any_other(cell: str, tmp_path: Path) -> None:
    kind = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}[cell]
    model = Model(kind, nn.Linear(6, len(SYMBOLS)), embedding=3)
    table = {symbol: n for n, symbol in enumerate(SYMBOLS)}
    run = from_torch(model.recurrent, table, out=tmp_path / "run", decoder=model.decoder, embedding=model.embedding)
    assert run.status["state"] == "finished"
    assert run.status["origin"] == "torch"
    assert run.experiment.cell == cell
    assert not run.notes
    assert set(sample(run, prompt="abc", length=20, seed=1).text) <= set(SYMBOLS)
    assert len(score(run, "abcdefg")) == 6
    text = tmp_path / "text.txt"
    text.write_text(tiny_corpus(tokens=400).vocabulary.decode(tiny_corpus(tokens=400).ids))
    for command in (["eval", run.path, "--corpus", text], ["sample", run.path, "--prompt", "abc"]):
        result = unroll(*command)
        assert result.code == 0, result.err
    page = tmp_path / "page.html"
    result = unroll("report", run.path, "--out", page)
    assert result.code == 0, result.err


def test_a_run_trained_on_in_torch_comes_back_with_what_it_learned(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("abcdefg" * 60)
    run = train(of_scheme(1, batches=3), tmp_path / "run", Corpus.open(str(path)))
    module = to_torch(run).train()
    optimiser, ids_BT = torch.optim.Adam(module.parameters(), 0.01), torch.arange(14).remainder(7).repeat(2, 1)
    for _ in range(60):
        logits_BTV, _ = module(ids_BT[:, :-1])
        loss = nn.functional.cross_entropy(logits_BTV.flatten(0, 1), ids_BT[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    back = from_torch(module, out=tmp_path / "back")
    (before,), (after,) = perplexity(run, "windowed"), perplexity(back, "windowed")
    assert after.perplexity < before.perplexity / 3
    assert back.metrics == [], "what was measured belongs to the weights of before"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_other_numbers_are_taken_as_they_are(dtype: torch.dtype, tmp_path: Path) -> None:
    model = Model(nn.GRU, nn.Linear(6, len(SYMBOLS)), embedding=4, layers=2).to(dtype)
    parts = {"decoder": model.decoder, "embedding": model.embedding, "scheme": Scheme(k1=3, k2=5)}
    run = from_torch(model.recurrent, SYMBOLS, out=tmp_path / "run", **parts)
    assert run.experiment.precision == ("float64" if dtype == torch.float64 else "float32")
    assert model.recurrent.weight_hh_l0.dtype == dtype, "what was given stays as it was"
    ids_N = torch.from_numpy(tiny_corpus(tokens=200).ids.astype(np.int64))
    (ours,) = perplexity(run, "progressive", tiny_corpus(tokens=200))
    assert ours.perplexity == pytest.approx(progressive_perplexity(model.double(), ids_N, 5), abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_an_exported_module_comes_back_in_other_numbers(dtype: torch.dtype, tmp_path: Path) -> None:
    module = to_torch(random_run(tmp_path / "run", of_scheme(1))).to(dtype)
    back = from_torch(module, out=tmp_path / "back")
    assert back.experiment.precision == ("float64" if dtype == torch.float64 else "float32")
    check_close(back.model.values(0)["out.W"].double(), module.out.weight.detach().t().double(), 0)


def test_symbols_in_any_order_keep_their_ids(tmp_path: Path) -> None:
    model = Model(nn.LSTM, nn.Linear(6, len(SYMBOLS)))
    run = from_torch(model.recurrent, "gabfcde", out=tmp_path / "run", decoder=model.decoder)
    with torch.no_grad():
        logits_TV = torch.log_softmax(model(torch.tensor([[0, 1, 2]]))[0].double(), 1)
    assert score(run, "gabf") == pytest.approx([float(logits_TV[t, t + 1]) for t in range(3)], abs=1e-6)


@KINDS
def test_a_linear_decoder_is_a_model_without_a_dense_layer_to_the_last_bit(
    kind: type[nn.RNNBase], tmp_path: Path
) -> None:
    linear = nn.Linear(6, len(SYMBOLS))
    model = Model(kind, nn.Sequential(nn.Dropout(0.3), linear))
    if isinstance(model.recurrent, nn.GRU):
        model.recurrent.bias_hh_l0.data.zero_()
    run = from_torch(model.recurrent, SYMBOLS, out=tmp_path / "run", decoder=model.decoder)
    assert (run.experiment.dense, run.experiment.dropout, run.experiment.hidden) == (0, 0.3, 6)
    values = run.model.values(0)
    assert torch.equal(values["out.W"], linear.weight.t())
    assert torch.equal(values["out.b"], linear.bias)


def test_dropout_before_both_layers_is_ours(tmp_path: Path) -> None:
    decoder = nn.Sequential(
        nn.Dropout(0.3), nn.Linear(6, 9), nn.LeakyReLU(0.01), nn.Dropout(0.3), nn.Linear(9, len(SYMBOLS))
    )
    model = Model(nn.LSTM, decoder)
    assert from_torch(model.recurrent, SYMBOLS, out=tmp_path / "run", decoder=decoder).experiment.dropout == 0.3


LINEAR = nn.Linear(6, len(SYMBOLS))
REFUSED = {
    "bidirectional": ({"module": nn.LSTM(7, 6, bidirectional=True)}, "bidirectional: a model that predicts"),
    "projections": ({"module": nn.LSTM(7, 6, proj_size=3)}, "projects h to 3 numbers"),
    "relu": ({"module": nn.RNN(7, 6, nonlinearity="relu")}, "nonlinearity is relu"),
    "dropout between": ({"module": nn.LSTM(7, 6, 2, dropout=0.5)}, "set its dropout to 0 first"),
    "inner bias": ({"module": nn.GRU(7, 6), "scheme": SCHEMES[4]}, "a learned first state, and conditional training"),
    "whole model": ({"module": Model(nn.LSTM, LINEAR)}, "holds recurrent (LSTM), decoder (Linear). Give its parts"),
    "a cell": ({"module": nn.LSTMCell(7, 6)}, "Got LSTMCell"),
    "no decoder": ({"decoder": None}, "Recurrent layers alone are no model"),
    "no vocabulary": ({"vocabulary": None}, "Recurrent layers alone are no model"),
    "tanh": ({"decoder": nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 7))}, "Got Linear, Tanh, Linear"),
    "too few logits": ({"decoder": nn.Linear(6, 5)}, "makes 5 logits, and the vocabulary has 7"),
    "other hidden": ({"decoder": nn.Linear(5, 7)}, "takes 5 numbers, and h has 6"),
    "no embedding": ({"module": nn.LSTM(4, 6)}, "take 4 numbers, and get one-hot vectors of 7"),
    "other embedding": ({"embedding": nn.Embedding(9, 7)}, "knows 9 symbols, the vocabulary has 7"),
    "norm": ({"embedding": nn.Embedding(7, 7, max_norm=1.0)}, "max_norm"),
    "symbols twice": ({"vocabulary": "aabcdef"}, "symbols in the vocabulary must all be different"),
    "holes": ({"vocabulary": {"a": 0, "b": 2}}, "must be 0 to 1, each once. Got [0, 2]"),
    "unequal dropout": (
        {"decoder": nn.Sequential(nn.Dropout(0.1), nn.Linear(6, 9), nn.ReLU(), nn.Dropout(0.2), nn.Linear(9, 7))},
        "Got 0.1 and 0.2",
    ),
    "not finite": ({"decoder": nn.Linear(6, 7).requires_grad_(False)}, "not all finite: out.b"),
}
REFUSED["not finite"][0]["decoder"].bias.fill_(math.nan)


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_represented_is_refused_with_the_reason(case: str, tmp_path: Path) -> None:
    changes, said = REFUSED[case]
    given = {"module": nn.LSTM(7, 6), "vocabulary": SYMBOLS, "decoder": LINEAR, **changes}
    with pytest.raises((ConfigurationError, RunError)) as error:
        from_torch(given.pop("module"), given.pop("vocabulary"), out=tmp_path / "run", **given)
    assert said in str(error.value)
    assert not (tmp_path / "run").exists()


def test_a_folder_with_something_in_it_and_parts_beside_a_whole_module_are_refused(tmp_path: Path) -> None:
    run = random_run(tmp_path / "run", of_scheme(1))
    with pytest.raises(RunError, match="exists and is not empty"):
        from_torch(to_torch(run), out=run.path)
    with pytest.raises(ConfigurationError, match="Leave out vocabulary, scheme"):
        from_torch(to_torch(run), SYMBOLS, out=tmp_path / "other", scheme=Scheme())
    assert RunFolder(run.path).has_ended()


def test_a_bias_that_was_trained_beside_ours_is_added_to_it(tmp_path: Path) -> None:
    """Somebody who thaws b_hh trains two biases that torch adds."""
    module = to_torch(random_run(tmp_path / "run", of_scheme(1, peepholes="off")))
    with torch.no_grad():
        module.recurrent.bias_hh_l0.fill_(0.25)
    back = from_torch(module, out=tmp_path / "back")
    check_close(to_torch(back)(random_ids(2, 9))[0], module(random_ids(2, 9))[0], 1e-6)


def test_the_inner_bias_of_a_gru_is_one_more_unit_that_stays_1(tmp_path: Path) -> None:
    model = Model(nn.GRU, nn.Linear(6, len(SYMBOLS)), layers=2)
    run = from_torch(model.recurrent, SYMBOLS, out=tmp_path / "run", decoder=model.decoder)
    assert run.experiment.hidden == 7
    assert (hidden_states(run, "abcdefg" * 40).h[:, :, 6] == 1).all()


def test_the_inner_bias_of_a_gru_that_to_torch_made_stays_0_or_is_refused(tmp_path: Path) -> None:
    module = to_torch(random_run(tmp_path / "run", of_scheme(1, cell="gru")))
    with torch.no_grad():
        module.recurrent.bias_hh_l0[:10] = 0.25
        from_torch(module, out=tmp_path / "sums")
        module.recurrent.bias_hh_l0[10:] = 0.25
    with pytest.raises(ConfigurationError, match=r"b_hn .* is not 0 any more"):
        from_torch(module, out=tmp_path / "back")


def test_of_an_experiment_nothing_is_lost_on_the_way(tmp_path: Path) -> None:
    asked: Experiment = of_scheme(1, dropout=0.25, learning_rate=0.003, rows=9, seed=5)
    run = random_run(tmp_path / "run", asked)
    assert from_torch(to_torch(run), out=tmp_path / "back").experiment == run.experiment
