"""`unroll study`: experiments beyond the paper's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unroll.base.errors import ConfigurationError, Interrupted, did_you_mean
from unroll.cli import options
from unroll.cli.options import option
from unroll.cli.screen import duration, say, shell_word, show, warn
from unroll.studies.beyond.parts import NAMES

STUDIES = ("beyond",)


def study(
    name: Annotated[str, typer.Argument(metavar="STUDY", help="beyond.")],
    data: Annotated[Path | None, option("A folder with english.txt, finnish.txt, linux.txt and music.txt.")] = None,
    out: Annotated[Path | None, option("The folder of the records. The same command goes on there.")] = None,
    only: Annotated[
        list[str] | None, option(f"Parts, again for more: {', '.join(NAMES)} [all].", "--only", metavar="PART")
    ] = None,
    small: Annotated[bool, option("γ = 128 and 2,400 batches, for a CPU.", "--small")] = False,
    most: Annotated[int | None, option("Runs that may train side by side [3 on a CPU, else 36].")] = None,
    quiet: options.Quiet = False,
) -> None:
    """Train what the paper leaves out: other loss weightings, state origins, resets, splits.

    \b
    unroll study beyond --data data --out beyond                             all of it
    unroll study beyond --only weights --only states --data data --out beyond     two parts
    unroll study beyond --small --data data --out small                      the same, small

    OUT/records holds one file per part, written as soon as a fleet ends. Weights are not kept.
    """
    wrong = [] if name in STUDIES else [f"{name!r} is no study: {', '.join(STUDIES)}.{did_you_mean(name, STUDIES)}"]
    parts = [part for each in only or NAMES for part in each.split(",")]
    wrong += [f"{p!r} is no part: {', '.join(NAMES)}.{did_you_mean(p, NAMES)}" for p in parts if p not in NAMES]
    if data is None:
        wrong.append("Say where the corpora are: --data FOLDER, with english.txt, finnish.txt, linux.txt, music.txt.")
    if out is None:
        wrong.append("Say where the records go: --out FOLDER.")
    if wrong:
        raise ConfigurationError(*wrong)

    from unroll.studies.beyond.experiments import FULL, SMALL
    from unroll.studies.beyond.study import Study

    assert data is not None
    assert out is not None
    asked = Study(parts, data, out, SMALL if small else FULL, most)
    for note in dict.fromkeys(note for corpus in asked.corpora.values() for note in corpus.notes):
        warn(note)
    try:
        for progress in asked.run():
            if not quiet:
                say(f"{progress.part}: {progress.what}; {duration(progress.seconds)}")
    except Interrupted:
        say(f"Fleets that have ended are in {shell_word(out)}. The same command goes on.")
        raise
    if not quiet:
        show(f"{shell_word(out / 'records')}: {', '.join(asked.parts)}")
