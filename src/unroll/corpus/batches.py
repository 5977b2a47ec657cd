"""Which tokens batch i holds, for every run of a fleet: a pure function of i, so there is nothing to save.

Row j of batch i starts at floor(j·N/B) + i·k1 in a train set of N tokens. An epoch ends before the batch in which the
last row's window of k2 + 1 tokens would run past the end; then the train set is rotated and i starts again at 0.

Shapes: M runs, T = k2 time steps, B rows, K scored positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast
from weakref import WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unroll.base import randomness
from unroll.base.errors import CorpusError
from unroll.corpus.corpus import Corpus, Split
from unroll.experiment.experiment import Experiment

AHEAD = 64  # batches whose window starts are worked out at once


class Batch(NamedTuple):
    """What one training step reads."""

    number: Tensor  # counted from 0 over the whole run; on the device, so that a recorded step can be replayed
    inputs_MTB: Tensor
    targets_MKB: Tensor
    gap_MTB: Tensor | None  # tokens between this window and the next, where k1 > k2 and a state is carried
    reset_MB: Tensor  # rows whose carried state is set to 0 before this batch


_orders: WeakValueDictionary[tuple[int, int, int], Any] = WeakValueDictionary()


def _shuffled(seed: int, epoch: int, windows: int) -> randomness.Order:
    """The order of an epoch's windows, once for all runs that have the same."""
    order = _orders.get((seed, epoch, windows))
    if order is None:
        order = _orders[seed, epoch, windows] = randomness.permutation(seed, "shuffle", epoch, windows)
    return cast(randomness.Order, order)


class Schedule:
    """One run's windows."""

    def __init__(self, experiment: Experiment, train_tokens: int) -> None:
        self.experiment, self.train_tokens = experiment, train_tokens
        scheme, rows = experiment.scheme, experiment.rows
        # The last row's window must end inside the train set: start + i·k1 + k2 + 1 <= N.
        room = train_tokens - (rows - 1) * train_tokens // rows - (scheme.k2 + 1)
        if room < 0:
            needed = rows * scheme.k2 + 1
            raise CorpusError(
                f"{rows:,} rows of windows of k2 + 1 = {scheme.k2 + 1:,} tokens need a train set of {needed:,} tokens; "
                f"this one has {train_tokens:,}. Lower --k2 or --rows, or bring more text."
            )
        self.row_starts = np.arange(rows, dtype=np.int64) * train_tokens // rows
        self.batches_an_epoch = room // scheme.k1 + 1
        self._order: tuple[int, randomness.Order] | None = None

    @property
    def windows(self) -> int:
        """How many an epoch has."""
        return self.batches_an_epoch * len(self.row_starts)

    def starts(self, number: int) -> NDArray[np.int64]:
        """Where each row's window starts in the rotated train set."""
        epoch, i = divmod(number, self.batches_an_epoch)
        if not self.experiment.shuffle:
            return self.row_starts + i * self.experiment.scheme.k1
        if self._order is None or self._order[0] != epoch:
            self._order = None  # before there is another
            self._order = epoch, _shuffled(self.experiment.seed, epoch, self.windows)
        rows = len(self.row_starts)
        batch, row = np.divmod(self._order[1][i * rows : (i + 1) * rows].astype(np.int64), rows)
        return np.asarray(self.row_starts[row] + batch * self.experiment.scheme.k1)

    def window_starts(self, first: int, count: int) -> NDArray[np.int64]:
        """Where the rows' windows of batches first … first + count − 1 start in the train set, which has an end."""
        numbers = np.arange(first, first + count)
        if self.experiment.shuffle:
            return np.stack([self.starts(int(n)) for n in numbers])
        epochs, i = np.divmod(numbers, self.batches_an_epoch)
        rotations = {int(e): self.rotation(int(e) * self.batches_an_epoch) for e in np.unique(epochs)}
        moved = i * self.experiment.scheme.k1 + np.array([rotations[int(e)] for e in epochs])
        return np.asarray(self.row_starts + moved[:, None])

    def rotation(self, number: int) -> int:
        """How far the train set has been rotated when this batch is read."""
        epoch = number // self.batches_an_epoch
        if self.experiment.shuffle or epoch == 0:
            return 0
        if self.experiment.rotation == "continue":
            return epoch * self.batches_an_epoch * self.experiment.scheme.k1 % self.train_tokens
        return randomness.below(self.experiment.seed, "rotation", epoch, self.train_tokens)

    def resets(self, number: int) -> NDArray[np.bool_]:
        """Which rows' carried state is set to 0 before this batch."""
        reset, rows = self.experiment.scheme.reset, self.experiment.rows
        if isinstance(reset, float | int):
            return randomness.uniform(self.experiment.seed, "reset", number, rows) < reset
        return np.full(rows, reset == "epoch" and number % self.batches_an_epoch == 0)

    def all_resets(self, first: int, count: int) -> NDArray[np.bool_]:
        """The same for a stretch of batches."""
        return np.stack([self.resets(n) for n in range(first, first + count)])


