"""The folder of a reproduction (`reproduction.py` says what is in it)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any

from unroll.base import atomic_files, locks, untrusted
from unroll.base.errors import RunError
from unroll.base.untrusted import MEGABYTE
from unroll.base.version import VERSION
from unroll.studies.paper.figures import FIGURES
from unroll.sweep.folder import SweepFolder


class ReproductionFolder(SweepFolder):
    """A sweep whose request may grow: other figures, more seeds."""

    def refuse_occupied(self) -> None:
        """Leave a folder alone that holds anything else."""
        try:
            paths = sorted(locks.others(self.path)) if self.path.is_dir() else None
            if not untrusted.present(self.path) or paths == []:
                return
        except (OSError, ValueError) as error:  # a name that is too long, or a folder that may not be looked into
            raise RunError(f"Cannot use the folder {self.path}: {error}. Choose another with --out.") from None
        if not any(path.name == "records" or path.name.startswith("reproduce.json") for path in paths or ()):
            raise RunError(f"{self.path} exists and holds no reproduction. Choose another folder with --out.")

    def file_names(self) -> tuple[str, ...]:
        """Those of a sweep, the request, and a record for each figure."""
        return (*super().file_names(), "reproduce.json", *(f"records/{figure}.json" for figure in FIGURES))

    def folder_names(self) -> tuple[str, ...]:
        """Those of a sweep, and the records."""
        return (*super().folder_names(), "records")

    def locked(self) -> AbstractContextManager[str | None]:
        """Hold the folder, since two drivers cannot share it; gives a note on a lock that was left over."""
        return locks.hold(
            self.path,
            missing=f"{self.path} cannot be opened. Choose another folder with --out.",
            busy=f"Another process is at work in {self.path}. Wait for it, or choose another folder.",
        )

    def accepts_plan(self, planned: set[str], asked: set[str]) -> bool:
        """The request is written first and planned afterwards: a kill may come between."""
        return planned <= asked

    def forget(self) -> None:
        """Delete the request and the plan once all of it is done; the plan first, since it means nothing alone."""
        (self.path / "plan.json").unlink(missing_ok=True)
        (self.path / "sweep.json").unlink(missing_ok=True)
        with suppress(OSError):  # with kept weights it is not empty
            (self.path / "runs").rmdir()

    @property
    def facts(self) -> dict[str, Any] | None:
        """The facts in reproduce.json, or None where there is none yet."""
        where = self.path / "reproduce.json"
        if not untrusted.present(where):
            return None
        try:
            content = untrusted.unsealed(untrusted.parse_json(untrusted.read(where, MEGABYTE)))
            return {"scale": float(content["scale"]), "precision": str(content["precision"]), "keep": content["keep"]}
        except (OSError, ValueError, KeyError, TypeError):
            raise RunError(f"{where} is damaged. Delete it: the records say what is finished.") from None

    @facts.setter
    def facts(self, facts: Mapping[str, Any]) -> None:
        content = untrusted.sealed({"unroll": VERSION, **facts})
        atomic_files.write(self.path / "reproduce.json", (json.dumps(content) + "\n").encode())
