"""`unroll report`: runs and records as one page that works offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unroll.base.errors import RunError
from unroll.cli.screen import say, warn


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN_OR_FOLDER",
            help="Runs, sweeps, folders of `unroll reproduce`, or folders that hold some of these.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="The page's file.")] = Path("report.html"),
) -> None:
    """One self-contained page of interactive curves: open it in any browser, send it to anyone; it needs no network.

    \b
    unroll report runs/first runs/second --out report.html
    unroll report sweeps/book
    unroll report results/paper --out paper.html             the paper, with a verdict a claim

    The same input gives the same page, byte for byte.
    """
    from unroll.base import atomic_files
    from unroll.report import from_folders

    if out.is_dir():
        raise RunError(f"{out} is a folder. Name the page's file: --out {out / 'report.html'}.")
    if out.suffix.lower() not in (".html", ".htm"):  # a page is written over, and must never be a user's text
        raise RunError(f"--out must end in .html. Got {out}.")
    if not out.absolute().parent.is_dir():
        raise RunError(f"There is no folder {out.absolute().parent} to put the page in. Make it, or change --out.")
    content = from_folders(folders, warn).encode("utf-8", "backslashreplace")  # folders' names need not be UTF-8
    atomic_files.write(out, content)
    say(f"{out}: {len(content) / 1e6:.1f} MB")
