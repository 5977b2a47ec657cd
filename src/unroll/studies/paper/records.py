"""The measurements, one compact file per figure: FOLDER/records/FIGURE.json. Everything is redrawn from these alone.

    {"format": 1, "figure": …, "scale": …, "seeds": […], "unroll": …, "curves": [CURVE, …], "times": [TIME, …]}

A curve is one training under one scheme: schemes 1 and 3 share a training and are two curves. `hidden` and `layers` are
those of the paper's grid whatever the scale, so that one figure is the same figure at any scale. `times` stand in the
figure `timing` only, and with them `k1_times`: r=1 γ=512 for every k1, one run alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from unroll.base import atomic_files, untrusted
from unroll.base.errors import RunError
from unroll.studies.paper.figures import FIGURES, Series

FORMAT = 1
MOST_BYTES, MOST_VALUES = 64 * untrusted.MEGABYTE, 1 << 22  # of a record that is read
COLUMNS = ("batch", "sequences", "loss", "windowed", "progressive", "seconds")
CARRIED = "carried"  # a column of some curves: progressive from the states that training carried, the median over rows
# Of a batch, since the point before: nats a token, and the norm of all gradients. Older records have neither.
LARGEST = ("largest_loss", "largest_gradient_norm")
UNSTABLE = 1.1  # times the lowest so far, or times scheme 3's

Points = dict[str, list[Any]]


@dataclass(frozen=True)
class Curve:
    """One training under one scheme, over its evaluation points."""

    corpus: str
    title: str  # with "(reconstruction)" where it is one
    sha256: str
    scheme: int
    train: str
    sample: str
    layers: int
    hidden: int
    k1: int
    k2: int
    seed: int
    batches: int
    rows: int
    variant: dict[str, Any]
    identity: str
    state: str  # finished or stopped
    reason: str | None
    stopped_at: int | None
    fleet: int
    kernel: str
    precision: str
    device: str
    evaluating: float  # seconds, of the whole fleet
    points: Points = field(repr=False)
    epoch: int | None = None  # its batches; None where nobody has counted

    @property
    def series(self) -> Series:
        """The curve's point in the paper's grid."""
        varied = tuple(sorted(self.variant.items()))
        return Series(self.corpus, self.scheme, self.layers, self.hidden, self.k1, self.k2, varied)

    @property
    def scored(self) -> list[tuple[int, int, float]]:
        """Batch, train sequences and perplexity under the scheme's sampling procedure, where it is a number."""
        columns = zip(self.points["batch"], self.points["sequences"], self.points[self.sample], strict=True)
        return [(batch, sequences, value) for batch, sequences, value in columns if value is not None]

    def unstable(self, other: Curve | None = None) -> list[int]:
        """The batches with a perplexity above 1.1 × the lowest so far, or 1.1 × that of `other` (scheme 3's).

        The scheme's own procedure is scored at every point, so a gap in its column was no finite number: it counts as
        infinite.
        """
        of_other = {batch: value for batch, _, value in other.scored} if other else {}
        lowest = math.inf
        batches: list[int] = []
        for batch, value in zip(self.points["batch"], self.points[self.sample], strict=True):
            if value is None or value > UNSTABLE * min(lowest, of_other.get(batch, math.inf)):
                batches.append(int(batch))
            lowest = min(lowest, math.inf if value is None else value)
        return batches


@dataclass(frozen=True)
class Time:
    """A cell of the table: milliseconds a batch of one run and a sampled token, with `fleet` runs side by side."""

    scheme: int
    layers: int
    hidden: int
    fleet: int
    batch_ms: float
    sample_ms: dict[str, float]  # windowed_naive, windowed, progressive
    device: str
    precision: str
    k1: int = 40


@dataclass(frozen=True)
class Record:
    """All that a figure is drawn from."""

    figure: str
    scale: float
    seeds: tuple[int, ...]
    unroll: str
    curves: tuple[Curve, ...] = ()
    times: tuple[Time, ...] = ()
    k1_times: tuple[Time, ...] = ()


def significant(value: float | None, digits: int) -> float | None:
    """Round to this many significant digits; None where it is no finite number."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")


def path(folder: str | Path, figure: str) -> Path:
    """The path of a figure's record."""
    return Path(folder) / "records" / f"{figure}.json"


def write(folder: str | Path, record: Record) -> None:
    """Replace a figure's record, whole or not at all."""
    destination = path(folder, record.figure)
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"Cannot make the folder {destination.parent}: {error.strerror}. Choose another.") from None
    atomic_files.write(destination, to_json(record))


def read(folder: str | Path) -> dict[str, Record]:
    """Read the records of a folder, by figure, in the paper's order."""
    return {figure: from_json(path(folder, figure)) for figure in FIGURES if untrusted.present(path(folder, figure))}


def to_json(record: Record) -> bytes:
    """A record as bytes: one curve a line, so that two versions can be compared."""
    head: dict[str, Any] = {"format": FORMAT, "figure": record.figure, "scale": record.scale}
    head |= {"seeds": list(record.seeds), "unroll": record.unroll}
    lists: dict[str, Sequence[Curve | Time]] = {"curves": record.curves}
    if record.figure == "timing":
        lists |= {"times": record.times, "k1_times": record.k1_times}
    parts = [_compact(head)[1:-1]]
    for name, items in lists.items():
        lines = ",\n".join(_compact({f.name: getattr(item, f.name) for f in fields(item)}) for item in items)
        parts.append(f'"{name}": [\n{lines}\n]' if lines else f'"{name}": []')
    return ("{" + ",\n".join(parts) + "}\n").encode()


def from_json(source: Path) -> Record:
    """Read a record, or raise a RunError that says what is wrong with it."""
    try:
        content = untrusted.parse_json(untrusted.read(source, MOST_BYTES), MOST_VALUES)
        if content["format"] != FORMAT:
            raise RunError(f"{source} has format {content['format']!r}; this version reads {FORMAT}.")
        record = Record(
            figure=str(content["figure"]),
            scale=float(content["scale"]),
            seeds=tuple(int(seed) for seed in content["seeds"]),
            unroll=str(content["unroll"]),
            curves=tuple(_checked(Curve(**curve)) for curve in content["curves"]),
            times=tuple(Time(**time) for time in content.get("times", ())),
            k1_times=tuple(Time(**time) for time in content.get("k1_times", ())),
        )
        if record.figure != source.stem:
            raise ValueError
    except OSError as error:
        raise RunError(f"{source} cannot be read: {error.strerror or error}.") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        raise RunError(f"{source} is damaged: it is no record of a figure. Bring it back, or delete it.") from None
    return record


def _checked(curve: Curve) -> Curve:
    columns: Mapping[str, Any] = curve.points
    if not columns.keys() >= set(COLUMNS) or len({len(column) for column in columns.values()}) != 1:
        raise ValueError
    if curve.sample not in columns or not isinstance(curve.variant, dict):
        raise ValueError
    return curve


def _compact(content: Any) -> str:
    return json.dumps(atomic_files.finite(content), ensure_ascii=False, separators=(",", ":"))
