"""A second stream of an NVIDIA GPU for side work, during a long launch that leaves a part of the GPU idle.

    with side_stream.allowed():             within this block a step may use the side stream; its end waits for all work
        side_stream.begins()                right before the long launch: side work may start from this point on
        …                                   the long launch
        packed = side_stream.done(pack)     side work that the launch does not need, done at the same time
        side_stream.wait()                  before the first use of any side work
        side_stream.later(multiply)         side work that has to wait for the next long launch
        side_stream.catch_up()              right after that launch: do the side work that waits
        side_stream.finish()                before the first use of side work that was put off

Outside of `allowed` all work is done at once, on the current stream. Everything that side work reads or makes is held
until the end of the step: memory that one stream frees and the other takes again would be overwritten too early.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import torch

T = TypeVar("T")


class _Branch:
    """A step's side work."""

    def __init__(self) -> None:
        self.stream = _stream(torch.cuda.current_device())
        self.begun: torch.cuda.Event | None = None
        self.waiting: list[Callable[[], Any]] = []
        self.held: list[Any] = []

    def do(self, work: Callable[[], T]) -> T:
        if self.begun is None:
            return work()
        with torch.cuda.stream(self.stream):
            self.stream.wait_event(self.begun)
            result = work()
        self.held.append((work, result))
        return result


_now: _Branch | None = None  # for all threads: torch computes gradients in a thread of its own


@cache
def _stream(device: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


@contextmanager
def allowed() -> Iterator[None]:
    """Let work inside this block use the side stream; the end waits for it."""
    global _now
    _now = _Branch()
    try:
        yield
        finish()
    finally:
        _now = None


def begins() -> None:
    """Mark the point right before a long launch."""
    if _now is not None:
        _now.begun = torch.cuda.current_stream().record_event()


def done(work: Callable[[], T]) -> T:
    """Do work on the side stream; it may use only what was ready when the last long launch began."""
    return work() if _now is None else _now.do(work)


def later(work: Callable[[], Any]) -> None:
    """Do work on the side stream during the next long launch, or at the end."""
    if _now is None:
        work()
    else:
        _now.waiting.append(work)


def catch_up() -> None:
    """Do the work that was put off, since the long launch is on its way."""
    if _now is not None:
        waiting, _now.waiting = _now.waiting, []
        for work in waiting:
            _now.do(work)


def wait() -> None:
    """Let the current stream wait for all side work so far."""
    if _now is not None and _now.held:
        torch.cuda.current_stream().wait_stream(_now.stream)


def finish() -> None:
    """Do the work that still waits, and wait for all side work: no long launch comes any more."""
    if _now is not None:
        _now.begun = None
        catch_up()
        wait()
