"""A sweep's folder: what was asked, what was planned, the runs, and what came of them.

sweep.json       every experiment asked for, complete, with the name of the run that answers it
plan.json        which runs train side by side: written before any work, then only read
runs/NAME/       ordinary run folders
table.csv        the final table; table.json is the same
times.csv        how long each run took: apart from the table, which has no clocks and is the same for the same sweep
fleets.json      where each fleet trains, how far it is, and how often what trained it was lost: for --status alone
failures.json    runs that could not be trained, with the reason; absent where there are none
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unroll.base import atomic_files, locks, untrusted
from unroll.base.errors import ConfigurationError, RunError
from unroll.base.untrusted import MEGABYTE
from unroll.base.version import VERSION
from unroll.experiment import corpus_place, provenance
from unroll.experiment.experiment import Experiment, from_tables, to_tables
from unroll.runs.folder import RunFolder
from unroll.sweep import table
from unroll.sweep.deduplicate import Training, named

if TYPE_CHECKING:  # a report reads sweeps and must not cost an import of torch
    from unroll.sweep.plan import Plan

# The files of a sweep, with the most bytes that each is read to have, and the most values.
FILES = ("sweep.json", "plan.json", "failures.json", "table.csv", "table.json", "times.csv", "fleets.json")
MOST_BYTES, MOST_VALUES = 48 * MEGABYTE, 1 << 22
RUNS = "runs"
ATTEMPTS = ".attempts"  # beside the runs, while workers of other machines train them; a killed driver leaves it
LONGEST_NAME = 255


class SweepFolder:
    """The files of one sweep."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def is_sweep(self) -> bool:
        """Whether there is a sweep to go on with."""
        return untrusted.is_regular(self.path / "sweep.json")

    def refuse_occupied(self) -> None:
        """Refuse a folder that holds anything but a sweep."""
        try:
            if self.is_sweep() or not untrusted.present(self.path):
                return
            occupied = not self.path.is_dir() or not all(map(_left_over, locks.others(self.path)))
        except (OSError, ValueError) as error:  # a name that is too long, or a folder that may not be looked into
            raise RunError(f"Cannot use the folder {self.path}: {error}. Choose another with --out.") from None
        if occupied:
            raise RunError(f"{self.path} exists and is no sweep. Choose another folder with --out.")

    def make(self) -> None:
        """The folder itself."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(
                f"Cannot make the folder {self.path}: {error.strerror}. Choose another with --out."
            ) from None

    def require_own_kind(self) -> None:
        """Refuse a folder where anything but regular files and folders stands under our names."""
        if wrong := self.not_of_own_kind():
            raise RunError(*wrong)

    def not_of_own_kind(self) -> list[str]:
        """What stands under our names and is no regular file and no folder, in words.

        A link where a run should be would make somebody else's folder one of this sweep.
        """
        wrong = [
            f"{self.path / name} must be a regular file: it is {kind}."
            for name in self.file_names()
            if (kind := _kind(self.path / name)) not in (None, "a file")
        ]
        folders: dict[Path, tuple[str, ...]] = {self.path / name: ("a folder",) for name in self.folder_names()}
        if untrusted.is_folder(self.path / RUNS):
            # A file beside the runs is the user's, and is left alone.
            either: tuple[str, ...] = ("a folder", "a file")
            folders |= dict.fromkeys(sorted((self.path / RUNS).iterdir()), either)
        return wrong + [
            f"{path} must be a folder: it is {kind}."
            for path, allowed in folders.items()
            if (kind := _kind(path)) not in (None, *allowed)
        ]

    def require_run_folder(self, name: str) -> None:
        """Refuse to look for a run where something else than a folder stands."""
        for path in (self.path / RUNS, self.path / RUNS / name):
            if (kind := _kind(path)) not in (None, "a folder"):
                raise RunError(f"{path} must be a folder: it is {kind}.")

    def file_names(self) -> tuple[str, ...]:
        """The files that stand in the folder."""
        return FILES

    def folder_names(self) -> tuple[str, ...]:
        """The folders that stand in the folder."""
        return (RUNS,)

    def clear_partials(self) -> None:
        """Remove what killed processes left half written. Only a process that holds the folder may."""
        atomic_files.clear_partials(self.path, self.file_names().__contains__, alone=True)
        for left in (self.path / RUNS).glob(f"{ATTEMPTS}*"):
            if untrusted.is_folder(left):
                shutil.rmtree(left, ignore_errors=True)

    def locked(self) -> AbstractContextManager[str | None]:
        """Hold the folder, since two drivers cannot share it; gives a note on a lock that was left over."""
        return locks.hold(
            self.path,
            missing=f"{self.path} is no sweep. Give the folder that `unroll sweep --out` made.",
            busy=f"Another process is at work in {self.path}. Wait for it, or choose another folder.",
        )

    @property
    def trainings(self) -> list[Training]:
        """sweep.json, read and checked."""
        where = self.path / "sweep.json"
        asked: dict[str, list[Experiment]] = {}
        try:
            for entry in untrusted.unsealed(self._json("sweep.json"))["asked"]:
                name = entry["run"]
                if not isinstance(name, str) or not _safe(name):
                    raise ValueError
                experiment = corpus_place.whole(_experiment(entry["experiment"], str(where)), self.path)
                asked.setdefault(name, []).append(experiment)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise RunError(f"{where} is damaged: it is no sweep. Bring it back, or start a new one.") from None
        return [named(name, group) for name, group in asked.items()]

    @trainings.setter
    def trainings(self, trainings: Sequence[Training]) -> None:
        asked = [{"run": t.name, "experiment": self._tables(e)} for t in trainings for e in t.asked]
        atomic_files.write(self.path / "sweep.json", _json(untrusted.sealed({"unroll": VERSION, "asked": asked})))

    def _tables(self, experiment: Experiment) -> dict[str, Any]:
        return {**to_tables(corpus_place.shared(experiment, self.path)), **provenance.tables(experiment)}

    @property
    def plan(self) -> Plan | None:
        """plan.json; None where nothing was planned yet."""
        from unroll.sweep.plan import Plan

        if not untrusted.present(self.path / "plan.json"):
            return None
        plan = Plan.from_json(self._text("plan.json"), str(self.path / "plan.json"))
        if not self.accepts_plan(set(plan.names), {training.name for training in self.trainings}):
            raise RunError(f"{self.path / 'plan.json'} is another sweep's: its runs are not those of sweep.json.")
        return plan

    @plan.setter
    def plan(self, plan: Plan) -> None:
        atomic_files.write(self.path / "plan.json", plan.to_json().encode())

    def accepts_plan(self, planned: set[str], asked: set[str]) -> bool:
        """Whether a plan for these runs can be this folder's."""
        return planned == asked

    def run(self, name: str) -> RunFolder:
        """A run's folder, made or not."""
        return RunFolder(self.path / RUNS / name)

    @property
    def failures(self) -> dict[str, dict[str, Any]]:
        """Runs that could not be trained: their `reason`, and a `traceback` where it was a fault of the program."""
        if not untrusted.present(self.path / "failures.json"):
            return {}
        try:
            failures = {str(name): dict(failure) for name, failure in _failed(self._json("failures.json")).items()}
            if not all(isinstance(failure["reason"], str) for failure in failures.values()):
                raise ValueError
            return failures
        except (ValueError, TypeError, AttributeError, KeyError):
            raise RunError(f"{self.path / 'failures.json'} is damaged. Delete it and go on.") from None

    @failures.setter
    def failures(self, failures: Mapping[str, Mapping[str, Any]]) -> None:
        path = self.path / "failures.json"
        if failures:
            failed = {name: failures[name] for name in sorted(failures)}
            atomic_files.write(path, _json(untrusted.sealed({"failed": failed})))
        elif untrusted.is_regular(path):
            path.unlink(missing_ok=True)

    @property
    def fleets(self) -> dict[str, dict[str, Any]]:
        """What the driver heard last of each fleet, by its name."""
        if not untrusted.present(self.path / "fleets.json"):
            return {}
        try:
            content = untrusted.unsealed(self._json("fleets.json"))["fleets"]
            return {str(name): dict(entry) for name, entry in content.items()}
        except (ValueError, TypeError, AttributeError, KeyError):
            raise RunError(
                f"{self.path / 'fleets.json'} is damaged: where fleets train is not known. No training needs it."
            ) from None

    @fleets.setter
    def fleets(self, fleets: Mapping[str, Mapping[str, Any]]) -> None:
        atomic_files.write(self.path / "fleets.json", _json(untrusted.sealed({"fleets": fleets})))

    def write_table(self, rows: Sequence[table.Row]) -> None:
        """The final table, for people and for programs; and what took how long, which no two sweeps have alike."""
        folders = {row["run"]: self.run(row["run"]) for row in rows}
        times = table.times((row["run"] for row in rows), folders)
        atomic_files.write(self.path / "times.csv", table.to_csv(times, table.TIMES))
        atomic_files.write(self.path / "table.json", table.to_json(rows))
        atomic_files.write(self.path / "table.csv", table.to_csv(rows))

    def _text(self, name: str) -> str:
        try:
            return untrusted.read(self.path / name, MOST_BYTES).decode()
        except FileNotFoundError:
            raise RunError(f"{self.path} is no sweep. Give the folder that `unroll sweep --out` made.") from None
        except UnicodeDecodeError as error:
            raise RunError(f"{self.path / name} cannot be read: {error}.") from None
        except OSError as error:
            raise RunError(f"{self.path / name} cannot be read: {error.strerror or error}.") from None

    def _json(self, name: str) -> Any:
        """What a file says; a ValueError where it is no JSON."""
        return untrusted.parse_json(self._text(name), MOST_VALUES)


def _failed(content: dict[str, Any]) -> dict[str, Any]:
    """The failures in a document; older versions wrote them without a digest, by name."""
    failed: dict[str, Any] = untrusted.unsealed(content)["failed"] if untrusted.SEAL in content else content
    return failed


def _kind(path: Path) -> str | None:
    """What stands under a name; None where nothing does."""
    with suppress(OSError):
        return untrusted.unlike_file(os.lstat(path).st_mode) or "a file"
    return None


def _left_over(path: Path) -> bool:
    """Whether this is what a sweep leaves that was killed before it was one."""
    return (
        path.name.startswith("sweep.json.") and path.name.endswith(atomic_files.PARTIAL) and untrusted.is_regular(path)
    )


def _safe(name: str) -> bool:
    """Whether a name that was read stays inside the folder."""
    return name not in ("", ".", "..") and not any(c in name for c in "/\\\0") and len(name) <= LONGEST_NAME


def _experiment(tables: Any, where: str) -> Experiment:
    if not isinstance(tables, dict):
        raise ValueError
    try:
        return from_tables(tables, where)
    except ConfigurationError as error:
        raise RunError(*error.problems) from None


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")
