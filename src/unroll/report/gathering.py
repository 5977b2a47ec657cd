"""From the paths that a user gives to what a page shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from unroll.base import untrusted
from unroll.base.errors import InputError, RunError
from unroll.base.wording import go_on_with_sweep
from unroll.experiment.experiment import Experiment
from unroll.report import run_curves
from unroll.runs.folder import RunFolder
from unroll.studies.paper import records
from unroll.studies.paper.records import Curve, Record
from unroll.sweep.comparison import shown
from unroll.sweep.comparison.folder import ANSWER, ComparisonFolder
from unroll.sweep.comparison.shown import Comparison
from unroll.sweep.deduplicate import natural
from unroll.sweep.folder import SweepFolder

REMEDY = "Give run folders, folders of `unroll sweep` or `unroll reproduce`, or folders that hold some of these."


@dataclass(frozen=True)
class Gathered:
    """Records by figure, plain runs by name, and what a reader should know."""

    records: dict[str, Record] = field(default_factory=dict)
    runs: tuple[tuple[str, Curve], ...] = ()
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()  # folders that are damaged, and how
    folders: tuple[tuple[str, RunFolder, Experiment], ...] = ()  # of the runs, by name; each folder once
    sweeps: tuple[tuple[str, SweepFolder], ...] = ()
    comparisons: tuple[tuple[str, Comparison], ...] = ()  # what `unroll compare` found, by its folder's name

    @cached_property
    def of_sweeps(self) -> frozenset[str]:
        """The names of the runs that a sweep on this page trained."""
        sweeps = {sweep.path.resolve() for _, sweep in self.sweeps}
        return frozenset(name for name, run, _ in self.folders if run.path.resolve().parent.parent in sweeps)


def gather(paths: Iterable[str | Path]) -> Gathered:
    """Gather everything under these paths, each run and curve once; leave out and note what is damaged.

    A path that does not exist was mistyped. Then nothing is gathered, and one error names all of them.
    """
    gathered = Gathered()
    mistyped: list[str] = []
    wrong: list[str] = []
    for path in dict.fromkeys(Path(p) for p in paths):
        try:
            _require_folder(path)
        except InputError as error:
            mistyped += error.problems
            continue
        name = path.absolute().name
        try:
            inside = _of(path, name)
        except InputError as error:
            wrong += error.problems
            inside = _left_out(path, name, error)
        gathered = _joined(gathered, inside)
    if mistyped or not (gathered.records or gathered.runs):
        raise RunError(*dict.fromkeys([*mistyped, *wrong] or [f"There is nothing to report on. {REMEDY}"]))
    runs = sorted(gathered.runs, key=lambda run: (natural(run[0]), run[1].sample))
    once = {
        folder.path.resolve(): (name, folder, experiment) for name, folder, experiment in reversed(gathered.folders)
    }
    folders = sorted(once.values(), key=lambda each: natural(each[0]))
    sweeps = sorted(gathered.sweeps, key=lambda each: natural(each[0]))
    return replace(gathered, runs=tuple(runs), folders=tuple(folders), sweeps=tuple(sweeps))


def _require_folder(path: Path) -> None:
    try:
        exists = path.exists()
        folder = path.is_dir()
    except (OSError, ValueError) as error:  # a name that is too long, say
        raise RunError(f"{path} cannot be looked at: {error}. {REMEDY}") from None
    if not exists:
        raise RunError(f"{path} does not exist. {REMEDY}")
    if not folder:
        raise RunError(f"{path} is a file. {REMEDY}")


def _left_out(path: Path, name: str, error: InputError) -> Gathered:
    """Note what is damaged and left out. A page names no path of the machine that made it."""
    return Gathered(left_out=(f"{name} is left out. {' '.join(error.problems)}".replace(str(path), name),))


def _of(path: Path, name: str) -> Gathered:
    """What one folder holds: a run, records, a sweep, or folders of these."""
    here = _kind(path, name)
    if here is not None:
        return here
    return _together(path, name, sorted(path.iterdir()), f"{path} is no run and holds none. {REMEDY}")


def _together(path: Path, name: str, children: Iterable[Path], nothing: str, notes: tuple[str, ...] = ()) -> Gathered:
    """Gather the folders inside one; damaged ones are left out, unless there is nothing else."""
    gathered = Gathered(notes=notes)
    wrong: list[str] = []
    for child in children:
        inside = f"{name}/{child.name}"
        if not untrusted.is_folder(child):
            continue
        try:
            here = _kind(child, inside)
        except InputError as error:
            wrong += error.problems
            here = _left_out(child, inside, error)
        gathered = _joined(gathered, here) if here else gathered
    if not (gathered.records or gathered.runs or notes):
        raise RunError(*(wrong or [nothing]))
    return gathered


def _kind(path: Path, name: str) -> Gathered | None:
    if RunFolder(path).is_run():
        return _run(path, name)
    if untrusted.is_folder(path / "records"):
        read = records.read(path)
        if not read:
            raise RunError(f"{path / 'records'} holds no record of a figure. {REMEDY}")
        return Gathered(records=read)
    if path.name == "records" and (sibling_records := records.read(path.absolute().parent)):
        return Gathered(records=sibling_records)
    if SweepFolder(path).is_sweep():
        return _sweep(path, name)
    return None


def _run(path: Path, name: str) -> Gathered:
    """A run's curves as it was trained; a note says where run.toml differs."""
    folder = RunFolder(path)
    curves, changes = run_curves.curves(folder)
    experiment, _ = folder.described()
    notes = (f"{name}: run.toml was changed after the training ({'; '.join(changes)}).",) if changes else ()
    runs = tuple((name, curve) for curve in curves)
    return Gathered(runs=runs, notes=notes, folders=((name, folder, experiment),))


