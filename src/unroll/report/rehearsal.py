"""How long a look at a run will take, found by trying a little of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unroll.runs.loaded import Run

TRIED = 64  # windows


def seconds_of(work: Callable[[], object]) -> float:
    """The second call is timed: the first also does what is done only once."""
    work()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def seconds_of_windows(run: Run, windows: int) -> float:
    """Seconds to read this many windows of k2 tokens of the run's test set."""
    from unroll.runs.loaded import perplexity

    few = run.experiment.scheme.k2 + TRIED
    return seconds_of(lambda: perplexity(run, "windowed", test_tokens=few)) * windows / TRIED
