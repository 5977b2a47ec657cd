"""What a stepper keeps that reads every window again: the tokens, and no state."""

from __future__ import annotations

from collections.abc import Sequence

from unroll.model.steppers import Ids


class LastTokens:
    """The last k2 tokens of each row."""

    def __init__(self, k2: int) -> None:
        self._k2 = k2
        self.windows: list[tuple[int, ...]] = []

    def begin(self, rows: int) -> None:
        """So many rows, none of which has read anything."""
        self.windows = [()] * rows

    def restart(self, rows: Sequence[int]) -> None:
        """These rows have read nothing."""
        for row in rows:
            self.windows[row] = ()

    def read(self, ids_B: Ids) -> None:
        """Each row's window moves on."""
        windows = zip(self.windows, ids_B, strict=True)
        self.windows = [(*window, int(token))[-self._k2 :] for window, token in windows]

    def take(self, rows: Sequence[int]) -> None:
        """Row b goes on from where row rows[b] stood."""
        self.windows = [self.windows[row] for row in rows]
