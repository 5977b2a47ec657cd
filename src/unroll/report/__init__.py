"""Run folders and records as one self-contained page that works offline.

gathering.py     from paths to curves: runs, sweeps, folders of them, and the paper's records
run_curves.py    a run folder as curves, in the form of the records
curves.py        every curve of a page once, as its data
panels.py        curves -> figures: which panel, which colour, which line
layouts.py       which figures a page has: the paper's, and those of any other runs
sections/        what a page says beside its curves, a file for each section
blocks.py        what sections are made of: words, tables, intervals
looking.py       runs read with their weights, for the sections that were asked for
labels.py        in what runs differ, and a short name for each
page.py          figures, sections and data -> the page's text
page.html, page.css, *.js    the page itself: plain, readable, no library; page.py puts it together
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from unroll.report.gathering import gather
from unroll.report.looking import MOST, cheap_parts, computed_parts
from unroll.report.page import page
from unroll.studies.paper.claims import judge

__all__ = ["from_folders", "gather", "page"]


def from_folders(
    paths: Iterable[str | Path],
    warn: Callable[[str], None] = lambda note: None,
    show: Sequence[str] = (),
    most_runs: int = MOST,
    say: Callable[[str], None] = lambda message: None,
    device: str = "auto",
) -> str:
    """The page of everything under these paths, with the paper's claims judged where its records are among them.

    `show` names the sections that are computed with runs' weights, over at most `most_runs` runs. What is damaged is
    left out. The page says so, and `warn` gets the note.
    """
    gathered = gather(paths)
    for note in gathered.left_out:
        warn(note)
    verdicts = [verdict.to_json() for verdict in judge(gathered.records)] if gathered.records else []
    parts = [*cheap_parts(gathered), *computed_parts(gathered, show, most_runs, say, device)]
    return page(gathered, verdicts, parts)
