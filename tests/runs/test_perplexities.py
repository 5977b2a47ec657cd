"""Perplexity equals a brute-force loop, counts what it says, and agrees with scoring and sampling."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import check_close, every_cell, random_ids, random_model, random_tensor, tiny, tiny_corpus, torch_threads

from unroll import Corpus, Run, load, perplexity, sample, score, train
from unroll.base import plugins
from unroll.base.errors import ConfigurationError, CorpusError, RunError, SymbolError
from unroll.engines.cpu import engine
from unroll.model.model import Model
from unroll.runs.loaded import text_ids
from unroll.runs.perplexities import Perplexity, perplexities, token_nll

K2 = 5
BOTH = ("windowed", "progressive")


def brute_force(model: Model, ids: list[int], procedure: str) -> list[float]:
    """−log p of every token after the first k2, each from a forward pass of its own over what it is predicted from."""
    nll = []
    with torch.inference_mode():
        for n in range(K2, len(ids)):
            state = model.first_state(1)
            for token in ids[n - K2 if procedure.startswith("windowed") else 0 : n]:
                state = model.advance(torch.tensor([[token]]), state)
            logits = model.head(state[-1][0].unsqueeze(1))[0, 0, 0].numpy()
            top = logits.max()
            nll.append(top + math.log(np.exp(logits - top).sum()) - logits[ids[n]])
    return nll


@every_cell
@pytest.mark.parametrize("dense", [0, 6])
@pytest.mark.parametrize("procedure", plugins.names("conditioning"))
def test_perplexity_equals_a_brute_force_loop(cell: str, peepholes: str, dense: int, procedure: str) -> None:
    model = random_model([tiny(cell=cell, peepholes=peepholes, layers=2, dense=dense, k2=K2)], [7])
    ids = random_ids(30)
    expected = brute_force(model, ids.tolist(), procedure)
    (nll,) = token_nll(model, [ids], K2, procedure)
    assert nll[:, 0].tolist() == pytest.approx(expected, rel=1e-12)
    (got,) = perplexities(nll)
    assert got.perplexity == pytest.approx(math.exp(np.mean(expected)), rel=1e-12)
    assert got.tokens == 30 - K2


@every_cell
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("rows", [None, 3], ids=["learned", "three-rows"])
@pytest.mark.parametrize("procedure", plugins.names("conditioning"))
def test_runs_scored_together_score_as_alone(
    procedure: str, rows: int | None, layers: int, cell: str, peepholes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run has its own text, length and vocabulary."""
    vocabularies, lengths = [7, 16, 11], [90, 17, K2 + 1]
    runs = [tiny(cell=cell, peepholes=peepholes, layers=layers, k2=K2, seed=m) for m in range(3)]
    texts = [random_ids(n, symbols=V, seed=n) for n, V in zip(lengths, vocabularies, strict=True)]
    model = random_model(runs, vocabularies, "stacked")
    first = None
    if rows:
        first = tuple(
            tuple(random_tensor(3, rows, 5, seed=10 * layer + n) for n, _ in enumerate(state))
            for layer, state in enumerate(model.first_state(1))
        )
    expected = []
    for m, V in enumerate(vocabularies):
        start = tuple(tuple(s[m : m + 1] for s in state) for state in first) if first else None
        expected += token_nll(random_model(runs[m : m + 1], [V], "stacked"), texts[m : m + 1], K2, procedure, start)
    for room in (engine.CHUNK_BYTES, 1):  # and in the smallest of chunks
        monkeypatch.setattr(engine, "CHUNK_BYTES", room)
        together = token_nll(model, texts, K2, procedure, first)
        assert [nll.shape for nll in together] == [(n - K2, rows or 1) for n in lengths]
        for got, alone in zip(together, expected, strict=True):
            check_close(got, alone, 1e-12)


@pytest.mark.parametrize("procedure", plugins.names("conditioning"))
@pytest.mark.parametrize("tokens", [K2 + 1, K2 + 2, 600])
def test_every_token_after_the_first_k2_is_counted(procedure: str, tokens: int) -> None:
    model = random_model([tiny(k2=K2)], [7])
    (nll,) = token_nll(model, [random_ids(tokens)], K2, procedure)
    assert nll.shape == (tokens - K2, 1)
    assert nll.dtype == torch.float64


@pytest.mark.parametrize("procedure", plugins.names("conditioning"))
def test_a_text_no_longer_than_k2_is_refused(procedure: str) -> None:
    with pytest.raises(CorpusError, match=r"more than k2 = 5 tokens\. Got 5"):
        token_nll(random_model([tiny(k2=K2)], [7]), [random_ids(K2)], K2, procedure)


def test_perplexity_carries_its_units_and_counts() -> None:
    p = Perplexity(nats=math.log(8), tokens=10)
    assert p.perplexity == pytest.approx(8)
    assert p.bits_per_token == pytest.approx(3)
    assert Perplexity(nats=1e6, tokens=1).perplexity == math.inf


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """On disk, so that a run finds it again."""
    text = tiny_corpus(tokens=400)
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text(text.vocabulary.decode(text.ids))
    return Corpus.open(str(path))


