"""From a run and what is asked of it to text: one or many at once, whole or token by token, drawn or searched for.

sample(run, "Once", max_new_tokens=200, temperature=0.7, seed=1)         one Sample
sample(run, "Once", num_return_sequences=5)                              five, with the seeds 0 to 4
stream(run, "Once")                                                      its tokens as they are drawn
sample_all(run, [Request("Once", seed=1), Request("Twice", length=9)])   many at once, each as it would be alone
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, overload

import numpy as np

from unroll.base import plugins
from unroll.base.errors import ConfigurationError, InputError, SymbolError
from unroll.experiment.decoding import Decoding
from unroll.experiment.experiment import SEEDS
from unroll.model.steppers import Ids
from unroll.runs.loaded import Run, require_run
from unroll.sampling.beams import beam_search
from unroll.sampling.controls import LENGTH, Settings, whole_number
from unroll.sampling.host_loop import Stream, generate
from unroll.sampling.prompts import prompt_ids, seed_sequence
from unroll.sampling.stop_strings import Stops, Writer


@dataclass(frozen=True)
class Request:
    """One text to be drawn. Without a prompt it goes on from k2 tokens of the test set, which the seed chooses."""

    prompt: str | None = None
    length: int = LENGTH
    decoding: Decoding = field(default_factory=Decoding)
    seed: int = 0
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Checked:
    """Requests that a run can answer, with the ids that each goes on from."""

    requests: tuple[Request, ...]
    prompts: tuple[Ids, ...]
    procedure: str


@dataclass(frozen=True)
class Sample:
    """A text up to its stop string; every token that was drawn for it, and what the model itself gave each."""

    text: str
    tokens: list[int]
    logprobs: list[float]
    procedure: str
    seed: int


class Token(NamedTuple):
    """A drawn token. Its text is what is certain now: none while a stop string may have begun, more if it has not."""

    id: int
    text: str
    logprob: float
    last: bool  # of its text


@overload
def sample(run: Run, prompt: str | None = None, *, num_return_sequences: int, **controls: Any) -> list[Sample]: ...


@overload
def sample(run: Run, prompt: str | None = None, **controls: Any) -> Sample: ...


def sample(
    run: Run, prompt: str | None = None, *, num_return_sequences: int | None = None, **controls: Any
) -> Sample | list[Sample]:
    """Draw a text; with `num_return_sequences` a list of them, of which the n-th has the seed `seed` + n.

    length or max_new_tokens   how many tokens (500)
    temperature                below 1 safer, above 1 wilder; 0 is argmax, and so is do_sample=False
    top_k, top_p, min_p, …     which tokens may be drawn at all: every file of sampling/decoding is an argument
    seed                       the same seed gives the same text
    stop                       a string, or several, that end the text
    num_beams                  search for the likeliest text instead of drawing one
    sample                     windowed or progressive (the scheme's own)
    """
    samples = answer(run, Settings.of(prompt, num_return_sequences, controls))
    return samples[0] if num_return_sequences is None else samples


def stream(run: Run, prompt: str | None = None, **controls: Any) -> Iterator[Token]:
    """The tokens of a text as they are drawn, with the arguments of `sample`."""
    settings = Settings.of(prompt, None, controls)
    also = ["A beam search knows its text only at its end: it cannot be streamed."] * settings.searches
    return (token for _, token in stream_all(run, requested(run, settings, also)))


def sample_all(run: Run, requests: Sequence[Request], sample: str | None = None) -> list[Sample]:
    """Many texts at once, each as it would be drawn alone."""
    require_run(run)
    return _whole(run, check(run, requests, sample or run.experiment.scheme.sample))


def _whole(run: Run, asked: Checked) -> list[Sample]:
    """Every text to its end."""
    writers = [Writer(Stops(run.vocabulary, request.stop)) for request in asked.requests]
    drawn: list[list[Token]] = [[] for _ in asked.requests]
    for place, token in _drawn(run, asked, writers):
        drawn[place].append(token)
    return [
        Sample(writer.text, [t.id for t in tokens], [t.logprob for t in tokens], asked.procedure, request.seed)
        for request, writer, tokens in zip(asked.requests, writers, drawn, strict=True)
    ]


def stream_all(run: Run, asked: Checked, before: Sequence[int] = ()) -> Iterator[tuple[int, Token]]:
    """Each token of many texts as it is drawn, with its text's place; `before` is the token shown before each text."""
    return _drawn(run, asked, [Writer(Stops(run.vocabulary, request.stop), before) for request in asked.requests])


def _drawn(run: Run, asked: Checked, writers: Sequence[Writer]) -> Iterator[tuple[int, Token]]:
    streams = [
        Stream(prompt, int(request.length), request.decoding, int(request.seed))
        for request, prompt in zip(asked.requests, asked.prompts, strict=True)
    ]
    left = [stream.length for stream in streams]
    k2 = run.experiment.scheme.k2
    drawing = generate(run.model, streams, k2, asked.procedure, lambda place, token: writers[place].ended)
    for drawn in drawing:
        for place, token, logprob in zip(drawn.streams, drawn.ids, drawn.logprobs, strict=True):
            writer, left[place] = writers[place], left[place] - 1
            text, last = writer.add(token), writer.ended or not left[place]
            yield place, Token(token, text + writer.finish() if last else text, logprob, last)


def answer(run: Run, settings: Settings, asked: Checked | None = None) -> list[Sample]:
    """What settings ask for, drawn or searched for; `asked`, where they were checked before."""
    asked = asked or requested(run, settings)
    if not settings.searches:
        return _whole(run, asked)
    request, procedure = asked.requests[0], asked.procedure
    prompt, stops = asked.prompts[0], Stops(run.vocabulary, request.stop)
    k2, beams = run.experiment.scheme.k2, settings.num_beams or 1
    samples = []
    for found in beam_search(run.model, prompt, k2, procedure, beams, request.length, stops.end)[: settings.texts]:
        writer = Writer(stops)
        for token in found.ids:
            writer.add(token)
        writer.finish()
        samples.append(Sample(writer.text, list(found.ids), list(found.logprobs), procedure, request.seed))
    return samples


def requested(run: Run, settings: Settings, also: Sequence[str] = ()) -> Checked:
    """The texts that settings ask for, or every problem at once, those known before among them."""
    require_run(run)
    if settings.mistaken:
        raise ConfigurationError(*also, *settings.mistaken)
    problems = [*also, *settings.problems]
    decoding = Decoding() if problems else settings.decoding
    requests = [
        Request(settings.prompt, int(settings.tokens), decoding, int(settings.seed) + n, settings.stops)
        for n in range(1 if problems else settings.texts)
    ]
    return check(run, requests, settings.sample or run.experiment.scheme.sample, problems)


def check(run: Run, requests: Sequence[Request], procedure: str, also: Sequence[str] = ()) -> Checked:
    """The requests with the ids of their prompts, or every problem at once."""
    problems = [*also, *filter(None, [plugins.problem("conditioning", procedure, "sample")])]
    symbols: list[str] = []
    prompts: dict[str, Ids] = {}
    for request in dict.fromkeys(requests):
        problems += _problems(request)
        try:
            if request.prompt and request.prompt not in prompts:
                prompts[request.prompt] = prompt_ids(run, request.prompt)
            Stops(run.vocabulary, request.stop)
        except SymbolError as error:
            symbols += error.problems
        except InputError as error:
            problems += error.problems
    if symbols and not problems:
        raise SymbolError(*dict.fromkeys(symbols))
    if problems:
        raise ConfigurationError(*dict.fromkeys(problems + symbols))
    chosen = (prompts[r.prompt] if r.prompt is not None else seed_sequence(run, int(r.seed)) for r in requests)
    return Checked(tuple(requests), tuple(np.asarray(ids, np.int64) for ids in chosen), procedure)


def _problems(request: Request) -> list[str]:
    mistaken = [whole_number(name, getattr(request, name)) for name in ("length", "seed")]
    wrong = [problem for problem in mistaken if problem]
    if wrong:
        return wrong
    if request.length < 1:
        wrong.append(f"length must be at least 1. Got {request.length}.")
    if not 0 <= request.seed < SEEDS:
        wrong.append(f"seed must be between 0 and 2^63 − 1. Got {request.seed}.")
    if request.prompt == "":
        wrong.append("The prompt is empty. Leave --prompt out to start from a stretch of the test set.")
    if "" in request.stop:
        wrong.append("A stop string is empty: it would end every text before its first token. Leave it out.")
    return wrong
