"""Inverted dropout, its masks a pure function of (run seed, purpose, batch, element).

Shapes: M runs, N rows, H columns.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from unroll.base import randomness

DENSE, OUT = "dropout.dense", "dropout.out"  # the purposes: the inputs of the dense layer and of the output layer


class Dropout(NamedTuple):
    """Each run's rate and seed, and the number of the batch."""

    rates_M: Tensor
    words_M: tuple[tuple[int, int], ...]  # the two words of each run's seed
    keys_M2: Tensor  # the same words on the device
    batch: Tensor  # on the device, so that a step can be replayed
    drops: bool  # whether any run drops anything

    def dropped(self, x_MNH: Tensor, purpose: str) -> Tensor:
        """Drop elements of one of the head's inputs, and scale the others."""
        if not self.drops:
            return x_MNH
        M, N, H = x_MNH.shape
        blocks = torch.arange(-(-N * H // 4), device=x_MNH.device)
        low = self.batch.view(1)
        high = torch.zeros_like(blocks[:1])
        other = torch.full_like(blocks[:1], randomness.purpose_word(purpose))
        # The keys have 32 bits with a sign; Philox takes them without one.
        low_M1, high_M1 = self.keys_M2.long().bitwise_and(0xFFFFFFFF).unsqueeze(-1).unbind(1)
        words = torch.stack(randomness.philox((blocks, low, other, high), (low_M1, high_M1)), dim=-1)
        words_MNH = words.view(M, -1)[:, : N * H].view(M, N, H)
        rates_M11 = self.rates_M.view(-1, 1, 1)
        passes = words_MNH >= (rates_M11.double() * 2.0**32)
        return x_MNH * (passes / (1 - rates_M11))
