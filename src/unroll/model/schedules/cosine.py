"""The learning rate falls along half a cosine, to a share of what it was: slowly, fast, slowly."""

from __future__ import annotations

import math
from collections.abc import Sequence

from unroll.experiment.spelled import SHARE, Key

DEPENDS_ON_LENGTH = True
WATCHES = False
KEYS = {"final": Key(0.0, SHARE)}


def factor(batch: int, batches: int, history: Sequence[tuple[int, float]], final: float) -> float:
    """1 at the first batch; `final` would come after the last."""
    return final + (1 - final) * (1 + math.cos(math.pi * (batch - 1) / batches)) / 2
