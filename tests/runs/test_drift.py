"""Drift equals a plain loop; on sources of known memory its curve falls where it must and is flat where it must."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import tiny_run, unroll
from helpers import every_cell, tiny, tiny_corpus, torch_threads

from unroll import Corpus, Run, load, perplexity, perplexity_since_reset, train
from unroll.base import randomness
from unroll.base.errors import ConfigurationError, CorpusError, RunError
from unroll.corpus.synthetic import Copy, Markov
from unroll.engines.cpu import engine
from unroll.runs.drift import edges, reach

K2 = 5


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("drift")
    text = tiny_corpus(tokens=900)
    (folder / "text.txt").write_text(text.vocabulary.decode(text.ids))
    return train(tiny(k2=K2, layers=2, batches=10), folder / "run", Corpus.open(str(folder / "text.txt")))


def plain_loop(run: Run, start: int, tokens: int) -> list[float]:
    """−log p of the token after p others, p = 1 … tokens, from the reset state."""
    ids, nll = run.corpus.test_ids(0).tolist(), []
    with torch.inference_mode():
        state = run.model.first_state(1)
        for age in range(1, tokens + 1):
            state = run.model.advance(torch.tensor([[ids[start + age - 1]]]), state)
            logits = run.model.head(state[-1][0].unsqueeze(1))[0, 0, 0]
            nll.append(float(torch.logsumexp(logits, 0) - logits[ids[start + age]]))
    return nll


def stretch_starts(length: int, tokens: int, starts: int, seed: int) -> list[int]:
    possible = length - tokens - K2 + 1
    drawn = randomness.uniform(seed, "drift", 0, starts)
    return [K2 - 1 + int((part + u) * possible / starts) for part, u in enumerate(drawn)]


@pytest.mark.parametrize("room", [engine.CHUNK_BYTES, 1], ids=["at once", "step by step"])
def test_drift_equals_a_plain_loop(run: Run, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "CHUNK_BYTES", room)
    drift = perplexity_since_reset(run, tokens=30, starts=4, seed=3)
    starts = stretch_starts(90, 30, 4, 3)
    rows = np.array([plain_loop(run, start, 30) for start in starts])
    window = np.array([[plain_loop(run, start + age - K2, K2)[-1] for age in range(1, 31)] for start in starts])
    assert (drift.starts, drift.tokens, drift.k2) == (4, 30, K2)
    assert [(b.first, b.last) for b in drift.bins] == edges(30, K2)
    for b in drift.bins:
        nats, other = (values[:, b.first - 1 : b.last].mean(1) for values in (rows, window))
        assert b.predictions == 4 * (b.last - b.first + 1)
        assert b.nats == pytest.approx(nats.mean(), rel=1e-12)
        assert b.error == pytest.approx(nats.std(ddof=1) / 2, rel=1e-9)
        assert b.above == pytest.approx((nats - other).mean(), abs=1e-12)
        assert b.above_error == pytest.approx((nats - other).std(ddof=1) / 2, rel=1e-9, abs=1e-12)
        whole = perplexity(run, "windowed")[0].perplexity
        assert drift.perplexity(b) == pytest.approx(whole * math.exp((nats - other).mean()), rel=1e-12)


def test_torch_is_kept_to_one_thread_while_stretches_are_read(run: Run) -> None:
    seen: list[int] = []
    with torch_threads(2):
        perplexity_since_reset(run, between=lambda: seen.append(torch.get_num_threads()))
        assert torch.get_num_threads() == 2
    assert len(seen) > 1
    assert set(seen) == {1}


def test_the_line_beside_the_curve_is_windowed_perplexity_and_touches_it_at_k2(run: Run) -> None:
    drift = perplexity_since_reset(run, tokens=30, starts=1000)
    (windowed,) = perplexity(run, "windowed")
    assert drift.windowed == windowed
    assert drift.starts == 90 - 30 - K2 + 1, "no more than there are places to start from"
    single = perplexity_since_reset(run, tokens=K2, starts=10_000)
    assert single.starts == 90 - 2 * K2 + 1
    (at_k2,) = (b for b in edges_of_one(run) if b.first == b.last == K2)
    assert at_k2.above == pytest.approx(0, abs=1e-12), "a state of age k2 is what a window has"


def edges_of_one(run: Run) -> tuple:
    """Give every age a bin of its own."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("unroll.runs.drift.PER_OCTAVE", 40)
        return perplexity_since_reset(run, tokens=12, starts=50).bins


