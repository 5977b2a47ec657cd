"""What `exist` means where a sweep is in the folder already: refuse it, go on with it, or put a new one there."""

from __future__ import annotations

from contextlib import ExitStack, suppress

from unroll.base import locks, untrusted
from unroll.base.errors import RunError
from unroll.runs.folder import RunFolder
from unroll.sweep.folder import FILES, RUNS, SweepFolder
from unroll.training import occupied

LAST = "sweep.json"  # deleted last: until then what a kill leaves is a sweep


def refuse(folder: SweepFolder) -> None:
    """Refuse a sweep that is there."""
    if folder.is_sweep():
        raise RunError(f"{folder.path} is a sweep already. Choose another folder with --out.", occupied.CHOICE)


def replace(folder: SweepFolder) -> None:
    """Delete a sweep and its runs: their files and nothing else, never through a link, and all or nothing."""
    if not untrusted.present(folder.path):
        return
    if not untrusted.is_folder(folder.path):
        raise RunError(f"{folder.path} is a link or no folder: only a folder is replaced. Choose another with --out.")
    if not folder.is_sweep():
        folder.refuse_occupied()
        return
    folder.require_own_kind()
    with folder.locked(), ExitStack() as held:
        folder.clear_partials()
        runs = [folder.run(training.name) for training in folder.trainings]
        runs = [run for run in runs if untrusted.present(run.path)]
        for run in runs:
            run.require_own_kind()
            held.enter_context(run.locked())  # nobody trains it
            run.clear_partials()
        _require_nothing_else(folder, runs)
        for run in runs:
            run.remove()
        with suppress(OSError):  # it is not there; or a system keeps the locks that are held
            (folder.path / RUNS).rmdir()
        for name in sorted(FILES, key=lambda name: name == LAST):
            (folder.path / name).unlink(missing_ok=True)


def _require_nothing_else(folder: SweepFolder, runs: list[RunFolder]) -> None:
    """Refuse, before anything is deleted, a sweep with files beside its own."""
    beside = [path for path in locks.others(folder.path) if path.name not in (*FILES, RUNS)]
    inside = folder.path / RUNS
    if untrusted.is_folder(inside):
        beside += [path for path in inside.iterdir() if path not in {run.path for run in runs}]
    others = [str(path.relative_to(folder.path)) for path in beside]
    others += [f"{run.path.relative_to(folder.path)}/{name}" for run in runs for name in occupied.strangers(run)]
    if others:
        raise occupied.holds_more(folder.path, "a sweep", sorted(others))
