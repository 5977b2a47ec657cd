"""Sampling on a CUDA device: the model's probabilities, `choosing`'s choice, and each stream as if it were alone."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import every_cell, random_model, tiny, unlike_streams

from unroll.base.errors import RunError
from unroll.engines.choice import engine_of
from unroll.engines.cuda.steppers import device_steps
from unroll.engines.cuda.steppers.machine import Machine
from unroll.engines.torch import stepper as torch_stepper
from unroll.experiment.decoding import Decoding
from unroll.model import steppers
from unroll.model.model import Model
from unroll.sampling.beams import beam_search
from unroll.sampling.host_loop import Stream, generate
from unroll.sampling.pick_token import Uniforms, choose

CUDA = torch.device("cuda")
K2, V = 6, 11
PROCEDURES = ("progressive", "windowed")
# Of a probability, against float64 with the same weights: float32 rounds to 6·10⁻⁸, and a few hundred terms a sum,
# two layers and a state that runs on make some dozens of that, if the weights do not make small differences grow.
BOUND = 2e-5
DECODINGS = (
    Decoding(),
    Decoding(0.7),
    Decoding(1.3, top_k=4),
    Decoding(top_p=0.9),
    Decoding(min_p=0.05),
    Decoding(0.0),
    Decoding(0.8, top_k=8, top_p=0.95, min_p=0.02),
)


def models(
    cell: str = "lstm",
    peepholes: str = "paper",
    layers: int = 1,
    hidden: int = 40,
    dense: int = 70,
    symbols: int = V,
    scale: float = 0.3,
) -> tuple[Model, Model]:
    """A model on the GPU in float32, and the same weights on the CPU in float64."""
    shape = {"cell": cell, "peepholes": peepholes, "layers": layers, "hidden": hidden, "dense": dense, "k2": K2}
    small = random_model([tiny(precision="float32", **shape)], [symbols], scale=scale)
    values = [small.values(0)]
    on_gpu = Model.stacked(
        [replace(small.experiments[0], device="cuda")], [symbols], values, engine_of(CUDA, "stacked")
    )
    return on_gpu, Model.stacked(
        [tiny(precision="float64", **shape)], [symbols], values, engine_of(torch.device("cpu"), "stacked")
    )


def mixed_streams(count: int, symbols: int = V) -> list[Stream]:
    return unlike_streams(count, DECODINGS, symbols, K2, longest=30)


def texts(model: Model, streams: list[Stream], procedure: str, *ends) -> list[list[tuple[int, float]]]:
    """The tokens of each stream with their log-probabilities, to the last bit."""
    by_stream = defaultdict(list)
    for drawn in generate(model, streams, K2, procedure, *ends):
        for stream, token, logprob in zip(drawn.streams, drawn.ids, drawn.logprobs, strict=True):
            by_stream[stream].append((token, logprob))
    return [by_stream[stream] for stream in range(len(streams))]


def softmax(logits_BV: np.ndarray) -> np.ndarray:
    return torch.softmax(torch.from_numpy(logits_BV.astype(np.float64)), -1).numpy()


def check_alike(fast: steppers.Stepper, truth: steppers.Stepper) -> None:
    assert np.abs(softmax(fast.logits()) - softmax(truth.logits())).max() < BOUND


@every_cell
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("procedure", [*PROCEDURES, "windowed-naive"])
def test_steps_give_the_samplers_probabilities(procedure: str, layers: int, cell: str, peepholes: str) -> None:
    on_gpu, truth_model = models(cell, peepholes, layers)
    for rows in (1, 3, 11, 21):
        fast, truth = (
            on_gpu.engine.rows(on_gpu, K2, procedure, rows),
            truth_model.engine.rows(truth_model, K2, procedure, rows),
        )
        assert type(fast) is (device_steps.NaiveWindows if procedure == "windowed-naive" else device_steps.Steps)
        fast.begin(rows)
        truth.begin(rows)
        for ids_B in np.random.default_rng(0).integers(V, size=(2 * K2 + 1, rows)):
            fast.read(ids_B)
            truth.read(ids_B)
            check_alike(fast, truth)


@pytest.mark.parametrize("procedure", [*PROCEDURES, "windowed-naive"])
@pytest.mark.parametrize("taken", [[2, 0], [0, 0, 0, 1], [2, 1, 0]], ids=str)
def test_rows_are_begun_anew_dropped_moved_and_copied(procedure: str, taken: list[int]) -> None:
    both = [model.engine.rows(model, K2, procedure, 4) for model in models(layers=2)]
    generator = np.random.default_rng(1)

    def read(rows: int, times: int) -> None:
        for ids_B in generator.integers(V, size=(times, rows)):
            for stepper in both:
                stepper.read(ids_B)
            check_alike(*both)

    for stepper in both:
        stepper.begin(3)
    read(3, K2 - 2)
    for stepper in both:
        stepper.restart([1])
    read(3, K2 + 3)
    for stepper in both:
        stepper.take(taken)
    check_alike(*both)
    read(len(taken), 2 * K2)


@every_cell
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("procedure", PROCEDURES)
def test_100_streams_draw_alone_what_they_draw_in_one_batch(
    procedure: str, layers: int, cell: str, peepholes: str
) -> None:
    model, streams = models(cell, peepholes, layers)[0], mixed_streams(100)
    together = texts(model, streams, procedure)
    assert [len(text) for text in together] == [stream.length for stream in streams]
    order = np.random.default_rng(0).permutation(100)
    shuffled = texts(model, [streams[n] for n in order], procedure)
    assert shuffled == [together[n] for n in order]
    for few in (1, 2, 7, 16, 30):  # each number of rows a warp does at once, and few and many streams
        assert texts(model, streams[:few], procedure) == together[:few]
    for n, stream in enumerate(streams):
        assert texts(model, [stream], procedure) == [together[n]]


@pytest.mark.parametrize("procedure", PROCEDURES)
@pytest.mark.parametrize(("hidden", "dense"), [(1, 1), (5, 33), (128, 256), (512, 1024), (1500, 64)])
def test_a_model_of_any_size_draws_alone_what_it_draws_in_a_batch(procedure: str, hidden: int, dense: int) -> None:
    model, streams = models(hidden=hidden, dense=dense)[0], mixed_streams(100)
    together = texts(model, streams, procedure)
    for n in range(0, 100, 9):
        assert texts(model, [streams[n]], procedure) == [together[n]]


@every_cell
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("hidden", [40, 512])
def test_many_windows_of_a_stream_draw_alone_what_they_draw_in_a_batch(
    cell: str, peepholes: str, layers: int, hidden: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("test_sampling_gpu.K2", 37)
    model = models(cell, peepholes, layers, hidden)[0]
    streams = [replace(stream, length=90) for stream in mixed_streams(9)]
    together = texts(model, streams, "windowed")
    for n, stream in enumerate(streams):
        assert texts(model, [stream], "windowed") == [together[n]]


@pytest.mark.parametrize(
    ("k2", "layers", "hidden", "symbols"),
    [(17, 1, 20, 11), (37, 3, 96, 11), (100, 1, 512, 11), (100, 2, 512, 120), (250, 2, 128, 11), (250, 1, 600, 85)],
)
def test_a_streams_windows_may_change_between_alone_and_in_a_batch_and_stay_what_they_are(
    k2: int, layers: int, hidden: int, symbols: int
) -> None:
    model = models(layers=layers, hidden=hidden, symbols=symbols, scale=0.1)[0]
    alone, batch = (device_steps.Steps(Machine(model, k2, rolling=True)) for _ in range(2))
    assert torch.cuda.get_device_capability()[0] != 9 or alone._machine._one.kernel == "windows", "or this shows little"
    alone.begin(1)
    batch.begin(3)
    for step, ids_B in enumerate(np.random.default_rng(1).integers(symbols, size=(k2 + 40, 3))):
        if step == k2 - 20:  # and on, the other way round
            batch.take([1])
            alone.take([0, 0, 0])
            alone, batch = batch, alone
        alone.read(ids_B[1:2])
        batch.read(ids_B)
        assert np.array_equal(alone.logits()[0], batch.logits()[1])


@pytest.mark.parametrize(("cell", "layers", "hidden"), [("lstm", 1, 512), ("lstm", 2, 512), ("gru", 3, 128)])
def test_ten_thousand_tokens_of_a_streams_windows_are_those_that_it_draws_in_a_batch(
    cell: str, layers: int, hidden: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("test_sampling_gpu.K2", 100)
    model = models(cell, "paper" if cell == "lstm" else "off", layers, hidden, scale=0.1)[0]
    streams = [replace(stream, length=10_000) for stream in mixed_streams(2)]
    assert texts(model, streams[:1], "windowed") == texts(model, streams, "windowed")[:1]


@pytest.mark.parametrize("procedure", PROCEDURES)
def test_streams_that_wait_or_end_early_leave_the_others_as_they_were(
    procedure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, streams = models()[0], mixed_streams(70)
    whole = texts(model, streams, procedure)

    def ends(place: int, token: int) -> bool:
        return place % 3 == 0 and token == 2

    def cut(place: int) -> list[tuple[int, float]]:
        stop = next((n for n, (token, _) in enumerate(whole[place]) if ends(place, token)), len(whole[place]))
        return whole[place][: stop + 1]

    for rows in (1, 5, 65):
        monkeypatch.setattr(steppers, "MOST_ROWS", rows)
        assert texts(model, streams, procedure, ends) == [cut(place) for place in range(70)]


@pytest.mark.parametrize("layers", [1, 2])
@every_cell
def test_rolling_windows_are_windows_read_again_by_the_same_products_to_the_last_bit(
    cell: str, peepholes: str, layers: int
) -> None:
    model, _ = models(cell, peepholes, layers)
    rolling = model.engine.rows(model, K2, "windowed", 3)
    again = device_steps.NaiveWindows(Machine(model, 1, rolling=False, in_halves=True), K2)
    for stepper in (rolling, again):
        stepper.begin(3)
    for ids_B in np.random.default_rng(3).integers(V, size=(5 * K2, 3)):
        rolling.read(ids_B)
        again.read(ids_B)
        assert np.array_equal(rolling.logits(), again.logits())


@pytest.mark.parametrize("layers", [1, 2])
@every_cell
def test_rolling_windows_draw_what_windows_read_again_draw(cell: str, peepholes: str, layers: int) -> None:
    model, streams = models(cell, peepholes, layers)[0], mixed_streams(20)
    rolling, again = (texts(model, streams, name) for name in ("windowed", "windowed-naive"))
    for one, other in zip(rolling, again, strict=True):
        assert [token for token, _ in one] == [token for token, _ in other]
        assert np.allclose([logprob for _, logprob in one], [logprob for _, logprob in other], rtol=0, atol=1e-5)


def test_windows_of_weights_that_are_too_large_for_the_matrix_units_are_multiplied_without_them() -> None:
    on_gpu, truth_model = models(layers=2)
    for model in (on_gpu, truth_model):
        model.parameters["layers.1.W_h"].data[0, 3, 5] = 40_000.0
    streams = mixed_streams(30)
    together = texts(on_gpu, streams, "windowed")
    assert [texts(on_gpu, [stream], "windowed")[0] for stream in streams] == together
    fast, truth = (model.engine.rows(model, K2, "windowed", 5) for model in (on_gpu, truth_model))
    for stepper in (fast, truth):
        stepper.begin(5)
    for ids_B in np.random.default_rng(0).integers(V, size=(2 * K2, 5)):
        fast.read(ids_B)
        truth.read(ids_B)
        assert np.abs(softmax(fast.logits()) - softmax(truth.logits())).max() < 1e-2


@pytest.mark.parametrize("symbols", [2, 11, 85, 1000])
@pytest.mark.parametrize("count", [3, 300])
def test_tokens_are_those_that_choosing_chooses_from_the_same_logits_and_random_numbers(
    symbols: int, count: int
) -> None:
    model, _ = models(symbols=symbols)
    streams = [replace(stream, length=40) for stream in mixed_streams(count, symbols)]
    drawn = texts(model, streams, "progressive")
    stepper = model.engine.rows(model, K2, "progressive", count)
    # All prompts end at the same step, so that all rows read on together.
    longest = max(len(stream.prompt) for stream in streams)
    stepper.begin(count)
    for step in range(longest):
        begins = [n for n, stream in enumerate(streams) if longest - len(stream.prompt) == step]
        stepper.restart(begins)
        places = [step - longest + len(stream.prompt) for stream in streams]
        stepper.read(np.array([s.prompt[p] if p >= 0 else 0 for s, p in zip(streams, places, strict=True)]))
    uniforms, decodings = [Uniforms(stream.seed) for stream in streams], [stream.decoding for stream in streams]
    for step in range(40):
        ids, logprobs = choose(stepper.logits().astype(np.float64), decodings, [next(u) for u in uniforms])
        assert [text[step][0] for text in drawn] == ids
        assert np.allclose([text[step][1] for text in drawn], logprobs, rtol=0, atol=1e-12)
        stepper.read(np.array(ids))


def test_symbols_that_are_equally_likely_are_cut_as_choosing_cuts_them() -> None:
    model, _ = models(symbols=10)
    for name in ("dense.W", "out.W", "out.b"):
        model.parameters[name].data.fill_(0.0)
    for decoding in (Decoding(top_p=0.55), Decoding(top_k=3), Decoding(top_p=0.05), Decoding(top_p=1.0), Decoding(0.0)):
        ids = [token for token, _ in texts(model, [Stream(np.array([1]), 300, decoding, 5)], "progressive")[0]]
        uniforms = Uniforms(5)
        assert ids == [choose(np.zeros((1, 10)), [decoding], [next(uniforms)])[0][0] for _ in ids]


@pytest.mark.parametrize("procedure", PROCEDURES)
def test_log_probabilities_on_the_gpu_are_those_on_the_cpu(procedure: str) -> None:
    on_gpu, truth_model = models(layers=2, hidden=128, dense=200, scale=0.1)
    streams = [replace(stream, length=100) for stream in mixed_streams(7)]
    for text, stream in zip(texts(on_gpu, streams, procedure), streams, strict=True):
        truth = torch_stepper.Rows(truth_model, K2, procedure)
        truth.begin(1)
        for token in stream.prompt:
            truth.read(np.array([token]))
        for token, logprob in text:
            assert abs(np.exp(logprob) - softmax(truth.logits())[0, token]) < BOUND
            truth.read(np.array([token]))


@pytest.mark.parametrize("procedure", [*PROCEDURES, "windowed-naive"])
def test_beams_on_the_gpu_are_those_on_the_cpu(procedure: str) -> None:
    found = [beam_search(model, np.array([1, 2, 3]), K2, procedure, 4, 12) for model in models(hidden=32)]
    assert [h.ids for h in found[0]] == [h.ids for h in found[1]]
    assert np.allclose([h.total for h in found[0]], [h.total for h in found[1]], atol=1e-3)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_numbers_are_told_of(bad: float) -> None:
    model, _ = models()
    model.parameters["out.W"].data.fill_(bad)
    with pytest.raises(RunError, match="diverged"):
        texts(model, [Stream(np.array([1]), 3, Decoding(), 0)], "progressive")


def test_the_model_may_change_afterwards_without_changing_what_was_prepared() -> None:
    model, _ = models()
    stepper = model.engine.rows(model, K2, "progressive", 1)
    found = []
    for _ in range(2):
        stepper.begin(1)
        stepper.read(np.array([1]))
        found.append(stepper.logits())
        for value in model.parameters.values():
            value.data.fill_(0.5)
    assert np.array_equal(*found)


def test_what_the_gpu_has_no_steps_for_is_sampled_a_row_at_a_time() -> None:
    on_gpu, double = models()
    values = [double.values(0)]
    double_on_gpu = Model.stacked(
        [replace(double.experiments[0], device="cuda")], [V], values, engine_of(CUDA, "stacked")
    )
    assert double_on_gpu.engine.draws(double_on_gpu, K2, "windowed") is None
    assert isinstance(double_on_gpu.engine.rows(double_on_gpu, K2, "windowed", 1), torch_stepper.Rows)
    assert on_gpu.engine.draws(on_gpu, K2, "windowed") is not None