@every_cell
@pytest.mark.parametrize("state", ["learned", "carried"])
def test_every_cell_and_state_origin_is_read_from_its_reset_state(
    cell: str, peepholes: str, state: str, tmp_path: Path
) -> None:
    corpus = tiny_corpus(tokens=400)
    run_of_cell = train(tiny(cell=cell, peepholes=peepholes, state=state, k2=K2, batches=2), tmp_path / "run", corpus)
    drift = perplexity_since_reset(run_of_cell, tokens=8, starts=1000, corpus=corpus)
    assert drift.bins[0].predictions == drift.starts == 40 - 8 - K2 + 1
    ids = torch.from_numpy(corpus.test_ids(0).astype(np.int64))
    with torch.inference_mode():
        after = run_of_cell.model.advance(ids[K2 - 1 : -8].unsqueeze(0), run_of_cell.model.first_state(drift.starts))
        logits = run_of_cell.model.head(after[-1][0].unsqueeze(1))[0, 0]
    nll = torch.nn.functional.cross_entropy(logits, ids[K2:-7])
    assert drift.bins[0].nats == pytest.approx(float(nll), rel=1e-9)


@pytest.mark.parametrize("k2", [1, 2, 10, 100, 173])
@pytest.mark.parametrize("tokens", [1, 2, 9, 100, 1000])
def test_bins_lie_end_to_end_grow_with_age_and_none_crosses_k2(k2: int, tokens: int) -> None:
    bins = edges(tokens, k2)
    assert [age for first, last in bins for age in range(first, last + 1)] == list(range(1, tokens + 1))
    if k2 <= tokens:
        assert k2 in [last for _, last in bins]
    assert all(last < 2 * first or last - first <= 1 for first, last in bins)


def test_how_far_it_goes_is_bounded_by_the_text(run: Run) -> None:
    assert reach(11_100, 100) == 1000
    assert reach(1_000, 100) == 449
    assert reach(11_100, 100, 10_999) == 10_999
    for wrong in (0, 11_000):
        with pytest.raises(ConfigurationError, match=r"tokens must be between 1 and 10,999"):
            reach(11_100, 100, wrong)
    with pytest.raises(CorpusError, match=r"more than k2 \+ 1 = 101 tokens"):
        reach(101, 100)
    with pytest.raises(ConfigurationError, match="starts must be at least 2"):
        perplexity_since_reset(run, starts=1)
    with pytest.raises(ConfigurationError, match="seed must be"):
        perplexity_since_reset(run, seed=-1)


def test_the_seed_decides_where_stretches_begin(run: Run) -> None:
    first, again, other = (perplexity_since_reset(run, 20, 10, seed) for seed in (1, 1, 2))
    assert first == again
    assert first.bins != other.bins


def test_a_run_that_diverged_says_so(run: Run) -> None:
    broken = load(run.path, "cpu")
    with torch.no_grad():
        broken.model.parameters["out.W"].fill_(torch.nan)
    with pytest.raises(RunError, match="diverged"):
        perplexity_since_reset(broken)


def test_on_a_chain_that_remembers_two_letters_the_curve_falls_to_the_truth_and_stays_there(tmp_path: Path) -> None:
    source, k2 = Markov(symbols=6, order=2, concentration=0.3), 10
    (tmp_path / "text.txt").write_text(source.text(120_000))
    settings = {"k1": k2, "k2": k2, "hidden": 32, "dense": 32, "rows": 32, "learning_rate": 0.01, "batches": 500}
    experiment = tiny(**settings, precision="float32", test_tokens=300)
    trained = train(experiment, tmp_path / "run", Corpus.open(str(tmp_path / "text.txt")))
    drift = perplexity_since_reset(trained, tokens=20 * k2, starts=600)
    one_letter, *older = drift.bins
    assert one_letter.last == 1
    assert drift.perplexity(one_letter) > 1.2 * source.perplexity, "one letter is not enough to know the next"
    for b in older[1:]:
        assert drift.perplexity(b) == pytest.approx(source.perplexity, rel=0.05)
        assert math.exp(b.nats) == pytest.approx(source.perplexity, rel=5 * b.error + 0.03)
        assert abs(b.above) < max(0.01, 4 * b.above_error), (
            "nothing is gained by more than two letters, and nothing lost"
        )
    assert older[-1].last == 20 * k2


