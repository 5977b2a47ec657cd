"""Reports as lines of a file: a job in a queue adds to it, and the driver reads what is new, now or days later.

Beside the reports of `work` a job says when an attempt begins, which process it is, and how it ended.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unroll.base import atomic_files, untrusted
from unroll.sweep.launchers import Begun, Failed, Noted, Progressed, Report, RunEnded, Scored, TooLarge

MOST = 1 << 24  # bytes of news that are read at once
LONGEST = 1 << 22  # bytes of a line


@dataclass(frozen=True)
class Attempt(Report):
    """A job begins: the process that holds the run folders from now on, as their locks name it."""

    process: int
    machine: str
    began: int | None


@dataclass(frozen=True)
class Left(Report):
    """An attempt saved and ended before the runs did."""

    reason: str
    batches: int  # done in this attempt
    again: bool  # the job is in the queue again


@dataclass(frozen=True)
class Unsaved(Report):
    """The disk refused."""

    problems: tuple[str, ...]


@dataclass(frozen=True)
class Over(Report):
    """All reports of the fleet are given."""


KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (Begun, Progressed, Scored, RunEnded, Failed, TooLarge, Noted, Attempt, Left, Unsaved, Over)
}


def line(report: Report) -> str:
    """A report as one line of JSON."""
    return json.dumps({"report": type(report).__name__, **dataclasses.asdict(report)})


def parsed(text: bytes) -> Report | None:
    """The report of a line; None where it is none."""
    with suppress(ValueError, TypeError, KeyError, AttributeError):
        content = untrusted.parse_json(text)
        kind = KINDS[content.pop("report")]
        fields = {name: tuple(v) if isinstance(v, list) else v for name, v in content.items()}
        report: Report = kind(**fields)
        if isinstance(report.fleet, str) and all(
            _is_right(f, getattr(report, f.name)) for f in dataclasses.fields(report)
        ):
            return report
    return None


def _is_right(field: dataclasses.Field[Any], value: Any) -> bool:
    """Whether a value is of a field's type, as far as its name in the source goes."""
    kinds: dict[str, Any] = {"int": int, "str": str, "bool": bool, "tuple[str, ...]": tuple, "float": (int, float)}
    return isinstance(value, kinds.get(str(field.type), object))


class Reader:
    """A file of reports, read as it grows."""

    def __init__(self, path: Path) -> None:
        self.path, self._at = path, 0

    def new(self) -> Iterator[Report]:
        """The reports of the lines that are whole and were not read before."""
        try:
            with untrusted.open_file(self.path) as file:
                if os.fstat(file.fileno()).st_size <= self._at:
                    return
                file.seek(self._at)
                content = untrusted.up_to(file, MOST)
        except OSError:  # the job has not begun, or the file system is away for a moment
            return
        whole = content[: content.rfind(b"\n") + 1]
        if not whole and len(content) > LONGEST:
            whole = content  # no job writes this
        self._at += len(whole)
        for text in whole.splitlines():
            report = parsed(text)
            if report is not None:
                yield report


def add(path: Path, report: Report) -> None:
    """Write a report down, so that other machines see it."""
    atomic_files.append(path, line(report))
