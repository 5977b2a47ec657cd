"""A stream draws from the same probabilities, bit for bit, alone and among others, whatever their order and number."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
import torch
from helpers import CELL_VARIANTS, every_cell, random_model, tiny, unlike_streams

from unroll.base.errors import RunError
from unroll.experiment.decoding import Decoding
from unroll.model import steppers
from unroll.model.conditioning import PROCEDURES
from unroll.model.model import Model
from unroll.sampling.host_loop import Stream, generate

K2, V = 6, 11
DECODINGS = (
    Decoding(),
    Decoding(0.7),
    Decoding(1.3, top_k=4),
    Decoding(top_p=0.9),
    Decoding(min_p=0.05),
    Decoding(0.0),
)


def one_model(
    cell: str = "lstm",
    peepholes: str = "paper",
    layers: int = 1,
    precision: str = "float64",
    hidden: int = 13,
    dense: int | None = None,
) -> Model:
    dense = 8 * hidden if dense is None else dense
    shape = {"cell": cell, "peepholes": peepholes, "layers": layers, "hidden": hidden, "dense": dense}
    return random_model([tiny(k2=K2, precision=precision, **shape)], [V])


def mixed_streams(count: int) -> list[Stream]:
    return unlike_streams(count, DECODINGS, V, K2, longest=7)


def probabilities(model: Model, streams: list[Stream], procedure: str) -> list[tuple[list[int], torch.Tensor]]:
    """For each stream its tokens, and the model's probabilities at every one of its steps."""
    ids, steps = defaultdict(list), defaultdict(list)
    for drawn in generate(model, streams, K2, procedure):
        p_BV = torch.softmax(torch.from_numpy(drawn.logits_BV), -1)
        for place, token, p_V in zip(drawn.streams, drawn.ids, p_BV, strict=True):
            ids[place].append(token)
            steps[place].append(p_V)
    return [(ids[place], torch.stack(steps[place])) for place in range(len(streams))]


def check_same(got: tuple[list[int], torch.Tensor], expected: tuple[list[int], torch.Tensor]) -> None:
    assert got[0] == expected[0]
    assert torch.equal(got[1], expected[1])


@every_cell
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("procedure", PROCEDURES)
def test_100_streams_draw_alone_what_they_draw_in_one_batch_in_any_order(
    procedure: str, layers: int, precision: str, cell: str, peepholes: str
) -> None:
    model, streams = one_model(cell, peepholes, layers, precision), mixed_streams(100)
    together = probabilities(model, streams, procedure)
    assert [len(ids) for ids, _ in together] == [stream.length for stream in streams]
    order = np.random.default_rng(0).permutation(len(streams))
    shuffled = probabilities(model, [streams[n] for n in order], procedure)
    for place, n in enumerate(order):
        check_same(shuffled[place], together[n])
    for n, stream in enumerate(streams):
        check_same(probabilities(model, [stream], procedure)[0], together[n])


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("procedure", PROCEDURES)
@pytest.mark.parametrize(("hidden", "dense"), [(1, 8), (5, 40), (24, 192), (128, 1024), (13, 0), (128, 0)])
def test_a_model_of_any_size_draws_alone_what_it_draws_in_a_batch(
    procedure: str, precision: str, hidden: int, dense: int
) -> None:
    model, streams = one_model(precision=precision, hidden=hidden, dense=dense), mixed_streams(100)
    together = probabilities(model, streams, procedure)
    for n in range(0, 100, 7):
        check_same(probabilities(model, [streams[n]], procedure)[0], together[n])


