"""What a model thinks of a text agrees with perplexity, with sampling and with a plain loop; and it adds up."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import random_ids, tiny, tiny_corpus

from unroll import Corpus, Run, perplexity, sample, score, surprisals, train
from unroll.base.errors import ConfigurationError, RunError, SymbolError
from unroll.corpus.tokens import Vocabulary
from unroll.engines.cpu import engine
from unroll.model import conditioning
from unroll.runs.scoring import legible, predicted_bytes, scored_chunks

K2 = 5
both = pytest.mark.parametrize("procedure", ["windowed", "progressive"])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """On disk, so that a run finds it again."""
    text = tiny_corpus(tokens=900)
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text(text.vocabulary.decode(text.ids))
    return Corpus.open(str(path))


@pytest.fixture(scope="module", params=["float32", "float64"])
def run(request: pytest.FixtureRequest, corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Run:
    experiment = tiny(k2=K2, layers=2, precision=request.param, batches=30, learning_rate=0.02)
    return train(experiment, tmp_path_factory.mktemp("runs") / request.param, corpus)


def text_of_test_set(run: Run) -> str:
    return run.vocabulary.decode(run.corpus.test_ids(run.experiment.split_seed))


def read_token_by_token(run: Run, ids: list[int], procedure: str) -> list[float]:
    """log p of every token but the first, read as sampling reads: begin, then one token after the other."""
    procedure_module, logprobs = conditioning.load(procedure), []
    with torch.inference_mode():
        memory = procedure_module.begin(run.model, K2, 1)
        for token, following in pairwise(ids):
            h_BH, memory = procedure_module.read(run.model, memory, torch.tensor([token]))
            logits = run.model.head(h_BH.view(1, 1, 1, -1))[0, 0, 0].double()
            logprobs.append(float(torch.log_softmax(logits, 0)[following]))
    return logprobs


@both
def test_scoring_the_test_set_gives_the_perplexity_of_eval(run: Run, procedure: str) -> None:
    (whole,) = perplexity(run, procedure)
    scored = surprisals(run, text_of_test_set(run), sample=procedure)
    judged = [token.logprob for token in scored.tokens[K2 - 1 :]]
    assert len(judged) == whole.tokens
    assert math.exp(-np.mean(judged)) == pytest.approx(whole.perplexity, rel=1e-6)
    assert [token.logprob for token in scored.tokens] == score(run, text_of_test_set(run), procedure)


@both
def test_reading_token_by_token_as_sampling_does_gives_the_same(run: Run, procedure: str) -> None:
    ids = run.corpus.test_ids(run.experiment.split_seed).tolist()
    read = read_token_by_token(run, ids, procedure)
    assert score(run, text_of_test_set(run), procedure) == pytest.approx(read, abs=1e-5)
    (whole,) = perplexity(run, procedure)
    assert math.exp(-np.mean(read[K2 - 1 :])) == pytest.approx(whole.perplexity, rel=1e-6)


def test_for_the_first_k2_tokens_both_procedures_are_one_and_then_they_part(run: Run) -> None:
    windowed, progressive = (score(run, text_of_test_set(run), procedure) for procedure in ("windowed", "progressive"))
    assert windowed[: K2 - 1] == progressive[: K2 - 1]
    assert windowed[K2 - 1] == pytest.approx(progressive[K2 - 1], abs=1e-6), "a whole window is still the whole text"
    assert windowed[K2] != pytest.approx(progressive[K2], abs=1e-6)


@pytest.mark.parametrize("k2", [1, 2])
@both
def test_the_shortest_windows_are_scored_too(k2: int, procedure: str, corpus: Corpus, tmp_path: Path) -> None:
    short = train(tiny(k1=1, k2=k2, batches=3), tmp_path / "run", corpus)
    text = text_of_test_set(short)
    (whole,) = perplexity(short, procedure)
    logprobs = score(short, text, procedure)
    assert len(logprobs) == len(text) - 1
    assert -np.mean(logprobs[k2 - 1 :]) == pytest.approx(whole.nats, rel=1e-12)
    assert len(score(short, text[:2], procedure)) == 1


def test_the_schemes_own_procedure_is_the_default(run: Run) -> None:
    scored = surprisals(run, text_of_test_set(run))
    assert scored.procedure == run.experiment.scheme.sample == "windowed"
    assert scored == surprisals(run, text_of_test_set(run), sample="windowed")


def test_alternatives_are_the_likeliest_tokens_and_all_of_them_make_one(run: Run) -> None:
    text = text_of_test_set(run)[:40]
    everything = surprisals(run, text, alternatives=1000)
    few = surprisals(run, text, alternatives=3)
    for token, short in zip(everything.tokens, few.tokens, strict=True):
        odds = {a.symbol: a.probability for a in token.alternatives}
        assert len(odds) == len(run.vocabulary) == 7, "padded symbols are no alternatives"
        assert sum(odds.values()) == pytest.approx(1, abs=1e-9)
        assert list(odds.values()) == sorted(odds.values(), reverse=True)
        assert math.log(odds[token.symbol]) == pytest.approx(token.logprob, abs=1e-9)
        assert short.alternatives == token.alternatives[:3]
        assert token.alternatives[token.rank - 1].symbol == token.symbol
        assert token.bits == pytest.approx(-math.log2(odds[token.symbol]))


def test_alternatives_of_the_next_token_are_the_odds_it_is_drawn_with(run: Run) -> None:
    drawn = sample(run, prompt="abc", length=10, temperature=0, seed=1)
    scored = surprisals(run, "abc" + drawn.text)
    assert [token.alternatives[0].symbol for token in scored.tokens[2:]] == list(drawn.text), "argmax takes the first"


def test_totals_add_up_and_carry_their_units(run: Run) -> None:
    scored = surprisals(run, text_of_test_set(run))
    total, bits = scored.total, [token.bits for token in scored.tokens]
    assert total.tokens == total.bytes == len(text_of_test_set(run)) - 1
    assert total.log_probability == pytest.approx(sum(token.logprob for token in scored.tokens))
    assert total.bits_per_token == total.bits_per_byte == pytest.approx(np.mean(bits))
    assert total.perplexity == pytest.approx(2 ** np.mean(bits))
    assert scored.first + "".join(token.symbol for token in scored.tokens) == text_of_test_set(run)
    with pytest.raises(FrozenInstanceError):
        scored.first = "x"


@pytest.mark.parametrize(
    ("kind", "text", "first"),
    [
        ("chars", "naïve café, \U0001d11e\n", 1),
        ("bytes", "naïve café, \U0001d11e\n", 1),
        ("words", "naïve café, \U0001d11e ja\n", len("naïve".encode())),
        ("ids", "a bb\nccc d\n\ne", 1),
        ("notes", "60 62\n64 65\n", 2),
    ],
)
def test_bytes_are_those_of_the_text_without_its_first_token(
    kind: str, text: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocabulary = Vocabulary.of(text, kind)
    ids = vocabulary.encode(text)
    for at_a_time in (1, 2, 1000):
        monkeypatch.setattr("unroll.runs.scoring.RENDERED", at_a_time)
        assert predicted_bytes(vocabulary, ids) == len(text.encode()) - first


def test_bits_per_byte_compare_kinds_of_token(tmp_path: Path) -> None:
    """The same text as characters and as bytes: other tokens, as many bytes."""
    text = "ää öö åå " * 60
    totals = {}
    for kind in ("chars", "bytes"):
        run_of_kind = train(tiny(kind=kind, batches=3), tmp_path / kind, Corpus.from_text(text, kind=kind))
        totals[kind] = surprisals(run_of_kind, text).total
    assert totals["chars"].tokens == len(text) - 1
    assert totals["bytes"].tokens == len(text.encode()) - 1
    assert abs(totals["chars"].bytes - totals["bytes"].bytes) <= 1, "but for the first token, which is not predicted"
    for total in totals.values():
        assert total.bits_per_byte * total.bytes == pytest.approx(total.bits_per_token * total.tokens)


@both
def test_a_long_text_passes_in_stretches_that_do_not_change_it(
    run: Run, procedure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = random_ids(1500).numpy()
    whole = np.concatenate([s.nats_n for s in scored_chunks(run, ids, procedure)])
    monkeypatch.setattr(engine, "CHUNK_BYTES", 40 * 16 * 8)
    small = list(scored_chunks(run, ids, procedure, 2))
    assert max(len(s.nats_n) for s in small) <= 64
    assert [s.start for s in small] == np.cumsum([1, *(len(s.nats_n) for s in small)])[:-1].tolist()
    assert np.concatenate([s.nats_n for s in small]) == pytest.approx(whole, abs=1e-6)


@both
def test_scoring_waits_for_its_reader(run: Run, procedure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of any length needs the memory of one chunk."""
    calls, read = [], run.model.read
    monkeypatch.setattr(run.model, "read", lambda *arguments: calls.append(1) or read(*arguments))
    scoring = scored_chunks(run, random_ids(30_000).numpy(), procedure)
    next(scoring)
    next(scoring)
    assert len(calls) == 2
    assert torch.is_grad_enabled(), "what holds while it computes does not hold for its reader"