class Batches:
    """The batches of a fleet, gathered on its device from text that stays there."""

    def __init__(self, experiments: Sequence[Experiment], corpora: Sequence[Corpus], device: torch.device) -> None:
        scheme = experiments[0].scheme
        self.k2, self.K, self.gap = scheme.k2, scheme.scored, max(e.scheme.gap for e in experiments)
        splits = [corpus.split(e.split_seed, e.validation) for e, corpus in zip(experiments, corpora, strict=True)]
        self.schedules = [Schedule(e, s.train) for e, s in zip(experiments, splits, strict=True)]
        self.text, bases = _text(corpora, device)
        # Where each run's train set lies: its length, its offset in the corpus, the corpus's length and first index.
        sizes = [corpus.tokens for corpus in corpora]
        self.places = torch.tensor([*map(_place, splits, sizes, bases)], device=device)
        self._ahead: tuple[range, Tensor, Tensor] | None = None

    def __getitem__(self, number: int) -> Batch:
        return self.gather(torch.tensor(number, device=self.text.device), *self.at(number))

    def at(self, number: int) -> tuple[Tensor, Tensor]:
        """Where the windows of a batch start [M, B], and which rows are reset before it."""
        if self._ahead is None or number not in self._ahead[0]:
            starts_nMB, resets_nMB = (x.to(self.text.device) for x in self.stretch(number, AHEAD))
            self._ahead = range(number, number + AHEAD), starts_nMB, resets_nMB
        numbers, starts_nMB, resets_nMB = self._ahead
        n = number - numbers.start
        return starts_nMB[n], resets_nMB[n]

    def stretch(self, first: int, count: int) -> tuple[Tensor, Tensor]:
        """Where the windows of the next batches start, and which rows are reset before each: on the host."""
        starts = np.stack([s.window_starts(first, count) for s in self.schedules], axis=1)
        resets = np.stack([s.all_resets(first, count) for s in self.schedules], axis=1)
        return torch.from_numpy(starts), torch.from_numpy(resets)

    def gather(self, number: Tensor, starts_MB: Tensor, reset_MB: Tensor) -> Batch:
        """The tokens from each start on; on the device alone."""
        window = self.tokens(starts_MB, 0, self.k2 + 1)
        gap = self.tokens(starts_MB, self.k2, self.k2 + self.gap) if self.gap else None
        return Batch(number, window[:, :-1], window[:, -self.K :], gap, reset_MB)

    def tokens(self, starts_MB: Tensor, first: int, last: int) -> Tensor:
        """Tokens `first` to `last` − 1 from each start on, as [M, T, B]. On a GPU batches.cu computes the same."""
        train, offset, total, base = self.places.unbind(1)
        t = torch.arange(first, last, device=starts_MB.device).view(1, -1, 1)
        in_train_set = (starts_MB.unsqueeze(1) + t) % train.view(-1, 1, 1)
        indices = (in_train_set + offset.view(-1, 1, 1)) % total.view(-1, 1, 1) + base.view(-1, 1, 1)
        return self.text[indices].long()


def _place(split: Split, tokens: int, base: int) -> tuple[int, int, int, int]:
    return split.train, split.offset, tokens, base


def _text(corpora: Sequence[Corpus], device: torch.device) -> tuple[Tensor, list[int]]:
    """Every different corpus once, end to end, and where each run's corpus begins."""
    different: dict[int, Corpus] = {id(corpus): corpus for corpus in corpora}
    dtype = np.result_type(*(corpus.ids.dtype for corpus in different.values()))
    begins, total = {}, 0
    for key, corpus in different.items():
        begins[key], total = total, total + len(corpus.ids)
    parts = [torch.from_numpy(corpus.ids.astype(dtype, copy=False)) for corpus in different.values()]
    text = parts[0] if len(parts) == 1 else torch.cat(parts)
    return text.to(device), [begins[id(corpus)] for corpus in corpora]
