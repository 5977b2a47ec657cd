"""Where fleets execute. One file a launcher; a file supplies

    run(jobs, library)      train these fleets, in whatever order and place; what happens comes out as it does

A job is plain data, so that it can travel to another process or machine; so are the reports that come back. `work`
trains one job wherever it is called, and is all that a launcher has to call. The contract test holds every launcher to
the same run folders as `local`.

A launcher that is interrupted saves, and raises `Interrupted`; one whose disk is full raises `SaveError`. Anything else
that befalls a fleet is a report, and the others go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from unroll.base import plugins
from unroll.base.wording import in_words
from unroll.experiment.experiment import Experiment

if TYPE_CHECKING:  # naming the launchers must not cost an import of torch
    from unroll.corpus.open_corpora import Library


@dataclass(frozen=True)
class Job:
    """One fleet to be trained, or to go on with."""

    fleet: str
    runs: tuple[str, ...]  # names, in the order of their slots
    experiments: tuple[Experiment, ...]  # with device, kernel and threads decided
    outs: tuple[str, ...]  # their folders
    save_every: int | None = None


@dataclass(frozen=True)
class Report:
    """Something happened to a fleet."""

    fleet: str


@dataclass(frozen=True)
class Begun(Report):
    """It trains, from this batch on."""

    batch: int


@dataclass(frozen=True)
class Progressed(Report):
    """So many batches are done."""

    batch: int
    seconds: float  # of training so far, a run
    evaluating: float  # seconds of evaluation so far


@dataclass(frozen=True)
class Scored(Report):
    """A run was evaluated."""

    run: str
    metrics: dict[str, Any]


@dataclass(frozen=True)
class RunEnded(Report):
    """A run finished, or stopped where it diverged."""

    run: str
    status: dict[str, Any]


@dataclass(frozen=True)
class Failed(Report):
    """These runs could not be trained."""

    runs: tuple[str, ...]
    reason: str
    traceback: str | None = None  # where the reason is a fault of the program

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", in_words(self.reason))


@dataclass(frozen=True)
class TooLarge(Report):
    """The machine does not hold this many runs side by side; nothing was saved of them yet."""

    reason: str


@dataclass(frozen=True)
class Noted(Report):
    """Something that the user should know."""

    message: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", in_words(self.message))


class Launcher(Protocol):
    """What every launcher file is."""

    def run(self, jobs: Sequence[Job], library: Library) -> Iterator[Report]: ...


def load(name: str) -> Launcher:
    """The launcher behind an option's name."""
    return cast(Launcher, plugins.load("launchers", name))


def problem(name: str) -> str | None:
    """Why there is no such launcher, or None."""
    return plugins.problem("launchers", name, "launcher")