@pytest.fixture(scope="module", params=["learned", "carried"])
def run(request: pytest.FixtureRequest, corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Run:
    sampling = {"learned": "windowed", "carried": "progressive"}[request.param]
    experiment = tiny(k2=K2, state=request.param, sample=sampling, precision="float32", batches=20, learning_rate=0.02)
    return train(experiment, tmp_path_factory.mktemp("runs") / request.param, corpus)


@pytest.mark.parametrize("procedure", BOTH)
def test_a_run_is_scored_on_its_own_test_set(run: Run, corpus: Corpus, procedure: str) -> None:
    test = corpus.test_ids(0).tolist()
    (got,) = perplexity(run, procedure)
    assert got.tokens == len(test) - K2 == 35
    assert got.perplexity == pytest.approx(math.exp(np.mean(brute_force(run.model, test, procedure))), rel=1e-5)
    assert run.metrics[-1]["perplexity"][procedure] == pytest.approx(got.perplexity, rel=1e-6)


@pytest.mark.parametrize("procedure", BOTH)
def test_scoring_token_by_token_agrees_with_perplexity(run: Run, corpus: Corpus, procedure: str) -> None:
    text = corpus.vocabulary.decode(corpus.test_ids(0))
    logprobs = score(run, text, procedure)
    assert len(logprobs) == len(text) - 1
    (whole,) = perplexity(run, procedure)
    assert -np.mean(logprobs[K2 - 1 :]) == pytest.approx(whole.nats, abs=1e-6)


@pytest.mark.parametrize("procedure", BOTH)
@pytest.mark.parametrize("tokens", [2, K2, K2 + 1, K2 + 2, 3 * K2])
def test_score_gives_a_log_probability_for_every_token_but_the_first(run: Run, procedure: str, tokens: int) -> None:
    text = run.vocabulary.decode(random_ids(tokens).numpy())
    logprobs = score(run, text, procedure)
    assert len(logprobs) == tokens - 1
    assert all(p < 0 for p in logprobs)
    # Each depends on nothing that comes after it.
    for n in range(2, tokens):
        assert score(run, text[:n], procedure) == pytest.approx(logprobs[: n - 1], abs=1e-6)


def test_a_text_too_short_or_foreign_is_refused(run: Run) -> None:
    for text in ("", "a"):
        with pytest.raises(SymbolError, match="at least 2 tokens"):
            score(run, text)
    with pytest.raises(SymbolError, match=r"'Z'.* at position 1"):
        score(run, "aZ")


def test_a_samples_log_probabilities_are_those_that_score_gives(run: Run) -> None:
    drawn = sample(run, prompt="abc", length=20, temperature=0.8, seed=4)
    assert drawn.procedure == run.experiment.scheme.sample
    assert drawn.logprobs == pytest.approx(score(run, "abc" + drawn.text)[2:], abs=1e-5)
    assert sample(run, prompt="abc", length=20, temperature=0.8, seed=4) == drawn


def test_without_a_prompt_a_sample_starts_from_a_stretch_of_the_test_set(run: Run) -> None:
    assert sample(run, length=10, seed=1) == sample(run, length=10, seed=1)


def test_start_carried_gives_one_perplexity_a_row(run: Run) -> None:
    if not run.experiment.scheme.carries:
        with pytest.raises(ConfigurationError, match='start="carried" needs a run with a carried state'):
            perplexity(run, start="carried")
        return
    rows = perplexity(run, start="carried")
    assert len(rows) == run.experiment.rows == 3
    assert len({row.nats for row in rows}) == 3
    ids = torch.from_numpy(text_ids(run, None).astype(np.int64))
    for b, row in enumerate(rows):
        first = tuple(tuple(s[:, b : b + 1] for s in layer) for layer in run.carried)
        (nll,) = token_nll(run.model, [ids], K2, "progressive", first)
        (alone,) = perplexities(nll)
        assert row.nats == pytest.approx(alone.nats, rel=1e-5)
        assert row.tokens == alone.tokens


def test_another_corpus_is_taken_whole_and_the_runs_own_is_split(run: Run, corpus: Corpus) -> None:
    (scored,) = perplexity(run, corpus=corpus.source)
    assert scored == perplexity(run)[0]
    (other,) = perplexity(run, corpus=Corpus.from_text("abcdefg" * 10))
    assert other.tokens == 70 - K2
    (bounded,) = perplexity(run, test_tokens=20)
    assert bounded.tokens == 20 - K2


def test_another_corpuss_rare_symbols_are_read_with_the_runs_vocabulary(tmp_path: Path) -> None:
    """min_count is about the corpus that was trained on: what is rare in another text may be well known to the run."""
    text = Corpus.from_text("abcdefg" * 60 + "xyz", min_count=2)
    run = train(tiny(k2=K2, min_count=2), tmp_path / "run", text)
    (tmp_path / "other.txt").write_text("gfedcbaxgf")
    ids = text_ids(run, str(tmp_path / "other.txt"))
    assert run.vocabulary.decode(ids) == "gfedcba\ufffdgf"


def test_a_run_without_its_corpus_asks_for_one(tmp_path: Path) -> None:
    run = train(tiny(k2=K2), tmp_path / "run", tiny_corpus())
    with pytest.raises(RunError, match="not at hand"):
        perplexity(load(run.path, "cpu"))
    assert perplexity(run, corpus=tiny_corpus()) == perplexity(run, corpus=tiny_corpus())
    with pytest.raises(ConfigurationError, match="Did you mean windowed"):
        perplexity(run, "window", corpus=tiny_corpus())


def test_torch_is_kept_to_one_thread_while_the_parts_of_a_text_are_scored() -> None:
    """Threads of torch that wait for its next operation would take the cores from those that work on the parts."""
    seen: list[int] = []
    model = random_model([tiny()], [7], "reference")
    with torch_threads(2):
        token_nll(model, [random_ids(40)], K2, "windowed", between=lambda: seen.append(torch.get_num_threads()))
        assert torch.get_num_threads() == 2
    assert set(seen) == {1}
