"""Reads and predicts one row at a time, with any cell on any device: the truth for faster steppers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from unroll.model import conditioning
from unroll.model.model import Model
from unroll.model.steppers import Array, Ids


class Rows:
    """The conditioning's memory for each row. Memories are values, so copied rows share one."""

    def __init__(self, model: Model, k2: int, procedure: str) -> None:
        self._model, self._k2 = model, k2
        self._conditioning = conditioning.load(procedure)
        self._memories: list[Any] = []
        self._h: list[Any] = []

    def begin(self, rows: int) -> None:
        """Hold this many rows, none of which has read anything."""
        self._memories = [None] * rows
        self._h = [None] * rows
        self.restart(range(rows))

    def restart(self, rows: Sequence[int]) -> None:
        """Make these rows forget what they have read."""
        for row in rows:
            self._memories[row] = self._conditioning.begin(self._model, self._k2, 1)

    def read(self, ids_B: Ids) -> None:
        """Let each row read one token."""
        ids_B1 = torch.from_numpy(np.asarray(ids_B, np.int64)).to(self._model.device).unsqueeze(1)
        with torch.inference_mode():
            for row, ids in enumerate(ids_B1):
                self._h[row], self._memories[row] = self._conditioning.read(self._model, self._memories[row], ids)

    def logits(self) -> Array:
        """Each row's logits."""
        with torch.inference_mode():
            rows = [self._model.head(h_1H.view(1, 1, 1, -1))[0, 0] for h_1H in self._h]
            logits: Array = torch.cat(rows)[:, : self._model.vocabularies[0]].cpu().numpy()
        return logits

    def take(self, rows: Sequence[int]) -> None:
        """Let row b go on from where row rows[b] stood."""
        self._memories = [self._memories[row] for row in rows]
        self._h = [self._h[row] for row in rows]
