"""How the learning rate moves while a run trains. One file a schedule; a file supplies

    DEPENDS_ON_LENGTH                            whether `batches`, the run's length, changes any factor
    WATCHES                                      whether it looks at the history of evaluations
    factor(batch, batches, history, **keys)      -> the factor of the learning rate at this batch

and, where a user may say more than its name, KEYS: its keys with their defaults (`experiment/spelled.py`), which
`factor` takes by name. `batch` is the number of the update, from 1 to `batches`. `history` has a pair for each
evaluation before this batch, the oldest first: the batch after which it was made, and the perplexity. What every
schedule keeps to:
- it is a pure function: equal arguments give equal factors, so that a run which was killed goes on as it would have;
- a factor is a finite number, and at least 0;
- without DEPENDS_ON_LENGTH, `batches` changes no factor: a run may be made longer. With it, a run stays as long as it
  was;
- without WATCHES, `history` changes no factor.

Warm-up (`--warm-up N`) goes with each of them: over the first N batches the factor is multiplied by 1/N, 2/N, …, 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, cast

from unroll.base import plugins
from unroll.experiment import spelled
from unroll.experiment.experiment import Experiment

History = Sequence[tuple[int, float]]


class Schedule(Protocol):
    """What every schedule file is."""

    DEPENDS_ON_LENGTH: bool
    WATCHES: bool
    factor: Callable[..., float]


class Rates(NamedTuple):
    """The learning rate of a run at each of its batches: a schedule with its keys, a warm-up and a highest rate."""

    schedule: Schedule
    keys: dict[str, spelled.Number]
    warm_up: int
    batches: int
    highest: float

    def at(self, batch: int, history: History) -> float:
        """The learning rate at this batch, from 1; after a run's last batch it stays."""
        batch = min(batch, self.batches)
        before = [evaluation for evaluation in history if evaluation[0] < batch] if self.schedule.WATCHES else ()
        factor = self.schedule.factor(batch, self.batches, before, **self.keys)
        warm = batch / self.warm_up if batch < self.warm_up else 1.0
        return self.highest * factor * warm


def load(name: str) -> Schedule:
    """The schedule behind an option's name."""
    return cast(Schedule, plugins.load("schedules", name))


def of(experiment: Experiment) -> Rates | None:
    """The learning rates of a run; None where they are one number."""
    if not experiment.rate_moves:
        return None
    keys = spelled.values("schedules", experiment.schedule)
    schedule = load(spelled.name_of(experiment.schedule))
    return Rates(schedule, keys, experiment.warm_up, experiment.batches, experiment.learning_rate)
