"""A sweep's folder: what was asked, what was planned, the runs, and what came of them.

sweep.json       every experiment asked for, complete, with the name of the run that answers it
plan.json        which runs train side by side: written before any work, then only read
runs/NAME/       ordinary run folders
table.csv        the final table; table.json is the same
failures.json    runs that could not be trained, with the reason; absent where there are none
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from unroll import durable, locking, table
from unroll.errors import ConfigurationError, RunError
from unroll.experiment import Experiment, from_tables, to_tables
from unroll.plan import Plan
from unroll.run import RunFolder
from unroll.trainings import Training, named
from unroll.version import VERSION

BEGUN = {"sweep.json" + durable.PARTIAL}  # what is left of a sweep that was killed before it was one


class SweepFolder:
    """The files of one sweep."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def is_sweep(self) -> bool:
        """Whether there is a sweep to go on with."""
        return (self.path / "sweep.json").is_file()

    def refuse_occupied(self) -> None:
        """A folder that holds anything but a sweep is left alone."""
        if self.is_sweep() or not self.path.exists():
            return
        if not self.path.is_dir() or any(path.name not in BEGUN for path in self.path.iterdir()):
            raise RunError(f"{self.path} exists and is no sweep. Choose another folder with --out.")

    def make(self) -> None:
        """The folder itself."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(
                f"Cannot make the folder {self.path}: {error.strerror}. Choose another with --out."
            ) from None

    def locked(self) -> AbstractContextManager[None]:
        """Hold the folder: two drivers cannot share it."""
        return locking.hold(
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
            for entry in json.loads(self._text("sweep.json"))["asked"]:
                name = entry["run"]
                if not isinstance(name, str) or not _safe(name):
                    raise ValueError
                asked.setdefault(name, []).append(_experiment(entry["experiment"], str(where)))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise RunError(f"{where} is damaged: it is no sweep. Bring it back, or start a new one.") from None
        return [named(name, group) for name, group in asked.items()]

    @trainings.setter
    def trainings(self, trainings: Sequence[Training]) -> None:
        asked = [{"run": t.name, "experiment": to_tables(e)} for t in trainings for e in t.asked]
        durable.write(self.path / "sweep.json", _json({"unroll": VERSION, "asked": asked}))

    @property
    def plan(self) -> Plan | None:
        """plan.json; None where nothing was planned yet."""
        if not (self.path / "plan.json").exists():
            return None
        plan = Plan.from_json(self._text("plan.json"), str(self.path / "plan.json"))
        if not self._belongs(set(plan.names), {training.name for training in self.trainings}):
            raise RunError(f"{self.path / 'plan.json'} is another sweep's: its runs are not those of sweep.json.")
        return plan

    @plan.setter
    def plan(self, plan: Plan) -> None:
        durable.write(self.path / "plan.json", plan.to_json().encode())

    def _belongs(self, planned: set[str], asked: set[str]) -> bool:
        """Whether a plan for these runs can be this folder's."""
        return planned == asked

    def run(self, name: str) -> RunFolder:
        """A run's folder, made or not."""
        return RunFolder(self.path / "runs" / name)

    @property
    def failures(self) -> dict[str, dict[str, Any]]:
        """Runs that could not be trained: their `reason`, and a `traceback` where it was a fault of the program."""
        if not (self.path / "failures.json").exists():
            return {}
        try:
            return {str(name): dict(failure) for name, failure in json.loads(self._text("failures.json")).items()}
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise RunError(f"{self.path / 'failures.json'} is damaged. Delete it and go on.") from None

    @failures.setter
    def failures(self, failures: Mapping[str, Mapping[str, Any]]) -> None:
        if failures:
            durable.write(self.path / "failures.json", _json({name: failures[name] for name in sorted(failures)}))
        else:
            (self.path / "failures.json").unlink(missing_ok=True)

    def write_table(self, rows: Sequence[table.Row]) -> None:
        """The final table, for people and for programs."""
        durable.write(self.path / "table.json", table.to_json(rows))
        durable.write(self.path / "table.csv", table.to_csv(rows))

    def _text(self, name: str) -> str:
        try:
            return (self.path / name).read_text("utf-8")
        except FileNotFoundError:
            raise RunError(f"{self.path} is no sweep. Give the folder that `unroll sweep --out` made.") from None
        except (OSError, UnicodeDecodeError) as error:
            raise RunError(f"{self.path / name} cannot be read: {error}.") from None


def _safe(name: str) -> bool:
    """Whether a name that was read stays inside the folder."""
    return name not in ("", ".", "..") and not any(c in name for c in "/\\\0")


def _experiment(tables: Any, where: str) -> Experiment:
    if not isinstance(tables, dict):
        raise ValueError
    try:
        return from_tables(tables, where)
    except ConfigurationError as error:
        raise RunError(*error.problems) from None


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")
