"""Sampling on a device that draws by itself: the host asks for many steps at a time and sorts out what comes back.

While it looks at some steps, the next are already under way. So a stream that its own tokens end draws on for a while;
that is thrown away, and no other stream can tell. One that ends at its length is known beforehand: its row goes to one
that waits, or goes, before the next steps begin.

Shapes: B rows, T steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from unroll.base.errors import RunError
from unroll.model.steppers import Drawer, Flight, Ids, Seat
from unroll.runs.perplexities import DIVERGED
from unroll.sampling.streams import Drawn, Ends, Stream, never, read

FIRST, MOST = 4, 1024  # steps asked for at a time: few at first, so that a text begins at once
TOKENS = 2**18  # asked for at a time
AHEAD = 2  # times asked before the first answer is looked at


class _Row:
    """A stream on its way."""

    def __init__(self, place: int, stream: Stream, prompt: Ids) -> None:
        self.place, self.stream, self.prompt = place, stream, prompt
        self.over = False

    def begin(self, now: int) -> None:
        self.seat = Seat(now, self.prompt, self.stream.decoding, self.stream.seed)
        self.first = self.seat.draws
        self.end = self.first + self.stream.length  # the step after its last


class _Asked(NamedTuple):
    """Steps under way, and whose they are."""

    start: int
    steps: int
    rows: list[_Row]
    flight: Flight


class _Table:
    """The rows of a drawer, and who takes them."""

    def __init__(self, drawer: Drawer, rows: Sequence[_Row], capacity: int) -> None:
        self._drawer, self._waiting = drawer, iter(rows)
        self.rows = list(islice(self._waiting, capacity))
        drawer.begin(len(self.rows))
        self._seat(self.rows)
        self._steps = FIRST

    def ask(self) -> _Asked | None:
        """The next steps, if any row needs them."""
        self._relieve()
        if not self.rows:
            return None
        now = self._drawer.now
        fitting = min(self._drawer.most_steps, max(1, TOKENS // len(self.rows)))
        steps = min(self._steps, fitting, max(row.end for row in self.rows) - now)
        self._steps = min(2 * self._steps, MOST)
        return _Asked(now, steps, self.rows, self._drawer.draw(steps))

    def _relieve(self) -> None:
        """Rows of streams that need no more steps go to streams that wait, or go."""
        now = self._drawer.now
        kept, rows, new = [], [], []
        for b, row in enumerate(self.rows):
            follower = row
            if row.over or row.end <= now:
                waiting = next(self._waiting, None)
                if waiting is None:
                    continue
                follower = waiting
                new.append(follower)
            kept.append(b)
            rows.append(follower)
        if rows and len(kept) < len(self.rows):
            self._drawer.take(kept)
        if rows and (new or len(kept) < len(self.rows)):
            self._seat(new, rows)
        self.rows = rows

    def _seat(self, new: Sequence[_Row], rows: Sequence[_Row] | None = None) -> None:
        for row in new:
            row.begin(self._drawer.now)
        self._drawer.seat([row.seat for row in (new if rows is None else rows)])


def draw_ahead(
    drawer: Drawer, streams: Sequence[Stream], k2: int, procedure: str, capacity: int, ends: Ends = never
) -> Iterator[Drawn]:
    """What `generation.generate` promises, by a device's own loop."""
    rows = [_Row(n, stream, read(stream.prompt, k2, procedure)) for n, stream in enumerate(streams)]
    if not rows:
        return
    table, under_way = _Table(drawer, rows, capacity), deque[_Asked]()
    while True:
        while len(under_way) < AHEAD and (asked := table.ask()):
            under_way.append(asked)
        if not under_way:
            return
        yield from _looked_through(under_way.popleft(), ends)


def _looked_through(asked: _Asked, ends: Ends) -> Iterator[Drawn]:
    """The tokens of each step; those of streams that have ended are left out."""
    ids_TB, logprobs_TB = asked.flight.result()
    all_ids, all_logprobs = ids_TB.tolist(), logprobs_TB.tolist()
    finite = bool(np.isfinite(logprobs_TB).all())
    stop = asked.start + asked.steps
    whole = all(not row.over and row.first <= asked.start and stop <= row.end for row in asked.rows)
    chosen = list(enumerate(asked.rows))
    places = [row.place for row in asked.rows]
    for t, (ids, logprobs) in enumerate(zip(all_ids, all_logprobs, strict=True)):
        if not whole:
            now = asked.start + t
            chosen = [(b, r) for b, r in enumerate(asked.rows) if r.first <= now < r.end and not r.over]
            if not chosen:
                continue
            places = [row.place for _, row in chosen]
            ids, logprobs = [ids[b] for b, _ in chosen], [logprobs[b] for b, _ in chosen]
        if not finite and not np.isfinite(logprobs).all():
            raise RunError(DIVERGED)
        yield Drawn(places, ids, logprobs, None)
        if ends is not never:
            for (_, row), token in zip(chosen, ids, strict=True):
                if ends(row.place, token):
                    row.over, whole = True, False
