"""The measurements, one compact file a part: FOLDER/records/PART.json. Pages and pictures are drawn from these alone.

    {"format": 1, "part": …, "size": {…}, "unroll": …, "seconds": …, "runs": [RUN, …]}

A run is one training. `points` has a column for each thing that its evaluations measured. Where states are carried,
`by_position` has the first position of each bin, their tokens, and a row of nats for each evaluation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from unroll.base import atomic_files, untrusted
from unroll.base.errors import RunError
from unroll.base.version import VERSION
from unroll.studies.beyond.experiments import Size
from unroll.studies.beyond.parts import PARTS

FORMAT = 1
MOST_BYTES, MOST_VALUES = 64 * untrusted.MEGABYTE, 1 << 22
COLUMNS = (
    "batch", "sequences", "loss", "largest_loss", "largest_gradient_norm", "windowed", "progressive", "carried",
    "validation_windowed", "validation_progressive", "seconds",
)  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """One training, over its evaluation points."""

    setting: str  # the name of its setting in the part
    train: str
    sample: str
    corpus: str
    title: str  # with "(reconstruction)" where it is one
    sha256: str
    k1: int
    k2: int
    hidden: int
    seed: int
    split_seed: int
    batches: int
    identity: str
    state: str  # finished or stopped
    reason: str | None
    epoch: int  # its batches
    fleet: int
    kernel: str
    precision: str
    device: str
    evaluating: float  # seconds, of the whole fleet
    points: dict[str, list[Any]] = field(repr=False)
    by_position: dict[str, list[Any]] | None = field(repr=False)


@dataclass(frozen=True)
class Record:
    """A part of the study."""

    part: str
    size: Size
    seconds: float = 0.0  # of the whole work on it
    unroll: str = VERSION
    runs: tuple[Measured, ...] = ()


def path(folder: str | Path, part: str) -> Path:
    """The path of a part's record."""
    return Path(folder) / "records" / f"{part}.json"


def write(folder: str | Path, record: Record) -> None:
    """Replace a part's record, whole or not at all."""
    atomic_files.write(path(folder, record.part), to_json(record))


def read(folder: str | Path) -> dict[str, Record]:
    """Read the records of a folder, by part."""
    return {part: from_json(path(folder, part)) for part in PARTS if untrusted.present(path(folder, part))}


def to_json(record: Record) -> bytes:
    """A record as bytes: one run a line, so that two versions can be compared."""
    head = {"format": FORMAT, "part": record.part, "size": asdict(record.size)}
    head |= {"unroll": record.unroll, "seconds": record.seconds}
    lines = ",\n".join(compact({f.name: getattr(run, f.name) for f in fields(run)}) for run in record.runs)
    return f'{compact(head)[:-1]},\n"runs": [\n{lines}\n]}}\n'.encode()


def from_json(source: Path) -> Record:
    """Read a record, or raise a RunError that says what is wrong with it."""
    content = parsed(source)
    try:
        record = Record(
            part=str(content["part"]),
            size=Size(**content["size"]),
            seconds=float(content["seconds"]),
            unroll=str(content["unroll"]),
            runs=tuple(_checked(Measured(**run)) for run in content["runs"]),
        )
        if record.part != source.stem:
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        raise damaged(source) from None
    return record


def parsed(source: Path) -> dict[str, Any]:
    """The content of a record's file, of this version's format."""
    try:
        content = untrusted.parse_json(untrusted.read(source, MOST_BYTES), MOST_VALUES)
        if content["format"] != FORMAT:
            raise RunError(f"{source} has format {content['format']!r}; this version reads {FORMAT}.")
    except OSError as error:
        raise RunError(f"{source} cannot be read: {error.strerror or error}.") from None
    except (ValueError, KeyError, TypeError):
        raise damaged(source) from None
    return dict(content)


def damaged(source: Path) -> RunError:
    """What is said of a file that is no record."""
    return RunError(f"{source} is damaged: it is no record of a part. Bring it back, or delete it.")


def _checked(run: Measured) -> Measured:
    columns: Mapping[str, Any] = run.points
    if columns.keys() != set(COLUMNS) or len({len(column) for column in columns.values()}) != 1:
        raise ValueError
    if run.by_position is not None and run.by_position.keys() != {"from", "tokens", "zero", "carried"}:
        raise ValueError
    return run


def compact(content: Any) -> str:
    """JSON on one line; numbers that are not finite stand as null."""
    return json.dumps(atomic_files.finite(content), ensure_ascii=False, separators=(",", ":"))
