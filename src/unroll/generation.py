"""Sampling: tokens drawn one after the other from a trained model, for many streams at once.

Each stream has its own prompt, controls, length and seed, and draws the same tokens alone and among others. A step
advances every row by one token: of its prompt as long as there is one, then the token it drew. A stream that has ended
leaves its row to one that waits, or its row goes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unroll import samplers, stepping
from unroll.choosing import Uniforms, choose
from unroll.decoding import Decoding
from unroll.errors import RunError
from unroll.model import Model
from unroll.stepping import Ids

Ends = Callable[[int, int], bool]
DIVERGED = "The model gives no finite probabilities: its weights have diverged. Choose another run."


@dataclass(frozen=True)
class Stream:
    """What one text is drawn from. A prompt has at least one token."""

    prompt: Ids
    length: int
    decoding: Decoding
    seed: int


@dataclass(frozen=True)
class Drawn:
    """One token of each stream that drew at this step, by its place among the streams."""

    streams: list[int]
    ids: list[int]
    logprobs: list[float]  # under the model's own distribution, before temperature and truncation
    logits_BV: NDArray[np.float64]


class _Row:
    """A stream on its way."""

    def __init__(self, place: int, stream: Stream, tokens: Ids) -> None:
        self.place, self.stream = place, stream
        self.prompt = iter(tokens.tolist())
        self.left = len(tokens)
        self.drawn = 0
        self.uniforms = Uniforms(stream.seed)


def generate(
    model: Model, streams: Sequence[Stream], k2: int, procedure: str, ends: Ends = lambda stream, token: False
) -> Iterator[Drawn]:
    """Draw until every stream has its length, or until `ends(stream, token)` says that this token was its last."""
    waiting = iter([_Row(n, stream, read(stream.prompt, k2, procedure)) for n, stream in enumerate(streams)])
    capacity = min(len(streams), stepping.most_rows(model, k2, procedure))
    rows = [row for _, row in zip(range(capacity), waiting, strict=False)]
    stepper = stepping.prepare(model, k2, procedure, capacity)
    stepper.begin(capacity)
    while rows:
        ids = [0] * len(rows)
        drawing = [b for b, row in enumerate(rows) if not row.left]
        ended: set[int] = set()
        if drawing:
            drawn = _draw(stepper, rows, drawing)
            yield drawn
            for b, token in zip(drawing, drawn.ids, strict=True):
                ids[b], row = token, rows[b]
                row.drawn += 1
                if ends(row.place, token) or row.drawn == row.stream.length:
                    ended.add(b)
        for b in sorted(ended):
            follower = next(waiting, None)
            if follower:
                rows[b] = follower
                stepper.restart([b])
                ended.remove(b)
        if ended:
            kept = [b for b in range(len(rows)) if b not in ended]
            rows, ids = [rows[b] for b in kept], [ids[b] for b in kept]
            stepper.take(kept)
        for b, row in enumerate(rows):
            if row.left:
                ids[b] = next(row.prompt)
                row.left -= 1
        if rows:
            with np.errstate(over="ignore", invalid="ignore"):  # weights that are out of bounds are told of below
                stepper.read(np.array(ids))


def read(prompt: Ids, k2: int, procedure: str) -> Ids:
    """What must be read of a prompt: a window holds k2 tokens, so of a longer one only the last k2 matter to it."""
    return prompt[-k2:] if samplers.forgets(procedure) else prompt


def _draw(stepper: stepping.Stepper, rows: list[_Row], drawing: list[int]) -> Drawn:
    """A token for each row whose prompt has been read."""
    with np.errstate(over="ignore", invalid="ignore"):
        logits_BV = stepper.logits()
        chosen = logits_BV.astype(np.float64) if len(drawing) == len(rows) else logits_BV[drawing].astype(np.float64)
        decodings, uniforms = [rows[b].stream.decoding for b in drawing], [next(rows[b].uniforms) for b in drawing]
        ids, logprobs = choose(chosen, decodings, uniforms)
    if not math.isfinite(sum(logprobs)):
        raise RunError(DIVERGED)
    return Drawn([rows[b].place for b in drawing], ids, logprobs, chosen)
