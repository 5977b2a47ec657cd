"""The learning rate swings between itself and a share of itself, once in a period."""

import math

from unroll.experiment.settings import at_least
from unroll.experiment.spelled import SHARE, Key

DEPENDS_ON_LENGTH = False
WATCHES = False
KEYS = {"period": Key(100, at_least(1)), "low": Key(0.1, SHARE)}


def factor(batch, batches, history, period, low):
    """1 at the first batch of each period."""
    return low + (1 - low) * (1 + math.cos(2 * math.pi * (batch - 1) / period)) / 2
