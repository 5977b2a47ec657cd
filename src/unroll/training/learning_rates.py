"""The learning rate of every run of a fleet, batch after batch, as its schedule has it.

Engines read the rates from one tensor at every step, a recorded step too, so a rate is set by writing into it. What is
written was sent to the device for many batches at once: no step waits for a copy from the host.

Shapes: M runs, n batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from unroll.experiment.experiment import Experiment
from unroll.model import schedules
from unroll.runs import metric_lines

STRETCH = 128  # batches whose rates are sent at a time


class LearningRates:
    """Writes the rates of each batch into `rate_M`. A fleet whose rates are all one number costs nothing."""

    def __init__(self, experiments: Sequence[Experiment], rate_M: Tensor) -> None:
        self._experiments, self._rate_M = experiments, rate_M
        self._rates = [schedules.of(e) for e in experiments]
        self.move = any(self._rates)
        self.histories: list[list[tuple[int, float]]] = [[] for _ in experiments]
        self._first, self._sent_nM = 0, rate_M.new_empty(0, len(experiments))

    def at(self, m: int, batch: int) -> float:
        """The learning rate of a run at this batch, from 1."""
        rates = self._rates[m]
        return self._experiments[m].learning_rate if rates is None else rates.at(batch, self.histories[m])

    def recorded(self, m: int, batch: int) -> dict[str, float]:
        """The rate of this batch, for a line of metrics; nothing where it is the same at every batch."""
        return {} if self._rates[m] is None else {"learning_rate": self.at(m, batch)}

    def set_for(self, batch: int) -> None:
        """Let the next step, on this batch, be made with its rates."""
        if not self._first <= batch < self._first + len(self._sent_nM):
            runs = range(len(self._rates))
            rates = [[self.at(m, batch + n) for m in runs] for n in range(STRETCH)]
            self._first, self._sent_nM = batch, torch.tensor(rates, dtype=torch.float64).to(self._rate_M)
        self._rate_M.copy_(self._sent_nM[batch - self._first])

    def watches(self, m: int) -> bool:
        """Whether evaluations decide the rates of a run."""
        rates = self._rates[m]
        return rates is not None and rates.schedule.WATCHES

    def note(self, m: int, lines: Iterable[Mapping[str, Any]]) -> None:
        """Let a schedule that watches know of these evaluations, as metrics.jsonl has them, after those before."""
        if self.watches(m):
            self.histories[m] += [(line["batch"], _seen(line, self._experiments[m])) for line in lines]
            self._sent_nM = self._sent_nM[:0]  # the rates to come may be others


def _seen(line: Mapping[str, Any], experiment: Experiment) -> float:
    """The perplexity that a schedule watches, under the scheme's own procedure: of a validation set, if it has one."""
    scores = line.get("validation", line["perplexity"])
    score = scores.get(experiment.scheme.sample) if isinstance(scores, dict) else None
    return math.inf if score is None or not metric_lines.is_number(score) else float(score)
