"""Gathers batches on an NVIDIA GPU: the text stays there, and one launch gathers the tokens of all runs.

Shapes: n batches of a stretch, M runs, T = k2 time steps, B rows, K scored positions.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from unroll.corpus.batches import Batch, Batches
from unroll.engines.cuda import compiler

SOURCE = Path(__file__).with_suffix(".cu")
THREADS = 256
TOKENS = {1: "unsigned char", 2: "unsigned short", 4: "int", 8: "long long"}  # by its bytes; none is below 0


def sent(batches: Batches, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Send the window starts and resets of the next batches; the GPU goes on with earlier work."""
    starts_nMB, resets_nMB = batches.stretch(first, count)
    device = batches.text.device
    return (
        starts_nMB.pin_memory().to(device, non_blocking=True),
        resets_nMB.pin_memory().to(device, non_blocking=True),
    )


def gather_at(batches: Batches, number: Tensor, starts_nMB: Tensor, resets_nMB: Tensor, at: Tensor) -> Batch:
    """Gather the tokens of batch `at` of a stretch."""
    (_, M, B), T, K, device = starts_nMB.shape, batches.k2, batches.K, batches.text.device
    inputs, targets = (torch.empty(M, n, B, dtype=torch.int32, device=device) for n in (T, K))
    reset = torch.empty(M, B, dtype=torch.bool, device=device)
    code = compiler.Module.load((SOURCE,), {"TOKEN": TOKENS[batches.text.element_size()]})
    code["gather"].launch(
        (-(-(T + 1) * B // THREADS), M), THREADS, batches.text, batches.places, starts_nMB, resets_nMB, at,
        inputs, targets, reset, B, T, K,
    )  # fmt: skip
    gap = None
    if batches.gap:
        gap = batches.tokens(starts_nMB.index_select(0, at)[0], batches.k2, batches.k2 + batches.gap)
    return Batch(number, inputs, targets, gap, reset)
