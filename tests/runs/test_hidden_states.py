"""Hidden states are those that predict: under either procedure, of every layer, aligned with the text."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from exchange_cases import of_scheme, random_run
from helpers import check_close, every_cell, tiny_corpus

from unroll import Run, hidden_states, perplexity, score, to_torch
from unroll.base.errors import ConfigurationError, SymbolError
from unroll.model import conditioning
from unroll.runs import hidden_states as room

K2 = 5
both = pytest.mark.parametrize("procedure", ["windowed", "progressive"])


def text_of(tokens: int) -> str:
    corpus = tiny_corpus(tokens=tokens)
    return corpus.vocabulary.decode(corpus.ids)


def read_token_by_token(run: Run, text: str, procedure: str) -> np.ndarray:
    """The top layer's h after each token, read as sampling reads."""
    sampler, h_TH = conditioning.load(procedure), []
    with torch.inference_mode():
        memory = sampler.begin(run.model, K2, 1)
        for token in run.vocabulary.encode(text).tolist():
            h_BH, memory = sampler.read(run.model, memory, torch.tensor([token]))
            h_TH.append(h_BH[0].numpy())
    return np.stack(h_TH)


@both
@pytest.mark.parametrize("precision", ["float32", "float64"])
@every_cell
def test_the_top_h_is_the_one_that_sampling_predicts_from(
    cell: str, peepholes: str, precision: str, procedure: str, tmp_path: Path
) -> None:
    experiment = of_scheme(1, k2=K2, cell=cell, peepholes=peepholes, layers=2, precision=precision)
    run = random_run(tmp_path / "run", experiment)
    text = text_of(40)
    seen = hidden_states(run, text, procedure)
    assert seen.h.shape == (40, 2, run.experiment.hidden)
    assert seen.h.dtype == seen.surprisal.dtype == np.float32
    check_close(seen.h[:, -1], read_token_by_token(run, text, procedure), 1e-6)
    assert "".join(seen.symbols) == text
    assert len(seen) == 40


@both
def test_surprisal_is_that_of_score_and_perplexity_aligned_with_the_text(procedure: str, tmp_path: Path) -> None:
    run, corpus = random_run(tmp_path / "run", of_scheme(1, k2=K2)), tiny_corpus(tokens=60)
    seen = hidden_states(run, text_of(60), procedure)
    assert math.isnan(seen.surprisal[0]), "nothing predicts the first token"
    check_close(seen.surprisal[1:], -np.array(score(run, text_of(60), procedure)), 1e-6)
    (whole,) = perplexity(run, procedure, corpus)
    assert math.exp(seen.surprisal[K2:].astype(np.float64).mean()) == pytest.approx(whole.perplexity, rel=1e-6)


@pytest.mark.parametrize(("cell", "peepholes"), [("lstm", "paper"), ("lstm", "off"), ("gru", "off")])
def test_every_layer_and_the_cells_memory_are_what_the_exported_module_holds(
    cell: str, peepholes: str, tmp_path: Path
) -> None:
    run = random_run(tmp_path / "run", of_scheme(1, cell=cell, peepholes=peepholes, layers=2))
    module, text = to_torch(run), text_of(30)
    seen = hidden_states(run, text)
    ids_BT = torch.from_numpy(run.vocabulary.encode(text).astype(np.int64))[None]
    for read in (1, 7, 30):
        with torch.no_grad():
            _, state = module(ids_BT[:, :read])
        tensors = dict(zip(run.model.cell.STATES, (state,) if isinstance(state, torch.Tensor) else state, strict=True))
        for name, s in tensors.items():
            check_close(seen.states[name][read - 1], s[:, 0], 1e-6, name)
    assert list(seen.states) == list(run.model.cell.STATES)


@both
def test_a_long_text_passes_in_stretches_that_do_not_change_it(
    procedure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = random_run(tmp_path / "run", of_scheme(1, k2=K2))
    whole = hidden_states(run, text_of(50), procedure)
    monkeypatch.setattr(room, "WINDOWS", 7)
    parts = hidden_states(run, text_of(50), procedure)
    check_close(parts.h, whole.h, 1e-6)
    check_close(parts.surprisal[1:], whole.surprisal[1:], 1e-6)


@pytest.mark.parametrize("tokens", range(1, 8))
@both
def test_texts_shorter_and_longer_than_a_window_are_read(procedure: str, tokens: int, tmp_path: Path) -> None:
    run = random_run(tmp_path / "run", of_scheme(1, k2=K2))
    seen = hidden_states(run, text_of(60)[:tokens], procedure)
    assert seen.h.shape[0] == len(seen.surprisal) == tokens
    assert np.isnan(seen.surprisal).sum() == 1
    assert not np.isnan(seen.h).any()


def test_windowed_states_forget_and_progressive_ones_do_not(tmp_path: Path) -> None:
    run, text = random_run(tmp_path / "run", of_scheme(1, k2=K2)), text_of(30)
    other = ("b" if text[0] == "a" else "a") + text[1:]
    for procedure, forgets in (("windowed", True), ("progressive", False)):
        one, two = (hidden_states(run, t, procedure).h for t in (text, other))
        assert np.array_equal(one[K2:], two[K2:]) == forgets
        assert not np.array_equal(one[K2 - 1], two[K2 - 1])


def test_what_cannot_be_read_is_refused_in_words(tmp_path: Path) -> None:
    run = random_run(tmp_path / "run", of_scheme(1, cell="gru", peepholes="off"))
    with pytest.raises(ConfigurationError, match=r"This cell has no c\. It has h"):
        _ = hidden_states(run, "abc").c
    with pytest.raises(ConfigurationError, match=r"sample must be one of windowed, progressive\. Got 'window'"):
        hidden_states(run, "abc", "window")
    with pytest.raises(SymbolError, match="'Z'"):
        hidden_states(run, "abZ")
    with pytest.raises(SymbolError, match="at least 1 token"):
        hidden_states(run, "")
    with pytest.raises(ConfigurationError, match="What is read is text"):
        hidden_states(run, b"abc")
    with pytest.raises(ConfigurationError, match=r"unroll\.load"):
        hidden_states(run.path, "abc")
