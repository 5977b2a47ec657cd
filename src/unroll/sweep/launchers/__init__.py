"""Where fleets execute. One file a launcher; a file supplies

    run(jobs, library)      train these fleets, in whatever order and place; what happens comes out as it does

and, where it needs them:

    KEYS                    keys that a user may say behind its name (`experiment/spelled.py`): `slurm,minutes=60`.
                            `run` and what stands below then get their values by name
    ELSEWHERE = True        other processes train: plug-ins that this one registered are refused
    why_not()               None, or the reason in words why it does not work on this system
    refusal(experiments)    None, or the reason in words why it cannot train these, before any work
    call(function, *args)   compute this where runs would be trained: the plan is measured there, not here
    TRIAL                   values of its keys with which any machine can try it: its rules are held to with these
    at_once(device)         how many fleets train at the same time on devices of that name: a plan makes no fewer

A job is plain data, so that it can travel to another process or machine; so are the reports
that come back. `work` trains one job wherever it is called, and is all that a launcher has to call. A device of a job
may name several, as in `cuda` or `cuda:0,2` (`training/relocate.py`: `places`): `work` takes the first, unless the
launcher has chosen.

What every launcher keeps to:
- every job is trained, in the folders that it names, and all its reports come out, each fleet's in their order;
- run folders and reports are those of `local`, clocks apart, to the last bit;
- a run that has begun goes on from its checkpoint, and one that has ended is left as it is.

A launcher that is interrupted saves, and raises `Interrupted`; one whose disk is full raises `SaveError`. Anything else
that befalls a fleet is a report, and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from unroll.base import plugins
from unroll.base.errors import ConfigurationError
from unroll.base.wording import in_words
from unroll.experiment import provenance, spelled
from unroll.experiment.experiment import Experiment

if TYPE_CHECKING:  # naming the launchers must not cost an import of torch
    from unroll.corpus.open_corpora import Library

Result = TypeVar("Result")


@dataclass(frozen=True)
class Job:
    """One fleet to be trained, or to go on with."""

    fleet: str
    runs: tuple[str, ...]  # names, in the order of their slots
    experiments: tuple[Experiment, ...]  # with device, kernel and threads decided
    outs: tuple[str, ...]  # their folders
    save_every: int | None = None
    track: tuple[str, ...] = ()  # the trackers that are told
    bytes: int = 0  # that it may need, by the plan

    @property
    def device(self) -> str:
        """The device that all its runs share; it may name several, of which one trains them."""
        return self.experiments[0].device

    def on(self, device: str) -> Job:
        """The same job on this device."""
        return replace(self, experiments=tuple(replace(one, device=device) for one in self.experiments))


@dataclass(frozen=True)
class Report:
    """Something happened to a fleet."""

    fleet: str


@dataclass(frozen=True)
class Begun(Report):
    """It trains, from this batch on."""

    batch: int
    where: str = ""  # process, machine and device, in words


@dataclass(frozen=True)
class Lost(Report):
    """What trained it is gone, and it is tried again from its last checkpoint."""

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

    def run(self, jobs: Sequence[Job], library: Library, **keys: Any) -> Iterator[Report]: ...


@dataclass(frozen=True)
class Chosen:
    """A launcher with the values of its keys."""

    words: str  # as the user said it: NAME[,key=value…]
    name: str
    module: Any
    keys: Mapping[str, Any]

    @property
    def is_elsewhere(self) -> bool:
        """Whether other processes train."""
        return bool(getattr(self.module, "ELSEWHERE", False))

    def run(self, jobs: Sequence[Job], library: Library) -> Iterator[Report]:
        """Train these fleets."""
        return cast(Iterator[Report], self.module.run(jobs, library, **self.keys))

    def call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """What a function gives where runs would be trained."""
        own = getattr(self.module, "call", None)
        return function(*arguments) if own is None else cast(Result, own(function, *arguments, **self.keys))

    @property
    def measures_here(self) -> bool:
        """Whether `call` computes in this process."""
        return not hasattr(self.module, "call")

    def at_once(self, device: str) -> int:
        """How many fleets can train at the same time on devices of that name."""
        own = getattr(self.module, "at_once", None)
        if own is not None:
            return int(own(device, **self.keys))
        from unroll.training import relocate

        return len(relocate.places(device))


def work(job: Job, library: Library) -> Iterator[Report]:
    """Train the runs of a job that have not ended, where this is called, and report."""
    from unroll.sweep.launchers import _work

    return _work.work(job, library)


def unended(job: Job) -> tuple[str, ...]:
    """The runs of a job that have not ended, whatever ended the job."""
    from unroll.sweep.launchers import _work

    return _work.unended(job)


def load(name: str) -> Launcher:
    """The launcher behind an option's name."""
    return cast(Launcher, plugins.load("launchers", name))


def chosen(words: str) -> Chosen:
    """The launcher that a user named, with its keys; a ConfigurationError where there is none here."""
    if wrong := problem(words):
        raise ConfigurationError(wrong)
    name = spelled.name_of(words)
    return Chosen(words, name, load(name), spelled.values("launchers", words))


def on_trial(name: str) -> Chosen:
    """The launcher as every machine can try it."""
    trial: Mapping[str, object] = getattr(load(name), "TRIAL", {})
    return chosen(",".join([name, *(f"{key}={value}" for key, value in trial.items())]))


def require_reach(launcher: Chosen, experiments: Iterable[Experiment], track: Iterable[str] = ()) -> None:
    """Raise where a launcher cannot train these: it refuses them, or this process alone knows what they use."""
    experiments = tuple(experiments)
    reason = getattr(launcher.module, "refusal", lambda experiments, **keys: None)(experiments, **launcher.keys)
    if reason:
        raise ConfigurationError(reason)
    if launcher.is_elsewhere and (known := only_here(experiments, track)):
        raise ConfigurationError(
            f"The launcher {launcher.name} trains in other processes, which do not know {', '.join(known)}: this "
            "program registered it. Use the launcher local, or bring it in a package by an entry point."
        )


def only_here(experiments: Iterable[Experiment], track: Iterable[str] = ()) -> list[str]:
    """The plug-ins that experiments use, and the trackers, which this process alone knows, in words."""
    known = [words for experiment in experiments for words in provenance.registered(experiment)]
    known += [f"the tracker {name!r}" for name in track if plugins.is_registered("trackers", name)]
    return list(dict.fromkeys(known))


def problem(words: str) -> str | None:
    """Why there is no such launcher here, or None."""
    wrong = spelled.problems("launchers", words, "launcher")
    if wrong:
        return " ".join(wrong)
    reason: Callable[[], str | None] = getattr(load(spelled.name_of(words)), "why_not", lambda: None)
    return reason()
