"""A claim of the paper, and what the records say about it: data, to and from JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from unroll.studies.paper.records import Record

HOLDS, IN_PART, FAILS, NOT_JUDGED = "holds", "holds in part", "does not hold", "not judged"
VERDICTS = (HOLDS, IN_PART, FAILS, NOT_JUDGED)

Records = Mapping[str, Record]
Cell = str | float | int | None


class NotJudgedError(Exception):
    """The records do not say; why, in words."""


@dataclass(frozen=True)
class Part:
    """One thing that a claim says, as a number and a threshold."""

    says: str  # in the paper's sense, short
    held: bool
    measured: str
    threshold: str


@dataclass(frozen=True)
class Table:
    """Numbers behind a verdict."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


def table(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> Table:
    """Make a table of rows."""
    return Table(tuple(columns), tuple(tuple(row) for row in rows))


@dataclass(frozen=True)
class Finding:
    """The result of judging a claim: its parts, each held or not, and the numbers behind them."""

    parts: tuple[Part, ...]
    table: Table
    note: str = ""  # what a reader should know beside the thresholds


@dataclass(frozen=True)
class Claim:
    """What the paper says, which figures' records decide it, and how."""

    id: str
    words: str
    needs: tuple[str, ...]
    judge: Callable[[Records], Finding]


@dataclass(frozen=True)
class Verdict:
    """A claim judged."""

    claim: str
    words: str
    verdict: str
    measured: str  # a sentence or several, with numbers; why, where not judged
    threshold: str
    figures: tuple[str, ...]  # whose records are the evidence
    parts: tuple[Part, ...] = ()
    evidence: Table = Table((), ())

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Verdict:
        """From what `to_json` gave, before or after a trip through a file."""
        evidence = content["evidence"]
        return cls(
            **{
                **content,
                "figures": tuple(content["figures"]),
                "parts": tuple(Part(**part) for part in content["parts"]),
                "evidence": table(evidence["columns"], evidence["rows"]),
            }
        )


def decide(parts: tuple[Part, ...]) -> str:
    """One rule for all claims: all parts held, some, or none."""
    held = sum(part.held for part in parts)
    return HOLDS if held == len(parts) else IN_PART if held else FAILS
