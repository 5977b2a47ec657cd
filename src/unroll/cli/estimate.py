"""How long reading a text will take, said before it begins where that is over a minute."""

from __future__ import annotations

import time
from collections.abc import Callable

from unroll.cli.screen import duration, say

ESTIMATED_TOKENS = 256
WORTH_SAYING = 60.0  # seconds


def announce_duration(what: str, procedure: str, total: int, k2: int, work: Callable[[int], object]) -> None:
    """Time `work(n)` on the text's first n tokens, and say how long `total` tokens will take."""
    from unroll.model import conditioning

    if total <= 20 * (k2 + ESTIMATED_TOKENS):
        return
    work(k2 + ESTIMATED_TOKENS)  # the first call also does what is done only once
    began = time.perf_counter()
    work(k2 + ESTIMATED_TOKENS)
    few = ESTIMATED_TOKENS if conditioning.forgets(procedure) else k2 + ESTIMATED_TOKENS
    expected = (time.perf_counter() - began) * total / few
    if expected > WORTH_SAYING:
        say(f"{what}, about {duration(expected)}.")
