"""A limit of time for tests of what must not wait."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

PATIENCE = 20  # seconds, after which a test counts as waiting for ever


@pytest.fixture
def alarm() -> Iterator[None]:
    """What waits for ever fails."""

    def rung(*signal_: object) -> None:
        raise AssertionError(f"still at work after {PATIENCE} s")

    before = signal.signal(signal.SIGALRM, rung)
    signal.alarm(PATIENCE)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
