"""A sweep: from a list of experiments to finished run folders and one table, through a plan; resumable at any moment.

`train_all` does it and returns the table. `sweep` is the driver itself, a generator of what happens, so that its
caller decides what to show. Runs that have ended are never run again; those that cannot be trained are recorded with
the reason, and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from unroll.base.errors import ConfigurationError, CorpusError, InputError, Interrupted, RunError
from unroll.base.live import require_progress
from unroll.base.wording import go_on_with_sweep
from unroll.corpus.corpus import Corpus
from unroll.corpus.open_corpora import Library
from unroll.engines import devices, precisions
from unroll.experiment.experiment import Experiment
from unroll.runs.folder import RunFolder
from unroll.sweep import journal, launchers, occupied, table
from unroll.sweep import plan as plans
from unroll.sweep.deduplicate import Training, distinct
from unroll.sweep.folder import SweepFolder
from unroll.sweep.launchers import Chosen, Failed, Job, Noted, Report, TooLarge
from unroll.sweep.plan import Fleet, Plan
from unroll.training import extension, memory, preflight, relocate, trackers
from unroll.training.occupied import Exist, require_choice
from unroll.training.signals import Pressed, Watch


def train_all(
    experiments: Sequence[Experiment],
    out: str | Path,
    corpora: Sequence[Corpus] | None = None,
    most: int | None = None,
    save_every: int | None = None,
    launcher: str = "local",
    *,
    exist: Exist = "resume",
    progress: bool | None = None,
    on_event: Callable[[Report], object] | None = None,
    track: str | Sequence[str] = (),
) -> list[table.Row]:
    """Train every experiment into the folder `out`, side by side where that is faster, and return the table.

    corpora      the experiments' own texts, where they are not to be opened by name
    most         how many runs may train side by side; measured otherwise
    save_every   batches from one checkpoint to the next; by the clock otherwise
    launcher     where runs are trained: local, or processes, a fleet a core, or a GPU; with keys as in `name,key=value`
    exist        what a sweep in that folder means: `resume` goes on where it stopped, and refuses another sweep;
                 `error` refuses any; `replace` deletes it with its runs and begins anew
    progress     True, False, or None: a notebook and a terminal show it
    on_event     is called with every report of what happens. Where it raises, what was trained is saved
    track        the trackers that are told of each evaluation of each run: tensorboard, wandb, mlflow

    >>> import tempfile, unroll
    >>> text = unroll.Corpus.from_text("to be or not to be, that is the question. " * 100)
    >>> runs = unroll.grid(scheme=[1, 2, 3], k1=5, k2=10, hidden=8, dense=16, rows=4, batches=5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = unroll.train_all(runs, folder, [text] * 3, most=2)
    >>> [(row["scheme"], row["state"]) for row in rows]
    [(1, 'finished'), (2, 'finished'), (3, 'finished')]
    """
    from unroll.sweep.progress import watched  # which knows the reports of this file

    require_choice(exist)
    require_progress(progress)
    track = trackers.chosen(track)
    library = Library(corpora or ())
    if corpora is not None:
        experiments = [c.described_in(e) for e, c in zip(experiments, corpora, strict=True)]
    asked = describe(experiments, library)
    folder = SweepFolder(out)
    if exist == "error":
        occupied.refuse(folder)
    elif exist == "replace":
        launchers.chosen(launcher).call(require_devices, asked)  # what is lacking is said before anything is deleted
        occupied.replace(folder)
    try:
        notes = dict.fromkeys(note for experiment in asked for note in library.open(experiment).notes)
        watched(sweep(folder, library, asked, most, save_every, launcher, track), progress, on_event, notes)
    except Interrupted as error:
        raise error.with_advice(go_on_with_sweep(folder.path)) from None
    return results(folder)


@dataclass(frozen=True)
class Planned(Report):
    """The plan stands, newly made, read or changed; runs that have ended need nothing more."""

    plan: Plan
    trainings: tuple[Training, ...]
    ended: Mapping[str, str]  # finished or stopped, by name


@dataclass(frozen=True)
class Stage(Report):
    """A part of the work begins."""

    words: str


def describe(experiments: Sequence[Experiment], library: Library) -> list[Experiment]:
    """The experiments with their corpora's facts filled in; an error names every corpus that cannot be read."""
    described: list[Experiment] = []
    wrong: list[str] = []
    for experiment in experiments:
        try:
            described.append(library.open(experiment).described_in(experiment))
        except InputError as error:
            wrong += error.problems
    if wrong:
        raise CorpusError(*dict.fromkeys(wrong))
    return described


def make_plan(
    trainings: Sequence[Training],
    library: Library,
    most: int | None = None,
    at_once: Mapping[str, int] | None = None,
    watch: Watch | None = None,
) -> Plan:
    """The plan for these trainings; `at_once` fleets train at the same time on devices of a name."""
    experiments = {t.name: t.experiment for t in trainings}
    corpora = {t.name: library.open(t.experiment) for t in trainings}
    return plans.make(experiments, corpora, most, watch.check if watch else lambda: None, at_once)


def planned(
    trainings: Sequence[Training],
    library: Library,
    most: int | None = None,
    launcher: Chosen | None = None,
    watch: Watch | None = None,
) -> Plan:
    """The plan for these trainings, measured where they would be trained."""
    launcher = launcher or launchers.chosen("local")
    at_once = {name: launcher.at_once(name) for name in {t.experiment.device for t in trainings}}
    # Another process cannot hear this one's signals.
    return launcher.call(make_plan, trainings, library, most, at_once, watch if launcher.measures_here else None)


def require_devices(experiments: Sequence[Experiment]) -> None:
    """Raise where this machine lacks what an experiment asks for."""
    for experiment in experiments:
        devices.resolve(replace(experiment, device=devices.places(experiment.device)[0]))


def sweep(
    folder: SweepFolder,
    library: Library,
    asked: Sequence[Experiment] | None,
    most: int | None = None,
    save_every: int | None = None,
    launcher: str = "local",
    track: Sequence[str] = (),
) -> Generator[Report, None, None]:
    """Train what is asked, or go on with what the folder holds; ends with the table written."""
    chosen = launchers.chosen(launcher)
    known = [e for t in folder.trainings for e in t.asked] if folder.is_sweep() else []
    launchers.require_reach(chosen, asked if asked is not None else known, track)
    if asked is not None and any(experiment.keep_optimiser for experiment in asked):
        raise ConfigurationError("keep_optimiser is for a run alone, and not for a sweep. Leave it out.")
    if asked is not None:
        folder.refuse_occupied()
        if not folder.is_sweep():
            chosen.call(require_devices, asked)  # what is lacking is said before there is a folder
        folder.make()
    with folder.locked() as left_over, Watch() as watch:
        try:
            if left_over:
                yield Noted("", left_over)
            if asked is not None:
                _begin(folder, distinct(asked))
            folder.require_own_kind()
            folder.clear_partials()
            trainings = folder.trainings
            _plan_once(folder, trainings, library, most, chosen, watch)
            reports = carry_out(folder, trainings, library, save_every, chosen, watch, track=track)
            yield from journal.kept(folder, reports)
        except Pressed as pressed:  # between two fleets: whatever trained was saved by its own loop
            raise Interrupted(pressed.number) from None
        folder.write_table(results(folder, trainings))


def results(folder: SweepFolder, trainings: Sequence[Training] | None = None) -> list[table.Row]:
    """The table of a sweep, from its folder."""
    trainings = folder.trainings if trainings is None else trainings
    failures = {name: str(failure["reason"]) for name, failure in folder.failures.items()}
    return table.rows(trainings, {t.name: folder.run(t.name) for t in trainings}, failures)


def _begin(folder: SweepFolder, trainings: Sequence[Training]) -> None:
    """Write down what is asked; a folder in which something else was asked is refused."""
    if not folder.is_sweep():
        folder.trainings = trainings
        return
    before = {e for training in folder.trainings for e in training.asked}
    now = {e for training in trainings for e in training.asked}
    if before != now:
        raise RunError(
            f"{folder.path} holds another sweep: {len(now - before)} of the experiments asked for are not in it, and "
            f"{len(before - now)} of its own are not asked for. Choose another folder with --out, or go on with what "
            f"it holds: {go_on_with_sweep(folder.path)}"
        )


def _plan_once(
    folder: SweepFolder,
    trainings: Sequence[Training],
    library: Library,
    most: int | None,
    launcher: Chosen,
    watch: Watch,
) -> None:
    known = folder.plan
    plan = known or planned(trainings, library, most, launcher, watch)
    refuse_full_disk(folder, plan, trainings, library)
    if known is None:
        folder.plan = plan


def carry_out(
    folder: SweepFolder,
    trainings: Sequence[Training],
    library: Library,
    save_every: int | None,
    launcher: Chosen,
    watch: Watch,
    over: Callable[[], Mapping[str, str]] = dict,
    wanted: Collection[str] | None = None,
    track: Sequence[str] = (),
) -> Iterator[Report]:
    """Train the fleets of the folder's plan that have not ended.

    `over` names runs that have ended though their folders are gone, with how; of `wanted`, if given, a fleet must have
    a run. A fleet that has begun goes on whole, since its last bits depend on its size.
    """
    experiments = {training.name: training.experiment for training in trainings}
    plan = folder.plan
    assert plan is not None
    # What failed before is tried again: its reason may be gone.
    failures = {name: {"reason": reason} for name, reason in plan.refused.items()}
    folder.failures = failures
    tried: set[str] = set()
    while True:
        ended = dict(over())
        ended |= {
            name: state
            for name in experiments
            if name not in ended and (state := _end(folder, name, experiments[name]))
        }
        yield Planned("", plan, tuple(trainings), ended)
        if not tried:
            yield from _lost_weights(folder, ended)
        left = [
            fleet
            for fleet in plan.fleets
            if fleet.name not in tried
            and not ended.keys() >= set(fleet.runs)
            and (wanted is None or not set(fleet.runs).isdisjoint(wanted))
        ]
        if not left:
            return
        if not tried:  # another text behind a corpus's name is said before any work
            describe([experiments[name] for fleet in left for name in fleet.runs], library)
        tried |= {fleet.name for fleet in left}
        for report in _launched(folder, left, experiments, library, save_every, launcher, track):
            watch.check()
            if isinstance(report, TooLarge):
                plan = folder.plan = plan.split(report.fleet, report.reason)
                yield Noted(report.fleet, plan.changes[-1])
                continue
            if isinstance(report, Failed):
                failure = {"reason": report.reason} | ({"traceback": report.traceback} if report.traceback else {})
                failures |= dict.fromkeys(report.runs, failure)
                folder.failures = failures
            yield report


def _end(folder: SweepFolder, name: str, experiment: Experiment) -> str | None:
    """How a run ended; None where it has not, or is to be longer."""
    run = folder.run(name)
    try:
        if not extension.has_ended(run, experiment):
            return None
    except RunError:
        return None  # what is wrong with it is said where it is trained
    run.tidy()
    return str(run.status["state"])


def _lost(run: RunFolder) -> str | None:
    """What is wrong with the weights of a run that has ended, in words."""
    try:
        run.require_weights()
    except RunError as error:
        return str(error)
    return None


def _lost_weights(folder: SweepFolder, ended: Mapping[str, str]) -> Iterator[Report]:
    """Notes on runs whose weights are gone: the table needs none, but sampling does."""
    for name in ended:
        run = folder.run(name)
        if run.is_run() and (words := _lost(run)):
            yield Noted("", f"{words} Its row of the table stands.")


def _launched(
    folder: SweepFolder,
    fleets: Sequence[Fleet],
    experiments: Mapping[str, Experiment],
    library: Library,
    save_every: int | None,
    launcher: Chosen,
    track: Sequence[str],
) -> Iterator[Report]:
    """Train these fleets."""
    jobs = [
        Job(
            fleet.name,
            fleet.runs,
            tuple(
                replace(experiments[name], device=fleet.device, kernel=fleet.kernel, threads=fleet.threads)
                for name in fleet.runs
            ),
            tuple(str(folder.run(name).path) for name in fleet.runs),
            save_every,
            tuple(track),
        )
        for fleet in fleets
    ]
    launcher, note = _with_all_devices(launcher, jobs)
    if note:
        yield Noted("", note)
    yield from launcher.run(jobs, library)


def _with_all_devices(launcher: Chosen, jobs: Sequence[Job]) -> tuple[Chosen, str | None]:
    """The launcher, and what to say of it: several GPUs are used by a process each."""
    count = len({place for job in jobs for place in relocate.places(job.device)}) if launcher.name == "local" else 1
    if count < 2 or len(jobs) < 2:
        return launcher, None
    if known := launchers.only_here((e for job in jobs for e in job.experiments), jobs[0].track):
        return launcher, (
            f"One GPU of {count} is used: other processes do not know {', '.join(known)}, which this program "
            "registered. Bring it in a package by an entry point to use all."
        )
    if wrong := launchers.problem("processes"):
        return launcher, f"One GPU of {count} is used. {wrong}"
    return launchers.chosen("processes"), f"{count} GPUs: each trains one fleet at a time, in a process of its own."


def refuse_full_disk(folder: SweepFolder, plan: Plan, trainings: Sequence[Training], library: Library) -> None:
    """Room for the weights of all runs that have not ended, and the checkpoints of the largest fleet of them."""
    experiments = {training.name: training.experiment for training in trainings}

    def taken(estimate: Callable[[Experiment, int], int], names: Sequence[str]) -> int:
        chosen = [experiments[name] for name in names]
        return sum(estimate(e, e.unique or library.open(e).unique) for e in chosen)

    left = [[name for name in fleet.runs if _end(folder, name, experiments[name]) is None] for fleet in plan.fleets]
    there = sum(_saved_bytes(folder, name) for names in left for name in names)
    if any(left):
        weights = sum(taken(preflight.weights_bytes, names) for names in left)
        checkpoints = max(taken(preflight.checkpoints_bytes, names) for names in left)
        preflight.refuse_full_disk(folder.path, weights + checkpoints - there)


def _saved_bytes(folder: SweepFolder, name: str) -> int:
    """The bytes of a run's checkpoints, which new ones replace."""
    total = 0
    for path in (folder.run(name).path / "checkpoints").glob("*.safetensors"):
        with suppress(OSError):
            total += path.lstat().st_size
    return total


def in_words(fleet: Fleet) -> str:
    """One line about a fleet."""
    runs = f"{len(fleet.runs)} runs" if len(fleet.runs) > 1 else "1 run"
    where = f"{fleet.device}, kernel {fleet.kernel}, {precisions.described(fleet.precision, fleet.device)}"
    return f"{runs}, {where}, about {memory.in_words(fleet.bytes)} ({fleet.why})"
