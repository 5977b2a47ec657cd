"""A device that draws many steps at a time gives each stream what the host's loop gives it, and no token more.

The device here is the host's own stepper behind a device's interface: what is tested is who reads and draws what when.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_host_loop import K2, V, mixed_streams, one_model

from unroll.base import randomness
from unroll.base.errors import RunError
from unroll.experiment.decoding import Decoding
from unroll.model import steppers
from unroll.model.conditioning import PROCEDURES
from unroll.sampling import device_loop
from unroll.sampling.device_loop import draw_ahead
from unroll.sampling.host_loop import Stream, generate
from unroll.sampling.pick_token import choose

MODEL = one_model()


class Done:
    """Steps that are over before anybody asks."""

    def __init__(self, ids_TB: np.ndarray, logprobs_TB: np.ndarray) -> None:
        self._both = ids_TB, logprobs_TB

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        return self._both


class HostDrawer:
    """Rows that draw by themselves, as a GPU's do."""

    def __init__(self, procedure: str, most_steps: int = 1000) -> None:
        self._stepper = MODEL.engine.rows(MODEL, K2, procedure, 100)
        self.now, self.most_steps, self.calls = 0, most_steps, list[tuple[int, int]]()

    def begin(self, rows: int) -> None:
        self._stepper.begin(rows)
        self._last = np.full(rows, -1)

    def seat(self, seats: Sequence[steppers.Seat]) -> None:
        self._seats = list(seats)
        assert len(seats) == len(self._last)

    def take(self, rows: Sequence[int]) -> None:
        self._stepper.take(rows)
        self._last = self._last[list(rows)]

    def draw(self, steps: int) -> Done:
        assert 1 <= steps <= self.most_steps
        self.calls.append((steps, len(self._seats)))
        found = [self._step() for _ in range(steps)]
        return Done(*(np.array(values) for values in zip(*found, strict=True)))

    def _step(self) -> tuple[np.ndarray, np.ndarray]:
        now, seats = self.now, self._seats
        self._stepper.restart([b for b, seat in enumerate(seats) if seat.begun == now])
        given = [seat.prompt[now - seat.begun] if now <= seat.draws else self._last[b] for b, seat in enumerate(seats)]
        self._stepper.read(np.array(given))
        logits = self._stepper.logits().astype(np.float64)
        uniforms = [
            randomness.uniform(seat.seed, "sample", now - seat.draws, 1)[0] if now >= seat.draws else 0.0
            for seat in seats
        ]
        ids, logprobs = choose(logits, [seat.decoding for seat in seats], uniforms)
        self._last, self.now = np.array(ids), now + 1
        return self._last, np.array(logprobs)


def texts(steps) -> dict[int, list[tuple[int, float]]]:
    found = defaultdict(list)
    for drawn in steps:
        assert drawn.streams, "a step at which nobody draws is not told of"
        assert len(set(drawn.streams)) == len(drawn.streams) == len(drawn.ids) == len(drawn.logprobs)
        for place, token, logprob in zip(drawn.streams, drawn.ids, drawn.logprobs, strict=True):
            found[place].append((token, logprob))
    return dict(found)


@pytest.mark.parametrize("procedure", PROCEDURES)
@pytest.mark.parametrize("capacity", [1, 3, 70])
@pytest.mark.parametrize("most_steps", [1, 5, 1000])
def test_streams_draw_on_a_device_what_they_draw_on_the_host(procedure: str, capacity: int, most_steps: int) -> None:
    streams = mixed_streams(70)
    truth = texts(generate(MODEL, streams, K2, procedure))
    drawer = HostDrawer(procedure, most_steps)
    assert texts(draw_ahead(drawer, streams, K2, procedure, capacity)) == truth
    assert max(rows for _, rows in drawer.calls) <= capacity


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 4))
def test_what_ends_a_stream_early_ends_it_at_that_token_and_changes_no_other(
    seed: int, capacity: int, ahead: int
) -> None:
    streams = mixed_streams(12)
    last = np.random.default_rng(seed).integers(V, size=12)

    def ends(place: int, token: int) -> bool:
        return token == last[place]

    truth = texts(generate(MODEL, streams, K2, "progressive", ends))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_loop, "AHEAD", ahead)
        found = texts(draw_ahead(HostDrawer("progressive"), streams, K2, "progressive", capacity, ends))
    assert found == truth


def test_whether_a_stream_ends_is_asked_after_its_token_was_handed_out() -> None:
    seen: list[str] = []

    def ends(place: int, token: int) -> bool:
        seen.append("asked")
        return len(seen) > 4

    stream = Stream(np.array([1, 2]), 50, Decoding(), 3)
    for _ in draw_ahead(HostDrawer("progressive"), [stream], K2, "progressive", 1, ends):
        seen.append("handed out")
    assert seen == ["handed out", "asked"] * 3


def test_a_text_begins_with_few_steps_and_ends_without_a_step_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_loop, "MOST", 64)
    stream = Stream(np.array([1, 2, 3]), 200, Decoding(), 3)
    drawer = HostDrawer("progressive")
    assert len(list(draw_ahead(drawer, [stream], K2, "progressive", 1))) == 200
    steps = [steps for steps, _ in drawer.calls]
    assert steps[0] == device_loop.FIRST
    assert max(steps) == device_loop.MOST
    assert sum(steps) == 202, "two steps read all of the prompt but its last token"


def test_many_streams_are_asked_for_few_steps_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_loop, "TOKENS", 30)
    drawer = HostDrawer("progressive")
    texts(draw_ahead(drawer, [Stream(np.array([1]), 40, Decoding(), n) for n in range(10)], K2, "progressive", 10))
    assert max(steps for steps, _ in drawer.calls) == 3


def test_rows_that_nobody_needs_are_gone_before_the_next_steps() -> None:
    lengths = [1, 3, 9, 30]
    streams = [Stream(np.array([1]), length, Decoding(), length) for length in lengths]
    drawer = HostDrawer("progressive")
    texts(draw_ahead(drawer, streams, K2, "progressive", 4))
    assert drawer.calls == [(4, 4), (8, 2), (16, 1), (2, 1)]


def test_nothing_asked_is_nothing_drawn_and_nothing_done() -> None:
    drawer = HostDrawer("windowed")
    assert list(draw_ahead(drawer, [], K2, "windowed", 0)) == []
    assert drawer.calls == []


class Failing(HostDrawer):
    """From its third step on its numbers are none."""

    def _step(self) -> tuple[np.ndarray, np.ndarray]:
        ids, logprobs = super()._step()
        return ids, logprobs if self.now < 3 else np.full_like(logprobs, np.nan)


def test_numbers_that_are_none_are_told_of_where_a_stream_still_draws() -> None:
    def drawn(length: int, ends=device_loop.never) -> int:
        streams = [Stream(np.array([1]), length, Decoding(), n) for n in range(2)]
        return len(list(draw_ahead(Failing("progressive"), streams, K2, "progressive", 2, ends)))

    assert drawn(2) == 2
    assert drawn(9, lambda place, token: True) == 1, "what was drawn behind its end does not matter"
    with pytest.raises(RunError, match="diverged"):
        drawn(3)
