"""Any sampler and any cell on any device, a row at a time: the truth that faster steppers are held to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from unroll.model import conditioning
from unroll.model.model import Model
from unroll.model.steppers import Array, Ids


class Rows:
    """A sampler's memory for each row. Memories are values: to copy a row is to share one."""

    def __init__(self, model: Model, k2: int, procedure: str) -> None:
        self._model, self._k2, self._sampler = model, k2, conditioning.load(procedure)
        self._memories: list[Any] = []
        self._h: list[Any] = []

    def begin(self, rows: int) -> None:
        """So many rows, none of which has read anything."""
        self._memories, self._h = [None] * rows, [None] * rows
        self.restart(range(rows))

    def restart(self, rows: Sequence[int]) -> None:
        """These rows have read nothing."""
        for row in rows:
            self._memories[row] = self._sampler.begin(self._model, self._k2, 1)

    def read(self, ids_B: Ids) -> None:
        """Each row reads one token."""
        ids_B1 = torch.from_numpy(np.asarray(ids_B, np.int64)).to(self._model.device).unsqueeze(1)
        with torch.inference_mode():
            for row, ids in enumerate(ids_B1):
                self._h[row], self._memories[row] = self._sampler.read(self._model, self._memories[row], ids)

    def logits(self) -> Array:
        """What each row predicts."""
        with torch.inference_mode():
            rows = [self._model.head(h_1H.view(1, 1, 1, -1))[0, 0] for h_1H in self._h]
            logits: Array = torch.cat(rows)[:, : self._model.vocabularies[0]].cpu().numpy()
        return logits

    def take(self, rows: Sequence[int]) -> None:
        """Row b goes on from where row rows[b] stood."""
        self._memories, self._h = ([held[row] for row in rows] for held in (self._memories, self._h))
