"""Beam search finds what an exhaustive search finds, where its beams suffice, and is never random."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from helpers import every_cell, random_model, tiny

from unroll.base.errors import RunError
from unroll.engines.torch import stepper as torch_stepper
from unroll.experiment.decoding import Decoding
from unroll.model.conditioning import PROCEDURES
from unroll.model.model import Model
from unroll.sampling.beams import beam_search
from unroll.sampling.host_loop import Stream, generate, read

K2, V, LENGTH = 3, 4, 4
PROMPT = np.array([1, 0, 2, 3])


def one_model(cell: str = "lstm", peepholes: str = "paper", layers: int = 1) -> Model:
    return random_model([tiny(cell=cell, peepholes=peepholes, layers=layers, k2=K2)], [V], scale=1.0)


def log_probability(model: Model, procedure: str, ids: Sequence[int]) -> float:
    """The log-probability of a continuation of the prompt, read token by token."""
    rows, total = torch_stepper.Rows(model, K2, procedure), 0.0
    rows.begin(1)
    for token in read(PROMPT, K2, procedure):
        rows.read(np.array([token]))
    for token in ids:
        total += float(torch.log_softmax(torch.from_numpy(rows.logits()), -1)[0, token])
        rows.read(np.array([token]))
    return total


def every_text(ends: Callable[[Sequence[int]], bool]) -> list[tuple[int, ...]]:
    """All texts of the length, and all shorter ones that end."""
    texts = []
    for n in range(1, LENGTH + 1):
        for ids in itertools.product(range(V), repeat=n):
            over = any(ends(ids[:k]) for k in range(1, n))
            if not over and (n == LENGTH or ends(ids)):
                texts.append(ids)
    return texts


@every_cell
@pytest.mark.parametrize("procedure", PROCEDURES)
@pytest.mark.parametrize("stop", [None, (2,), (1, 3)], ids=str)
def test_with_beams_enough_it_is_the_exhaustive_search(
    procedure: str, cell: str, peepholes: str, stop: tuple[int, ...] | None
) -> None:
    model = one_model(cell, peepholes, 2)

    def ends(ids: Sequence[int]) -> bool:
        return stop is not None and tuple(ids[-len(stop) :]) == stop

    scores = {ids: log_probability(model, procedure, ids) / len(ids) for ids in every_text(ends)}
    best = sorted(scores, key=lambda ids: -scores[ids])
    found = beam_search(model, PROMPT, K2, procedure, V ** (LENGTH - 1), LENGTH, ends)
    assert [h.ids for h in found[:10]] == best[:10]
    for h in found[:10]:
        assert h.score == pytest.approx(scores[h.ids], abs=1e-12)
        assert sum(h.logprobs) == pytest.approx(h.total, abs=1e-12)


@pytest.mark.parametrize("procedure", PROCEDURES)
def test_one_beam_is_argmax(procedure: str) -> None:
    model = one_model()
    (found,) = beam_search(model, PROMPT, K2, procedure, 1, 30)
    greedy = [d.ids[0] for d in generate(model, [Stream(PROMPT, 30, Decoding(0.0), 0)], K2, procedure)]
    assert list(found.ids) == greedy


@pytest.mark.parametrize("procedure", PROCEDURES)
def test_many_beams_find_a_likelier_text_than_argmax(procedure: str) -> None:
    gains = []
    for seed in range(6):
        model = random_model([tiny(k2=K2, seed=seed)], [V], scale=0.8)
        one, many = (beam_search(model, PROMPT, K2, procedure, beams, 8)[0].total for beams in (1, 64))
        gains.append(many - one)
    assert min(gains) >= 0
    assert max(gains) > 0.1


@pytest.mark.parametrize("procedure", PROCEDURES)
def test_it_is_never_random(procedure: str) -> None:
    first, second = (beam_search(one_model(), PROMPT, K2, procedure, 5, 20) for _ in range(2))
    assert first == second
    assert len({h.ids for h in first}) == 5
    assert [h.score for h in first] == sorted((h.score for h in first), reverse=True)


def test_it_ends_once_no_beam_can_win_any_more() -> None:
    model, asked = one_model(), []
    model.parameters["out.b"].data[0, 2] = 30.0

    def ends(ids: Sequence[int]) -> bool:
        asked.append(ids)
        return ids[-1] == 2

    (found,) = beam_search(model, PROMPT, K2, "progressive", 1, 1000, ends)
    assert found.ids == (2,)
    assert len(asked) < 20


def test_where_every_text_ends_at_once_all_are_found() -> None:
    found = beam_search(one_model(), PROMPT, K2, "windowed", 3, 9, lambda ids: True)
    assert [len(h.ids) for h in found] == [1, 1, 1]


def test_weights_that_are_not_numbers_are_told_of() -> None:
    model = one_model()
    model.parameters["out.b"].data.fill_(float("nan"))
    with pytest.raises(RunError, match="diverged"):
        beam_search(model, PROMPT, K2, "progressive", 2, 3)
