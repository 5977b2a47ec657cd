"""What a page says of runs beside their curves: a file for each section.

A section that reads folders alone is on every page that it has something to say on, and imports no torch. Its file has

    def section(gathered: Gathered) -> list[Part]

A section that computes with a run's weights is on a page that asked for it (`unroll report --show NAME`). Its file has

    ABOUT: str                                 what it shows, for --help
    def estimate(run: Run) -> float            seconds that a look at this run will take, found by trying a little of it
    def look(run: Run) -> Any                  what one run gives, as plain data
    def section(looks: list[Look]) -> Part     the looks of all runs, next to each other

A new section is its file here, and its name in one of the two lists below, in the order of the page. It is made of
blocks: `report/blocks.py` has those that every section may use (words, notices, tables with intervals); a block of its
own kind is drawn by a function of that name in `BLOCKS`, in a script beside `blocks.js`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

ALWAYS = ("comparison", "answers", "settings")
ASKED = ("drift", "text", "samples", "units")


@dataclass(frozen=True)
class Part:
    """A section of the page, from its heading to its last block."""

    id: str
    short: str  # its name among the links at the top
    title: str
    about: str
    blocks: list[dict[str, Any]] = field(default_factory=list)
    leads: bool = False  # whether it stands before the curves


@dataclass(frozen=True)
class Look:
    """What a section saw in one run."""

    name: str  # of its folder, as the page has it
    label: str  # what distinguishes it from the other runs
    group: str  # what it shares with the runs that differ in the seed alone
    seen: Any
