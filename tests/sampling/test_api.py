"""Text from a run, as Python asks for it: one or many, whole or token by token, under either set of names."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from commands import tiny_run

import unroll
from unroll import Decoding, Request
from unroll.base.errors import ConfigurationError, RunError, SymbolError
from unroll.runs.perplexities import token_nll
from unroll.sampling.api import check, stream_all
from unroll.sampling.controls import Settings


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> unroll.Run:
    return unroll.load(tiny_run(tmp_path_factory.mktemp("sampling")), "cpu")


@pytest.mark.parametrize("procedure", ["windowed", "progressive"])
def test_texts_drawn_together_are_those_drawn_one_by_one(run: unroll.Run, procedure: str) -> None:
    requests = [
        Request("abc", 20, seed=1),
        Request(None, 5, seed=2),
        Request("b", 30, Decoding(0.5, top_k=3), 1, ("a",)),
        Request("cab" * 9, 12, Decoding(0.0), 9),
    ]
    together = unroll.sample_all(run, requests, procedure)
    for request, found in zip(requests, together, strict=True):
        d = request.decoding
        assert found == unroll.sample(
            run,
            request.prompt,
            length=request.length,
            temperature=d.temperature,
            top_k=d.top_k,
            seed=request.seed,
            stop=request.stop,
            sample=procedure,
        )
        assert (found.procedure, found.seed) == (procedure, request.seed)
        assert len(found.tokens) == len(found.logprobs) <= request.length


def test_the_logprobs_of_a_sample_are_perplexitys(run: unroll.Run) -> None:
    import torch

    found = unroll.sample(run, "abcabcabcabc", length=30, temperature=0.5, top_p=0.9, sample="progressive")
    ids = torch.from_numpy(np.concatenate((run.vocabulary.encode("abcabcabcabc"), found.tokens)).astype(np.int64))
    (nll,) = token_nll(run.model, [ids], 1, "progressive")
    assert np.allclose(found.logprobs, -nll[-30:, 0], rtol=0, atol=1e-5)


def test_several_texts_have_seeds_in_a_row_and_are_a_list_even_of_one(run: unroll.Run) -> None:
    several = unroll.sample(run, "abc", length=9, seed=5, num_return_sequences=3)
    assert [s.seed for s in several] == [5, 6, 7]
    assert several == [unroll.sample(run, "abc", length=9, seed=seed) for seed in (5, 6, 7)]
    assert unroll.sample(run, "abc", length=9, num_return_sequences=1) == [unroll.sample(run, "abc", length=9)]


def test_both_sets_of_names_mean_the_same(run: unroll.Run) -> None:
    assert unroll.sample(run, "abc", max_new_tokens=9) == unroll.sample(run, "abc", length=9)
    assert unroll.sample(run, "abc", max_new_tokens=9, length=9) == unroll.sample(run, "abc", length=9)
    greedy = unroll.sample(run, "abc", length=9, temperature=0)
    assert unroll.sample(run, "abc", length=9, do_sample=False).text == greedy.text
    assert unroll.sample(run, "abc", length=9, num_beams=1).text == greedy.text
    drawn = unroll.sample(run, "abc", length=9)
    assert unroll.sample(run, "abc", length=9, do_sample=True, num_beams=1) == drawn
    assert len(unroll.sample(run, "abc").tokens) == 500


def test_an_argument_that_nobody_knows_is_refused_by_name(run: unroll.Run) -> None:
    with pytest.raises(TypeError, match="topk"):
        unroll.sample(run, "abc", topk=3)


def test_a_stream_is_the_sample_token_by_token(run: unroll.Run) -> None:
    found = unroll.sample(run, "abc", length=25, seed=3)
    tokens = list(unroll.stream(run, "abc", length=25, seed=3))
    assert [t.id for t in tokens] == found.tokens
    assert [t.logprob for t in tokens] == found.logprobs
    assert "".join(t.text for t in tokens) == found.text
    assert [t.last for t in tokens] == [False] * 24 + [True]


def test_a_stream_may_be_left_at_any_token(run: unroll.Run) -> None:
    tokens = unroll.stream(run, "abc", length=10**9)
    assert next(tokens).text


def test_a_stop_string_ends_the_text_before_it_and_the_tokens_after_it(run: unroll.Run) -> None:
    whole = unroll.sample(run, "abc", length=60, seed=1).text
    stop = whole[20:23]
    place = whole.index(stop)
    found = unroll.sample(run, "abc", length=60, seed=1, stop=stop)
    assert found.text == whole[:place]
    assert len(found.tokens) == place + len(stop)
    tokens = list(unroll.stream(run, "abc", length=60, seed=1, stop=["not in it", stop]))
    assert "".join(t.text for t in tokens) == whole[:place]
    assert tokens[-1].last


def test_a_prompt_is_k2_tokens_of_the_test_set_where_none_is_given(run: unroll.Run) -> None:
    test = run.corpus.test_ids(run.experiment.split_seed)
    texts = set()
    for seed in range(4):
        found = unroll.sample(run, length=8, seed=seed)
        prompts = {run.vocabulary.decode(test[n : n + 10]) for n in range(len(test) - 10 + 1)}
        assert any(found == unroll.sample(run, prompt, length=8, seed=seed) for prompt in prompts)
        texts.add(found.text)
    assert len(texts) > 1


def test_tokens_of_many_texts_come_as_they_are_drawn(run: unroll.Run) -> None:
    requests = [Request("abc", 3), Request("abcabcabc", 2)]
    places = [place for place, _ in stream_all(run, check(run, requests, "progressive"))]
    assert places == [0, 0, 0, 1, 1], "the longer prompt takes six steps more to read"


@pytest.mark.parametrize("procedure", ["windowed", "progressive"])
def test_beams_give_the_best_texts_first(run: unroll.Run, procedure: str) -> None:
    best = unroll.sample(run, "abc", length=12, num_beams=6, num_return_sequences=4, sample=procedure)
    totals = [sum(s.logprobs) for s in best]
    assert totals == sorted(totals, reverse=True)
    assert len({s.text for s in best}) == 4
    assert totals[0] >= sum(unroll.sample(run, "abc", length=12, do_sample=False, sample=procedure).logprobs)
    assert unroll.sample(run, "abc", length=12, num_beams=6, sample=procedure) == best[0]


def test_a_beam_that_meets_a_stop_string_ends_before_it(run: unroll.Run) -> None:
    whole = unroll.sample(run, "abc", length=12, num_beams=3).text
    found = unroll.sample(run, "abc", length=12, num_beams=3, num_return_sequences=3, stop=whole[3])
    assert all(whole[3] not in s.text for s in found)
    assert any(len(s.tokens) < 12 for s in found)


@pytest.mark.parametrize(
    ("controls", "words"),
    [
        ({"length": 5, "max_new_tokens": 6}, ["one thing under two names", "5 and 6"]),
        ({"length": 0}, ["length must be at least 1"]),
        ({"max_new_tokens": -1}, ["length must be at least 1. Got -1"]),
        ({"temperature": -1.0, "top_p": 0.0, "min_p": 1.5, "top_k": 0}, ["temperature", "top-p", "min-p", "top-k"]),
        ({"temperature": math.nan}, ["temperature"]),
        ({"temperature": math.inf}, ["temperature"]),
        ({"do_sample": False, "temperature": 0.5}, ["do_sample=False is argmax"]),
        ({"do_sample": True, "temperature": 0}, ["do_sample=True draws"]),
        ({"num_beams": 0}, ["beams", "between 1 and"]),
        ({"num_beams": 3, "temperature": 0.5, "top_k": 3}, ["no temperature, no top-k"]),
        ({"num_beams": 3, "do_sample": True}, ["no do_sample"]),
        ({"num_beams": 2, "num_return_sequences": 3}, ["at most 2 texts"]),
        ({"num_return_sequences": 0}, ["number of texts"]),
        ({"seed": -1}, ["seed must be between"]),
        ({"seed": 2**63 - 1, "num_return_sequences": 2}, ["seed must be between"]),
        ({"stop": ""}, ["stop string is empty"]),
        ({"stop": ["a", ""]}, ["stop string is empty"]),
        ({"sample": "progresive"}, ["Did you mean progressive?"]),
        ({"prompt": ""}, ["prompt is empty"]),
        ({"prompt": "ab€", "length": 0, "temperature": -1}, ["'€' (U+20AC) at position 2", "length", "temperature"]),
    ],
    ids=str,
)
def test_what_cannot_be_is_told_at_once(run: unroll.Run, controls: dict, words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as told:
        unroll.sample(run, **({"prompt": "abc"} | controls))
    for word in words:
        assert word in str(told.value)


def test_a_symbol_that_is_not_known_is_named_with_its_place(run: unroll.Run) -> None:
    with pytest.raises(SymbolError, match="position 1"):
        unroll.stream(run, "a€")


def test_problems_are_told_before_the_first_token_is_asked_for(run: unroll.Run) -> None:
    with pytest.raises(ConfigurationError):
        unroll.stream(run, "abc", length=0)
    with pytest.raises(ConfigurationError, match="cannot be streamed"):
        unroll.stream(run, "abc", num_beams=2)
    with pytest.raises(ConfigurationError, match="length"):
        check(run, [Request("abc", 0)], "windowed")


def test_a_run_whose_weights_diverged_says_so(run: unroll.Run, tmp_path: Path) -> None:
    from dataclasses import replace

    model = run.model.runs([0])
    model.parameters["layers.0.W_h"].data.fill_(float("nan"))
    for controls in ({}, {"num_beams": 2}):
        with pytest.raises(RunError, match="diverged"):
            unroll.sample(replace(run, model=model), "abc", length=3, **controls)


def test_settings_are_said_under_one_name_each() -> None:
    assert Settings(length=3).tokens == Settings(max_new_tokens=3).tokens == 3
    assert Settings(stop="ab").stops == Settings(stop=["ab"]).stops == ("ab",)


@pytest.mark.parametrize(
    ("controls", "words"),
    [
        ({"length": 2.5}, "length must be a whole number. Got 2.5."),
        ({"max_new_tokens": "9"}, "max_new_tokens must be a whole number. Got '9'."),
        ({"top_k": 2.5}, "top_k must be a whole number"),
        ({"seed": 2.5}, "seed must be a whole number"),
        ({"num_return_sequences": 2.5}, "num_return_sequences must be a whole number"),
        ({"num_beams": True}, "num_beams must be a whole number"),
        ({"temperature": "hot"}, "temperature must be a number. Got 'hot'."),
        ({"top_p": True}, "top_p must be a number"),
    ],
)
def test_what_is_of_another_type_is_refused_in_words(run: unroll.Run, controls: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        unroll.sample(run, "abc", **controls)
    assert words in str(caught.value)


def test_whole_numbers_of_numpy_are_whole_numbers(run: unroll.Run) -> None:
    said = unroll.sample(run, "abc", length=np.int64(5), seed=np.int32(3), top_k=np.int16(2), temperature=np.float32(1))
    assert said == unroll.sample(run, "abc", length=5, seed=3, top_k=2)


def test_what_is_no_run_or_no_text_is_refused_in_words(run: unroll.Run) -> None:
    path: Any = str(run.path)
    for ask in (
        lambda: unroll.sample(path, "abc"),
        lambda: unroll.sample_all(path, [Request("abc")]),
        lambda: unroll.sample_all(run, [Request("abc", length=cast(Any, 2.5))]),
        lambda: unroll.score(path, "abc"),
        lambda: unroll.score(run, cast(Any, b"abc")),
        lambda: unroll.surprisals(run, cast(Any, None)),
        lambda: unroll.perplexity(path),
        lambda: unroll.sample(run, cast(Any, 7)),
        lambda: unroll.load(cast(Any, None)),
    ):
        with pytest.raises(ConfigurationError, match="Got"):
            ask()