@pytest.mark.parametrize("text", ["", "a"])
def test_a_text_without_two_tokens_is_refused(run: Run, text: str) -> None:
    with pytest.raises(SymbolError, match=f"at least 2 tokens. Got {len(text)}"):
        surprisals(run, text)


def test_what_the_run_does_not_know_is_named_with_its_place(run: Run) -> None:
    with pytest.raises(SymbolError, match=r"'Z'.* at position 3"):
        surprisals(run, "abcZ")
    with pytest.raises(ConfigurationError, match="Did you mean windowed"):
        surprisals(run, "abc", sample="window")
    with pytest.raises(ConfigurationError, match=r"alternatives must be at least 0\. Got -1"):
        surprisals(run, "abc", alternatives=-1)


def test_a_run_that_diverged_says_so(corpus: Corpus, tmp_path: Path) -> None:
    broken = train(tiny(k2=K2, batches=2), tmp_path / "run", corpus)
    with torch.no_grad():
        broken.model.parameters["out.W"].fill_(torch.nan)
    for asked in (score, surprisals):
        with pytest.raises(RunError, match="diverged"):
            asked(broken, "abcdefg")


def test_a_reader_sees_every_byte_by_its_character_or_its_number() -> None:
    vocabulary = Vocabulary.of("aä\n", "bytes")
    assert list(legible(vocabulary, vocabulary.encode("aä\n"))) == ["a", "\\xc3", "\\xa4", "\n"]
    notes = Vocabulary.of("60 62\n64", "notes")
    assert "".join(legible(notes, notes.encode("60 62\n64"))) == "60 62\n64"
