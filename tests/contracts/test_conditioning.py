"""Every sampler: the same seed gives the same tokens, and sampling conditions exactly as perplexity does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from helpers import CELL_VARIANTS, check_close, every_cell, every_plugin, random_ids, random_model, random_tensor, tiny

from unroll.engines.cpu import engine
from unroll.experiment.decoding import Decoding
from unroll.model import conditioning
from unroll.model.model import Model
from unroll.runs.perplexities import token_nll
from unroll.sampling.host_loop import Stream, generate

K2, V = 6, 7
ARGMAX, DRAWN = Decoding(temperature=0.0), Decoding(temperature=1.5)


def one_model(cell: str = "lstm", peepholes: str = "paper", layers: int = 1) -> Model:
    return random_model([tiny(cell=cell, peepholes=peepholes, layers=layers, k2=K2)], [V], scale=1.0)


def rows_of_first(model: Model, rows: int) -> tuple:
    """A different first state for every row."""
    return tuple(
        tuple(random_tensor(1, rows, s.shape[-1], seed=10 * layer + n) for n, s in enumerate(state))
        for layer, state in enumerate(model.first_state(1))
    )


def read_all(name: str, model: Model, ids_N: torch.Tensor, first: tuple | None = None) -> torch.Tensor:
    """h after every token, read one at a time: [N, R, H]."""
    rows = first[0][0].shape[1] if first else 1
    sampler = conditioning.load(name)
    memory, out = sampler.begin(model, K2, rows, first), []
    with torch.inference_mode():
        for token in ids_N:
            h_BH, memory = sampler.read(model, memory, token.expand(rows))
            out.append(h_BH)
    return torch.stack(out)


def drawn(
    name: str, model: Model, prompts: torch.Tensor, decoding: Decoding, seeds: Sequence[int], n: int
) -> list[list[int]]:
    """n tokens, each a list over rows."""
    streams = [Stream(prompt.numpy(), n, decoding, seed) for prompt, seed in zip(prompts, seeds, strict=True)]
    return [step.ids for step in generate(model, streams, K2, name)]


@every_cell
@every_plugin("conditioning")
@pytest.mark.parametrize("rows", [None, 3], ids=["learned", "three-rows"])
def test_sampling_and_perplexity_condition_alike(name: str, cell: str, peepholes: str, rows: int | None) -> None:
    model = one_model(cell, peepholes, layers=2)
    ids = random_ids(25)
    first = rows_of_first(model, rows) if rows else None
    with torch.inference_mode():
        hidden = torch.cat(list(conditioning.load(name).hidden(model, ids.unsqueeze(0), K2, first)), dim=1)[0]
    stepwise = read_all(name, model, ids, first)[K2 - 1 : -1]
    assert len(hidden) == len(ids) - K2
    check_close(hidden, stepwise, 1e-12)


@every_plugin("conditioning")
def test_perplexity_reads_long_texts_in_chunks_as_one(name: str) -> None:
    model = one_model()
    ids = random_ids(1300)
    with torch.inference_mode():
        hidden = torch.cat(list(conditioning.load(name).hidden(model, ids.unsqueeze(0), K2)), dim=1)[0]
    check_close(hidden, read_all(name, model, ids)[K2 - 1 : -1], 1e-12)


@every_plugin("conditioning")
def test_the_runs_of_a_fleet_are_conditioned_as_each_alone(name: str) -> None:
    runs, ids_MN = [tiny(k2=K2, layers=2, seed=seed) for seed in range(3)], random_ids(3, 20)
    together = torch.cat(list(conditioning.load(name).hidden(random_model(runs, [V] * 3), ids_MN, K2)), dim=1)
    assert together.shape == (3, 20 - K2, 1, 5)
    for m, run in enumerate(runs):
        alone = torch.cat(list(conditioning.load(name).hidden(random_model([run], [V]), ids_MN[m : m + 1], K2)), dim=1)
        check_close(together[m], alone[0], 1e-12)


def calls_of_the_kernel(name: str, model: Model, tokens: int) -> list[tuple[int, ...]]:
    """The shape [M, T, B] of each call that reading a text takes."""
    shapes, recurrence = [], model.engine.recurrence

    def watched(network, ids_MTB, first, at_M):
        assert not torch.is_grad_enabled()
        assert set(at_M.tolist()) == {ids_MTB.shape[1]}
        shapes.append(tuple(ids_MTB.shape))
        return recurrence(network, ids_MTB, first, at_M)

    model.engine.recurrence = watched
    for _ in conditioning.load(name).hidden(model, random_ids(len(model.experiments), tokens), K2):
        pass
    return shapes


def test_progressive_calls_the_kernel_once_for_512_steps() -> None:
    model = random_model([tiny(k2=K2), tiny(k2=K2)], [V, V])
    assert calls_of_the_kernel("progressive", model, 1300) == [(2, 512, 1), (2, 512, 1), (2, 275, 1)]


@pytest.mark.parametrize(("room", "rows"), [(1, 64), (2 * 4 * 5 * 8 * 100, 64), (2 * 4 * 5 * 8 * 200, 192)])
def test_windowed_reads_whole_tiles_of_windows_within_the_room_there_is(
    room: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "CHUNK_BYTES", room)
    monkeypatch.setattr(engine, "STEPS", 4)
    model = random_model([tiny(k2=K2), tiny(k2=K2)], [V, V])
    chunks = [(2, steps, n) for n in (rows, rows, 9) for steps in (4, 2)]
    assert calls_of_the_kernel("windowed", model, 2 * rows + 9 + K2) == chunks


@every_plugin("conditioning")
@pytest.mark.parametrize("decoding", [ARGMAX, DRAWN, Decoding(top_k=3, top_p=0.9)], ids=str)
def test_the_same_seed_gives_the_same_tokens(name: str, decoding: Decoding) -> None:
    model, prompts = one_model(), random_ids(1, 4)
    assert drawn(name, model, prompts, decoding, [5], 40) == drawn(name, model, prompts, decoding, [5], 40)


@every_plugin("conditioning")
def test_another_seed_gives_other_tokens(name: str) -> None:
    model, prompts = one_model(), random_ids(1, 4)
    assert drawn(name, model, prompts, DRAWN, [5], 40) != drawn(name, model, prompts, DRAWN, [6], 40)


@every_plugin("conditioning")
def test_a_row_depends_on_its_own_prompt_and_seed_alone(name: str) -> None:
    model, prompts, seeds = one_model(), random_ids(3, 9), [5, 6, 7]
    together = drawn(name, model, prompts, DRAWN, seeds, 30)
    for b in range(3):
        alone = drawn(name, model, prompts[b : b + 1], DRAWN, seeds[b : b + 1], 30)
        assert [step[b] for step in together] == [step[0] for step in alone]


@every_plugin("conditioning")
def test_the_log_probability_of_a_drawn_token_is_perplexitys(name: str) -> None:
    model, prompts = one_model(), random_ids(1, K2)
    steps = list(generate(model, [Stream(prompts[0].numpy(), 20, DRAWN, 3)], K2, name))
    text = torch.cat((prompts[0], torch.tensor([step.ids[0] for step in steps])))
    (nll,) = token_nll(model, [text], K2, name)
    check_close(-np.array([step.logprobs[0] for step in steps]), nll[:, 0], 1e-12)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("prompt", [1, K2 - 1, K2, 2 * K2 + 1])
@pytest.mark.parametrize("decoding", [ARGMAX, DRAWN], ids=["argmax", "drawn"])
def test_rolling_windows_give_the_tokens_of_windows_read_again(layers: int, prompt: int, decoding: Decoding) -> None:
    # Between them, the cases go through every cell.
    cell, peepholes = CELL_VARIANTS[(prompt + layers) % len(CELL_VARIANTS)]
    model, prompts = one_model(cell, peepholes, layers), random_ids(2, prompt, seed=prompt)
    rolling, naive = (drawn(name, model, prompts, decoding, [1, 2], 200) for name in ("windowed", "windowed-naive"))
    assert rolling == naive


@every_cell
def test_windowed_is_progressive_while_the_text_is_no_longer_than_k2(cell: str, peepholes: str) -> None:
    model, ids = one_model(cell, peepholes, layers=2), random_ids(K2 + 1)
    progressive = read_all("progressive", model, ids)
    for name in ("windowed", "windowed-naive"):
        check_close(read_all(name, model, ids)[:K2], progressive[:K2], 1e-12, name)
    assert not torch.allclose(read_all("windowed", model, ids)[K2], progressive[K2]), "then they part"


@every_cell
def test_a_text_read_in_pieces_with_the_state_carried_equals_one_pass(cell: str, peepholes: str) -> None:
    model, ids, cut = one_model(cell, peepholes, layers=2), random_ids(20), 8
    (whole,) = token_nll(model, [ids], 1, "progressive")
    with torch.inference_mode():
        state = model.first_state(1)
        for token in ids[:cut]:
            state = model.advance(token.view(1, 1), state)
        (rest,) = token_nll(model, [ids[cut:]], 1, "progressive", state)
    check_close(rest, whole[cut:], 1e-12)


@every_plugin("conditioning")
def test_reading_leaves_the_memory_before_it_usable(name: str) -> None:
    """A memory is a value: from one and the same, two continuations can be read."""
    model, sampler = one_model(), conditioning.load(name)
    with torch.inference_mode():
        memory = sampler.begin(model, K2, 1)
        for token in random_ids(K2 + 3):
            _, memory = sampler.read(model, memory, token.view(1))
        once, _ = sampler.read(model, memory, torch.tensor([1]))
        sampler.read(model, memory, torch.tensor([2]))
        again, _ = sampler.read(model, memory, torch.tensor([1]))
    assert torch.equal(once, again)