@pytest.mark.slow
def test_a_carried_state_remembers_what_no_window_holds_and_does_not_grow_stale(tmp_path: Path) -> None:
    """The copy source: answers lie up to 32 tokens behind their symbols, and windows hold 10."""
    source, k2 = Copy(symbols=8, gaps=(1, 30)), 10
    (tmp_path / "text.txt").write_text(source.text(200_000))
    settings = {"k1": k2, "k2": k2, "hidden": 32, "dense": 32, "rows": 32, "learning_rate": 0.01, "batches": 3000}
    experiment = tiny(**settings, state="carried", sample="progressive", precision="float32", test_tokens=300)
    trained = train(experiment, tmp_path / "run", Corpus.open(str(tmp_path / "text.txt")))
    drift = perplexity_since_reset(trained, tokens=100 * k2, starts=600)
    fresh = next(b for b in drift.bins if b.last == k2)
    old = [b for b in drift.bins if b.first > 4 * k2]
    assert all(b.above < fresh.above - 0.1 for b in old), "an old state knows more than a window"
    assert max(b.above for b in old) - min(b.above for b in old) < 0.05, "and as much at any age"


def test_read_from_everywhere_both_ways_of_averaging_agree(run: Run) -> None:
    """The comparison with windows takes chance out, and nothing else."""
    drift = perplexity_since_reset(run, tokens=10, starts=1000)
    for b in drift.bins:
        assert drift.perplexity(b) == pytest.approx(math.exp(b.nats), rel=0.05)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    first, second = (tmp_path_factory.mktemp(name) for name in ("one", "other"))
    return [tiny_run(first), tiny_run(second, "--scheme", 4)]


def test_the_command_prints_a_table_a_run_and_draws_a_picture(two: list[Path], tmp_path: Path) -> None:
    result = unroll("drift", *two, "--starts", 20, "--out", tmp_path / "drift.png")
    assert result.code == 0, result.err
    blocks = result.out.split("\n\n")
    assert len(blocks) == 2
    for block, (path, scheme) in zip(blocks, zip(two, (1, 4), strict=True), strict=True):
        drift = perplexity_since_reset(load(path), starts=20)
        first, second, _, *rows = block.splitlines()
        assert first.startswith(f"{path.parent.name}/run: corpus")
        assert f"the paper's scheme {scheme}" in first
        assert second.startswith("20 stretches of 100 tokens")
        assert len(rows) == len(drift.bins)
        assert [row for row in rows if row.endswith("← k2")] == [rows[edges(100, 10).index((8, 10))]]
    assert (tmp_path / "drift.png").read_bytes().startswith(b"\x89PNG")


def test_json_is_one_object_that_agrees_with_python(two: list[Path]) -> None:
    content = json.loads(unroll("drift", *two, "--starts", 20, "--tokens", 40, "--seed", 7, "--json").out)
    for facts, path in zip(content["runs"], two, strict=True):
        drift = perplexity_since_reset(load(path), 40, 20, 7)
        assert (facts["run"], facts["tokens"], facts["starts"], facts["k2"]) == (str(path), 40, 20, 10)
        assert facts["windowed"] == drift.windowed.perplexity
        assert [b["nats"] for b in facts["bins"]] == [b.nats for b in drift.bins]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--tokens", 0], "tokens must be between 1 and 289"),
        (["--tokens", 5000], "Got 5,000"),
        (["--starts", 1], "starts must be at least 2"),
        (["--out", "x.bmp"], "--out must end in .png"),
        (["--out", "no/x.png"], "is no folder"),
        (["--corpus", "nothing.txt"], "No such file"),
    ],
)
def test_what_cannot_be_measured_is_refused(two: list[Path], options: list[object], words: str) -> None:
    result = unroll("drift", two[0], *options)
    assert (result.code, result.out) == (2, "")
    assert words in result.err


def test_a_run_named_twice_and_one_that_is_none_are_refused(two: list[Path], tmp_path: Path) -> None:
    assert "named twice" in unroll("drift", two[0], two[0]).err
    assert unroll("drift", two[0], tmp_path / "none").code == 2
