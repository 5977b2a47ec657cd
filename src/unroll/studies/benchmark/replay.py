"""A training step as a CUDA graph: recorded once, then replayed without Python or launches in between."""

from __future__ import annotations

from collections.abc import Callable

import torch

from unroll.engines.cuda.replay import recorded

WARM_UP = 3  # steps in which libraries choose their algorithms and Adam makes its state, before anything is recorded


def replayed(train: Callable[[], None], device: torch.device, record: bool = True) -> Callable[[], None]:
    """What replays `train`; where nothing is to be recorded, `train` itself, warmed up all the same."""
    if not record:
        for _ in range(WARM_UP):
            train()
        return train
    with torch.cuda.device(device):
        graph = recorded(train, WARM_UP)
    replay: Callable[[], None] = graph.replay
    return replay
