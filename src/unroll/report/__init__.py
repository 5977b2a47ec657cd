"""Run folders and records as one self-contained page that works offline.

gathering.py     from paths to curves: runs, sweeps, folders of them, and the paper's records
run_curves.py    a run folder as curves, in the form of the records
curves.py        every curve of a page once, as its data
panels.py        curves -> figures: which panel, which colour, which line
layouts.py       which figures a page has: the paper's, and those of any other runs
page.py          figures, tables and data -> the page's text
page.html, page.css, *.js    the page itself: plain, readable, no library; page.py puts it together
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from unroll.report.gathering import gather
from unroll.report.page import page
from unroll.studies.paper.claims import judge

__all__ = ["from_folders", "gather", "page"]


def from_folders(paths: Iterable[str | Path], say: Callable[[str], None] = lambda note: None) -> str:
    """The page of everything under these paths, with the paper's claims judged where its records are among them.

    What is damaged is left out. The page says so, and `say` gets the note.
    """
    gathered = gather(paths)
    for note in gathered.left_out:
        say(note)
    return page(gathered, [verdict.to_json() for verdict in judge(gathered.records)] if gathered.records else [])
