"""`unroll report`: runs and records as one page that works offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unroll.base.errors import ConfigurationError, RunError
from unroll.cli import options
from unroll.cli.screen import say, warn

LARGE = 10e6  # bytes: what opens at once, and what most mail takes


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
    show: Annotated[
        str,
        typer.Option(
            metavar="A,B,…",
            help="Also compute, with each run's weights and text: drift, text, samples, units, or all [none].",
            show_default=False,
        ),
    ] = "",
    most_runs: Annotated[
        int | None,
        typer.Option(help="Runs that --show looks into, of every setting one first [20].", show_default=False),
    ] = None,
    device: Annotated[str, typer.Option(help="For --show: auto, cpu, cuda or cuda:N.")] = "auto",
    threads: options.Threads = None,
) -> None:
    """One self-contained page of runs next to each other: open it in any browser, send it to anyone; it needs no
    network.

    \b
    unroll report runs/first runs/second --out report.html
    unroll report sweeps/book                        its answer, curves, what differs
    unroll report sweeps/book --show drift,samples   computed with weights and text
    unroll report sweeps/book --show all             also test text by surprise
    unroll report results/paper --out paper.html     the paper, with a verdict a claim

    A run's folder holds no text of its corpus, and neither does the page, unless --show text or --show units put a
    stretch of the test set on it; samples may copy from the corpus. The same input gives the same page, byte for byte.
    """
    from unroll.base import atomic_files
    from unroll.report import from_folders
    from unroll.report.looking import MOST, asked_sections

    sections = asked_sections(show)
    if most_runs is not None and most_runs < 1:
        raise ConfigurationError(f"--most-runs must be at least 1. Got {most_runs}.")
    if out.is_dir():
        raise RunError(f"{out} is a folder. Name the page's file: --out {out / 'report.html'}.")
    if out.suffix.lower() not in (".html", ".htm"):  # a page is written over, and must never be a user's text
        raise RunError(f"--out must end in .html. Got {out}.")
    if not out.absolute().parent.is_dir():
        raise RunError(f"There is no folder {out.absolute().parent} to put the page in. Make it, or change --out.")
    if sections:  # a page of curves alone imports no torch
        from unroll.engines import devices

        devices.use_threads(threads)
        if device != "auto":
            devices.find(device)
    page = from_folders(folders, warn, sections, most_runs or MOST, say, device)
    content = page.encode("utf-8", "backslashreplace")  # folders' names need not be UTF-8
    atomic_files.write(out, content)
    say(f"{out}: {len(content) / 1e6:.1f} MB")
    if len(content) > LARGE:
        warn("The page is over 10 MB: --show fewer parts, or fewer runs with --most-runs, make it smaller.")
    if {"text", "units"} & set(sections):
        say("It holds stretches of the runs' test sets: share it where you may share that text.")
