"""The clock of a budget. It began when the command did, so it is the caller's."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Clock:
    """Seconds that this process spent, and those before it."""

    now: Callable[[], float]
    began: float
    before: float = 0.0

    @property
    def spent(self) -> float:
        """All of it."""
        return self.before + self.now() - self.began


def clock(now: Callable[[], float] = time.monotonic, began: float | None = None) -> Clock:
    """A clock that began now, or when the command did."""
    return Clock(now, now() if began is None else began)
