"""The memory of a stepper that reads every window again: tokens, and no state."""

from __future__ import annotations

from collections.abc import Sequence

from unroll.model.steppers import Ids


class LastTokens:
    """The last k2 tokens of each row."""

    def __init__(self, k2: int) -> None:
        self._k2 = k2
        self.windows: list[tuple[int, ...]] = []

    def begin(self, rows: int) -> None:
        """Hold this many rows, none of which has read anything."""
        self.windows = [()] * rows

    def restart(self, rows: Sequence[int]) -> None:
        """Make these rows forget what they have read."""
        for row in rows:
            self.windows[row] = ()

    def read(self, ids_B: Ids) -> None:
        """Move each row's window on by one token."""
        windows = zip(self.windows, ids_B, strict=True)
        self.windows = [(*window, int(token))[-self._k2 :] for window, token in windows]

    def take(self, rows: Sequence[int]) -> None:
        """Let row b go on from where row rows[b] stood."""
        self.windows = [self.windows[row] for row in rows]