def _sweep(path: Path, name: str) -> Gathered:
    """A sweep's runs; those that could not be trained have no curve, and their reasons become notes."""
    sweep = SweepFolder(path)
    failures = {run: failure["reason"] for run, failure in sorted(sweep.failures.items())}
    notes = tuple(f"{name}/{run} could not be trained: {reason}" for run, reason in failures.items())
    runs = path / "runs"
    inside = sorted(runs.iterdir()) if untrusted.is_folder(runs) else []
    nothing = f"{path} is a sweep of which no run has begun. Go on with it: {go_on_with_sweep(path)}."
    gathered = replace(_together(path, name, inside, nothing, notes), sweeps=((name, sweep),))
    folder = ComparisonFolder(path)
    if not untrusted.present(path / ANSWER):
        return gathered
    try:
        return replace(gathered, comparisons=((name, shown.read(folder)),))
    except InputError as error:
        return _joined(gathered, _left_out(path, f"{name}/{ANSWER}", error))


def _joined(one: Gathered, other: Gathered) -> Gathered:
    scales = sorted({record.scale for each in (one, other) for record in each.records.values()})
    if len(scales) > 1:
        listed = " and ".join(f"{scale:g}" for scale in scales)
        raise RunError(f"Records of scales {listed} cannot share a page: their curves mean different things.")
    both = dict(one.records)
    for figure, record in other.records.items():
        both[figure] = _merged(both[figure], record) if figure in both else record
    return Gathered(
        both,
        (*one.runs, *other.runs),
        (*one.notes, *other.notes),
        (*one.left_out, *other.left_out),
        (*one.folders, *other.folders),
        (*one.sweeps, *other.sweeps),
        (*one.comparisons, *other.comparisons),
    )


def _merged(one: Record, other: Record) -> Record:
    """Join records of one figure from two folders, which may hold different seeds. What both hold is shown once."""
    new = tuple(curve for curve in other.curves if curve not in one.curves)
    return replace(
        one,
        seeds=tuple(sorted({*one.seeds, *other.seeds})),
        curves=(*one.curves, *new),
        times=(*one.times, *(time for time in other.times if time not in one.times)),
        k1_times=(*one.k1_times, *(time for time in other.k1_times if time not in one.k1_times)),
    )
