"""Sampling: tokens drawn one after the other from a trained model, for many streams at once.

Each stream has its own prompt, controls, length and seed, and draws the same tokens alone and among others. A step
advances every row by one token: of its prompt as long as there is one, then the token it drew. A stream that has ended
leaves its row to one that waits, or its row goes. That is the loop here, in which the host chooses every token; where
a device draws by itself, `device_loop.py` has the loop.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

import numpy as np

from unroll.base.errors import RunError
from unroll.experiment.decoding import Decoding
from unroll.model import steppers
from unroll.model.model import Model
from unroll.model.steppers import Ids
from unroll.runs.perplexities import DIVERGED
from unroll.sampling.device_loop import draw_ahead
from unroll.sampling.pick_token import Uniforms, choose
from unroll.sampling.streams import Drawn, Ends, Stream, never, read

__all__ = ["Drawn", "Ends", "Stream", "generate"]


class _Decoded(Protocol):
    """A stream, or what asks for one."""

    @property
    def decoding(self) -> Decoding: ...


class _Row:
    """A stream on its way."""

    def __init__(self, place: int, stream: Stream, tokens: Ids) -> None:
        self.place, self.stream = place, stream
        self.prompt = tokens.tolist()[::-1]  # what has not been read of it, backwards
        self.drawn = 0
        self.uniforms = Uniforms(stream.seed)


class _StepRows:
    """The rows of a step: what does not change from token to token is looked up once, until a row begins or ends."""

    def __init__(self, rows: list[_Row]) -> None:
        self.rows = rows
        self.drawing = [b for b, row in enumerate(rows) if not row.prompt]
        chosen = [rows[b] for b in self.drawing]
        self._chosen, self._places = chosen, [row.place for row in chosen]
        self._decodings, self._uniforms = [row.stream.decoding for row in chosen], [row.uniforms for row in chosen]
        self._reading = len(rows) - len(chosen)

    def draw(self, stepper: steppers.Stepper) -> Drawn:
        """A token for each row whose prompt has been read."""
        logits_BV = stepper.logits().astype(np.float64)
        chosen_BV = logits_BV[self.drawing] if self._reading else logits_BV
        ids, logprobs = choose(chosen_BV, self._decodings, [next(uniforms) for uniforms in self._uniforms])
        if not math.isfinite(sum(logprobs)):
            raise RunError(DIVERGED)
        return Drawn(self._places, ids, logprobs, chosen_BV)

    def ended(self, ids: list[int], ends: Ends) -> list[int]:
        """The rows for which this was the last token."""
        found = []
        for b, row, token in zip(self.drawing, self._chosen, ids, strict=True):
            row.drawn += 1
            if ends(row.place, token) or row.drawn == row.stream.length:
                found.append(b)
        return found

    def followed_by(self, ids: list[int]) -> tuple[_StepRows, list[int]]:
        """What each row reads next, the token it drew or one of its prompt, and the rows from then on."""
        if not self._reading:
            return self, ids
        own = dict(zip(self.drawing, ids, strict=True))
        following = [own[b] if b in own else row.prompt.pop() for b, row in enumerate(self.rows)]
        return _StepRows(self.rows), following


def generate(model: Model, streams: Sequence[Stream], k2: int, procedure: str, ends: Ends = never) -> Iterator[Drawn]:
    """Draw until every stream has its length, or until `ends(stream, token)` says that this token was its last."""
    capacity = min(len(streams), steppers.most_rows(model, k2, procedure))
    drawer = None if unknown_to_devices(streams) else model.engine.draws(model, k2, procedure)
    if drawer is None:
        yield from _step_by_step(model, streams, k2, procedure, ends, capacity)
    else:
        yield from draw_ahead(drawer, streams, k2, procedure, capacity, ends)


def unknown_to_devices(streams: Iterable[_Decoded]) -> list[str]:
    """The controls, by option name, that no device's own loop knows: texts that use one are drawn by the host."""
    used = dict.fromkeys(name for stream in streams for name, _ in stream.decoding.applied)
    return [name for name in used if name not in steppers.DEVICE_CONTROLS]


def _step_by_step(
    model: Model, streams: Sequence[Stream], k2: int, procedure: str, ends: Ends, capacity: int
) -> Iterator[Drawn]:
    """The host chooses every token."""
    waiting = iter([_Row(n, stream, read(stream.prompt, k2, procedure)) for n, stream in enumerate(streams)])
    active = _StepRows(list(islice(waiting, capacity)))
    stepper = model.engine.rows(model, k2, procedure, capacity)
    stepper.begin(capacity)
    ids: list[int] = []
    while active.rows:
        active, ids = active.followed_by(ids)
        with np.errstate(over="ignore", invalid="ignore"):  # numbers out of bounds end in an error of their own
            stepper.read(np.array(ids))
            drawn = active.draw(stepper) if active.drawing else None
        ids = []
        if drawn:
            yield drawn
            ids = drawn.ids
            ended = active.ended(ids, ends)
            if ended:
                active, ids = _replace_ended(active, ids, ended, waiting, stepper)


def _replace_ended(
    active: _StepRows, ids: list[int], ended: list[int], waiting: Iterator[_Row], stepper: steppers.Stepper
) -> tuple[_StepRows, list[int]]:
    """Rows that waited take the places of rows that ended, or those are gone; the tokens of the rows that stay."""
    rows, over, gone = list(active.rows), set(ended), set()
    tokens = {b: token for b, token in zip(active.drawing, ids, strict=True) if b not in over}
    for b in ended:
        follower = next(waiting, None)
        if follower is None:
            gone.add(b)
        else:
            rows[b] = follower
            stepper.restart([b])
    kept = [b for b in range(len(rows)) if b not in gone]
    if gone:
        stepper.take(kept)
    return _StepRows([rows[b] for b in kept]), [tokens[b] for b in kept if b in tokens]
