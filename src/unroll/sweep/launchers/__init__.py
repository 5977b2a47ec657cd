"""Where fleets execute. One file a launcher; a file supplies

    run(jobs, library)      train these fleets, in whatever order and place; what happens comes out as it does

and, where jobs are trained by other processes, `ELSEWHERE = True`: plug-ins that were registered by this one are
refused before any work. One that does not work on every system also supplies `why_not()`: None, or the reason in words.

A job is plain data, so that it can travel to another process or machine; so are the reports
that come back. `work` trains one job wherever it is called, and is all that a launcher has to call.

What every launcher keeps to:
- every job is trained, in the folders that it names, and all its reports come out, each fleet's in their order;
- run folders and reports are those of `local`, clocks apart, to the last bit;
- a run that has begun goes on from its checkpoint, and one that has ended is left as it is.

A launcher that is interrupted saves, and raises `Interrupted`; one whose disk is full raises `SaveError`. Anything else
that befalls a fleet is a report, and the others go on.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from unroll.base import plugins
from unroll.base.errors import ConfigurationError
from unroll.base.wording import in_words
from unroll.experiment import provenance
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
    where: str = ""  # host, process, device: in words


@dataclass(frozen=True)
class Lost(Report):
    """The worker or the node that trained it is gone; it is tried again from what was saved."""

    reason: str


@dataclass(frozen=True)
class Progressed(Report):
    """A fleet has done more batches: the number so far."""

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


def work(job: Job, library: Library) -> Iterator[Report]:
    """Train the runs of a job that have not ended, where this is called, and report."""
    from unroll.sweep.launchers import _work

    return _work.work(job, library)


def load(name: str) -> Launcher:
    """The launcher behind an option's name."""
    return cast(Launcher, plugins.load("launchers", name))


def require_reach(name: str, experiments: Iterable[Experiment]) -> None:
    """Raise where a launcher trains in other processes, and an experiment uses what this process alone knows."""
    if not getattr(load(name), "ELSEWHERE", False):
        return
    known = dict.fromkeys(words for experiment in experiments for words in provenance.registered(experiment))
    if known:
        raise ConfigurationError(
            f"The launcher {name} trains in other processes, which do not know {', '.join(known)}: this program "
            "registered it. Use the launcher local, or bring it in a package by an entry point."
        )


def problem(name: str) -> str | None:
    """Why there is no such launcher here, or None."""
    wrong = plugins.problem("launchers", name, "launcher")
    if wrong or hasattr(signal, "pthread_sigmask"):  # a POSIX system has all that a launcher needs
        return wrong
    reason: Callable[[], str | None] = getattr(load(name), "why_not", lambda: None)
    return reason()
