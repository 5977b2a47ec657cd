"""A measurement as one JSON file; tables and pictures are drawn from it alone."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from unroll.base import atomic_files
from unroll.base.errors import InputError
from unroll.studies.benchmark.floors import Rate, operations
from unroll.studies.benchmark.shapes import Shape

FORMAT = 1


@dataclass(frozen=True)
class Row:
    """One contestant on one shape: its times, or why there are none."""

    shape: Shape
    contestant: str
    precision: str
    runs: int
    kernel: str = ""
    steps: int = 0  # in a block
    ms: tuple[float, ...] = ()  # a run-batch, every block
    loss: float | None = None  # of its first run, after the last block
    problem: str | None = None

    @property
    def median(self) -> float | None:
        """Milliseconds a run-batch, or None where it failed."""
        return statistics.median(self.ms) if self.ms and not self.problem else None

    @property
    def operations(self) -> int:
        """Floating-point operations of a run-batch."""
        return operations(self.shape).total


@dataclass(frozen=True)
class Record:
    """A measurement and where it was made. Two that differ only in their date are equal."""

    mode: str  # comparison or scaling
    device: str  # cuda or cpu
    machine: dict[str, Any]
    settings: dict[str, Any]
    rates: dict[str, Rate]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    date: str = field(default="", compare=False)

    def floor(self, row: Row, precision: str | None = None) -> float | None:
        """The ms that a run-batch's arithmetic takes, in the row's precision or another; None if not measured."""
        rate = self.rates.get(precision or row.precision)
        return row.operations / rate.operations_per_second * 1e3 if rate else None


def write(content: Record | dict[str, Any], path: Path) -> None:
    """Write JSON, whole or not at all. Each row carries its operation count too, for people who read the file."""
    if isinstance(content, Record):
        content = {"format": FORMAT, **asdict(content)} | {
            "rows": [asdict(row) | {"median_ms": row.median, "operations": row.operations} for row in content.rows]
        }
    atomic_files.write(path, (json.dumps(atomic_files.finite(content), indent=1, ensure_ascii=False) + "\n").encode())


def load(path: Path) -> dict[str, Any]:
    """Read the content of a file that `unroll bench` wrote."""
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path} is not JSON. --from takes a file that `unroll bench --json` wrote.") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{path} is no record of `unroll bench` (format {FORMAT}). Measure again with --json.")
    printable: dict[str, Any] = _printable(content)
    return printable


def _printable(content: Any) -> Any:
    """Replace characters that could drive a terminal: a record may come from anywhere."""
    if isinstance(content, dict):
        return {_printable(key): _printable(value) for key, value in content.items()}
    if isinstance(content, list):
        return [_printable(value) for value in content]
    if isinstance(content, str):
        return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in content)
    return content


def read(content: dict[str, Any], path: Path) -> Record:
    """Read the record in a file's content."""
    try:
        rows = []
        for written in content["rows"]:
            values = {k: v for k, v in written.items() if k not in ("median_ms", "operations")}
            values |= {"shape": Shape(**values["shape"]), "ms": tuple(map(float, values["ms"]))}
            rows.append(Row(**values))
            assert rows[-1].operations > 0
        return Record(
            mode=str(content["mode"]),
            device=str(content["device"]),
            machine=dict(content["machine"]),
            settings=dict(content["settings"]),
            rates={name: Rate(int(r["size"]), tuple(map(float, r["ms"]))) for name, r in content["rates"].items()},
            rows=tuple(rows),
            notes=tuple(map(str, content["notes"])),
            date=str(content["date"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, AssertionError) as error:
        raise InputError(f"{path} is a damaged record: {error!r}. Measure again with --json.") from None
