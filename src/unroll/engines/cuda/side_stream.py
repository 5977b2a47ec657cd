"""Work beside something long that leaves a part of an NVIDIA GPU idle: a second stream, onto which a step may branch.

    with beside.allowed():                  who computes a whole step says that it may branch, and waits for all of it
        beside.begins()                     right before the long launch: what is asked for from now on may start here
        …                                   the launch
        packed = beside.done(pack)          not needed by the launch: goes on beside it
        beside.wait()                       before the first use of any such thing
        beside.later(multiply)              needs what comes before the next long launch, and goes on beside that one:
        beside.catch_up()                   now, since that one is launched
        beside.finish()                     before the first use of what was to be done later

Outside of `allowed` everything is done at once, on the current stream. All that side work reads or makes is held to the
end of the step: memory that one stream gives back and the other takes again would be overwritten too early.
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
            found = work()
        self.held.append((work, found))
        return found


_now: _Branch | None = None  # for all threads: gradients are computed in one of torch's own


@cache
def _stream(device: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


@contextmanager
def allowed() -> Iterator[None]:
    """What is done inside may branch; at the end it is one again."""
    global _now
    _now = _Branch()
    try:
        yield
        finish()
    finally:
        _now = None


def begins() -> None:
    """Something long is launched next."""
    if _now is not None:
        _now.begun = torch.cuda.current_stream().record_event()


def done(work: Callable[[], T]) -> T:
    """What `work` makes of things that were there when the last long launch began."""
    return work() if _now is None else _now.do(work)


def later(work: Callable[[], Any]) -> None:
    """Do it beside the next long launch, or in the end."""
    if _now is None:
        work()
    else:
        _now.waiting.append(work)


def catch_up() -> None:
    """Do what was to be done later: the long launch is on its way."""
    if _now is not None:
        waiting, _now.waiting = _now.waiting, []
        for work in waiting:
            _now.do(work)


def wait() -> None:
    """The current stream goes on when all side work so far is done."""
    if _now is not None and _now.held:
        torch.cuda.current_stream().wait_stream(_now.stream)


def finish() -> None:
    """Nothing long comes any more: what still waits is done here, and all the rest is waited for."""
    if _now is not None:
        _now.begun = None
        catch_up()
        wait()