@pytest.mark.parametrize("procedure", PROCEDURES)
@pytest.mark.parametrize("rows", [1, 3, 65])
def test_streams_that_wait_for_a_row_draw_what_they_would_have_drawn_at_once(
    procedure: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, streams = one_model(), mixed_streams(70)
    at_once = probabilities(model, streams, procedure)
    monkeypatch.setattr(steppers, "MOST_ROWS", rows)
    for got, expected in zip(probabilities(model, streams, procedure), at_once, strict=True):
        check_same(got, expected)


@pytest.mark.parametrize("procedure", PROCEDURES)
def test_a_stream_that_ends_early_leaves_the_others_as_they_were(procedure: str) -> None:
    model, streams = one_model(), [s for s in mixed_streams(40) if s.length > 2]
    whole = probabilities(model, streams, procedure)
    drawn = defaultdict(list)

    def ends(place: int, token: int) -> bool:
        return place % 3 == 0 and len(drawn[place]) == 2

    for step in generate(model, streams, K2, procedure, ends):
        for place, token in zip(step.streams, step.ids, strict=True):
            drawn[place].append(token)
    for place, (ids, _) in enumerate(whole):
        assert drawn[place] == (ids[:2] if place % 3 == 0 else ids)


@pytest.mark.parametrize("procedure", PROCEDURES)
def test_another_seed_or_prompt_is_another_text(procedure: str) -> None:
    model = one_model()
    prompts = (np.array([1, 2, 3]), np.array([3, 2, 4]))
    texts = {
        tuple(probabilities(model, [Stream(p, 40, Decoding(), seed)], procedure)[0][0])
        for p in prompts
        for seed in (1, 2)
    }
    assert len(texts) == 4


@pytest.mark.parametrize("procedure", PROCEDURES)
def test_of_a_long_prompt_a_window_reads_only_the_last_k2_tokens(procedure: str) -> None:
    model, prompt = one_model(), np.random.default_rng(1).integers(V, size=4 * K2)
    whole, last = (probabilities(model, [Stream(p, 5, Decoding(), 1)], procedure)[0] for p in (prompt, prompt[-K2:]))
    assert torch.equal(whole[1], last[1]) == (procedure == "windowed")


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_weights_that_are_not_numbers_are_told_of(bad: float, precision: str) -> None:
    model = one_model(precision=precision)
    for name in ("dense.W", "out.W"):
        model.parameters[name].data.fill_(bad)
    if bad == 1e30 and precision == "float64":
        assert list(generate(model, [Stream(np.array([1]), 3, Decoding(), 0)], K2, "progressive"))
        return
    with pytest.raises(RunError, match="diverged"):
        list(generate(model, [Stream(np.array([1]), 3, Decoding(), 0)], K2, "progressive"))


def test_nothing_asked_is_nothing_drawn() -> None:
    assert list(generate(one_model(), [], K2, "windowed")) == []


# --- rolling windows against windows read again ---------------------------------------------------------------------


@every_cell
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("k2", [9, 20])
@pytest.mark.parametrize("decoding", [Decoding(0.0), Decoding(1.2)], ids=["argmax", "drawn"])
def test_rolling_windows_draw_500_tokens_as_windows_read_again(
    cell: str, peepholes: str, layers: int, k2: int, decoding: Decoding
) -> None:
    model = random_model([tiny(cell=cell, peepholes=peepholes, layers=layers, k2=k2)], [V], scale=1.0)
    # Prompts shorter than k2, as long, and longer.
    generator = np.random.default_rng(k2)
    streams = [Stream(generator.integers(V, size=n), 500, decoding, 5 + n) for n in (1, k2 - 2, k2, 2 * k2 + 3)]
    steps = [list(generate(model, streams, k2, name)) for name in ("windowed", "windowed-naive")]
    for rolling, naive in zip(*steps, strict=True):
        assert (rolling.streams, rolling.ids) == (naive.streams, naive.ids)
        p, q = (torch.softmax(torch.from_numpy(step.logits_BV), -1) for step in (rolling, naive))
        assert (p - q).abs().max() < 1e-12


def test_every_cell_is_among_the_variants() -> None:
    assert {cell for cell, _ in CELL_VARIANTS} == {"lstm", "gru", "rnn"}
