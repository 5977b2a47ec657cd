"""Single-loss: the last position alone, unless k3 widens it."""

from __future__ import annotations

from unroll.experiment.loss_weights.equal import weights as weights


def scored(k2: int) -> int:
    """The last one."""
    return 1
