"""From the paths that a user gives to what a page shows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from unroll.errors import InputError, RunError
from unroll.paper import records
from unroll.paper.records import Curve, Record
from unroll.report import folders
from unroll.run import RunFolder
from unroll.trainings import natural

REMEDY = "Give run folders, folders of `unroll sweep` or `unroll reproduce`, or folders that hold some of these."


@dataclass(frozen=True)
class Gathered:
    """Records by figure, plain runs by name, and what a reader should know."""

    records: dict[str, Record] = field(default_factory=dict)
    runs: tuple[tuple[str, Curve], ...] = ()
    notes: tuple[str, ...] = ()


def gather(paths: Iterable[str | Path]) -> Gathered:
    """Everything under these paths, each run and curve once; what is wrong with any of them is told at once."""
    found, wrong = Gathered(), list[str]()
    for path in dict.fromkeys(Path(p) for p in paths):
        try:
            found = _joined(found, _of(path, path.absolute().name))
        except InputError as error:
            wrong += error.problems
    if wrong:
        raise RunError(*dict.fromkeys(wrong))
    if not found.records and not found.runs:
        raise RunError(f"There is nothing to report on. {REMEDY}")
    return replace(found, runs=tuple(sorted(found.runs, key=lambda run: (natural(run[0]), run[1].sample))))


def _of(path: Path, name: str) -> Gathered:
    """What one path holds: a run, records, a sweep, or a folder of these."""
    if not path.exists():
        raise RunError(f"{path} does not exist. {REMEDY}")
    if not path.is_dir():
        raise RunError(f"{path} is a file. {REMEDY}")
    here = _kind(path, name)
    if here is not None:
        return here
    found, wrong = Gathered(), list[str]()
    for child in sorted(path.iterdir()):
        try:
            inside = _kind(child, f"{name}/{child.name}") if child.is_dir() else None
            found = _joined(found, inside) if inside else found
        except InputError as error:
            wrong += error.problems
    if wrong:
        raise RunError(*wrong)
    if not found.records and not found.runs and not found.notes:
        raise RunError(f"{path} is no run and holds none. {REMEDY}")
    return found


def _kind(path: Path, name: str) -> Gathered | None:
    if RunFolder(path).is_run():
        return Gathered(runs=tuple((name, curve) for curve in folders.curves(RunFolder(path))))
    if (path / "records").is_dir():
        read = records.read(path)
        if not read:
            raise RunError(f"{path / 'records'} holds no record of a figure. {REMEDY}")
        return Gathered(records=read)
    if path.name == "records" and (own := records.read(path.absolute().parent)):
        return Gathered(records=own)
    if (path / "sweep.json").is_file():
        return _sweep(path, name)
    return None


def _sweep(path: Path, name: str) -> Gathered:
    """A sweep's runs; those that could not be trained have no curve, and their reasons become notes."""
    inside = [child for child in sorted((path / "runs").glob("*")) if RunFolder(child).is_run()]
    runs = tuple((f"{name}/{child.name}", curve) for child in inside for curve in folders.curves(RunFolder(child)))
    notes = tuple(f"{name}/{run} could not be trained: {reason}" for run, reason in _failures(path).items())
    if not runs and not notes:
        raise RunError(f"{path} is a sweep of which no run has begun. Go on with it: unroll sweep --resume {path}.")
    return Gathered(runs=runs, notes=notes)


def _failures(path: Path) -> dict[str, str]:
    where = path / "failures.json"
    if not where.exists():
        return {}
    try:
        content = json.loads(where.read_text("utf-8"))
        return {str(run): str(failure["reason"]) for run, failure in sorted(content.items())}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise RunError(f"{where} is damaged. Delete it and go on with the sweep.") from None


def _joined(one: Gathered, other: Gathered) -> Gathered:
    scales = sorted({record.scale for each in (one, other) for record in each.records.values()})
    if len(scales) > 1:
        told = " and ".join(f"{scale:g}" for scale in scales)
        raise RunError(f"Records of scales {told} cannot share a page: their curves mean different things.")
    both = dict(one.records)
    for figure, record in other.records.items():
        both[figure] = _merged(both[figure], record) if figure in both else record
    return Gathered(both, (*one.runs, *other.runs), (*one.notes, *other.notes))


def _merged(one: Record, other: Record) -> Record:
    """Records of one figure from two folders: more seeds, say. What both hold is shown once."""
    new = tuple(curve for curve in other.curves if curve not in one.curves)
    return replace(
        one,
        seeds=tuple(sorted({*one.seeds, *other.seeds})),
        curves=(*one.curves, *new),
        times=(*one.times, *(time for time in other.times if time not in one.times)),
        k1_times=(*one.k1_times, *(time for time in other.k1_times if time not in one.k1_times)),
    )
