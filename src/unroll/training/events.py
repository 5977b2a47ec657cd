"""What happens while runs train, as values: a caller decides what to show."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from unroll.base.wording import in_words
from unroll.training.learner import Learner


@dataclass(frozen=True)
class Event:
    """Something happened after `batch` batches."""

    learner: Learner  # the fleet as it stands now; it goes on changing
    seconds: float  # of training so far, a run
    evaluating: float  # seconds spent on evaluation so far
    loss: float | None  # of the first run since its last evaluation, when the device was last looked at
    batch: int = field(init=False)  # batches done when it happened

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch", self.learner.count)

    @property
    def batches(self) -> int:
        """How many batches the longest run has in all."""
        return max(experiment.batches for experiment in self.learner.experiments)


@dataclass(frozen=True)
class Stepped(Event):
    """One batch was trained on."""


@dataclass(frozen=True)
class Resumed(Event):
    """A run goes on from `batch`."""


@dataclass(frozen=True)
class Evaluating(Event):
    """An evaluation begins: nothing else happens until it is there."""


@dataclass(frozen=True)
class Evaluated(Event):
    """A line was added to a run's metrics."""

    run: int
    metrics: dict[str, Any]
    sample: dict[str, Any] | None = None  # a line that was added to its samples, where samples are drawn


@dataclass(frozen=True)
class Ended(Event):
    """A run finished or stopped."""

    run: int
    status: dict[str, Any]


@dataclass(frozen=True)
class Warned(Event):
    """Something that the user should know."""

    message: str

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "message", in_words(self.message))
