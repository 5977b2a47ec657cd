"""Where a run's corpus lies, as its folder says it: seen from that folder, and not from the root of this machine.

A folder that is shared then says no more of its maker's disk than the way from it to the text: `../../texts/book.txt`.
In memory a corpus always has its whole path. What was hashed decides whether a text is the run's, never where it lies.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from unroll.experiment.experiment import Experiment

SEEN_FROM_HERE = ("./", "../")
MOST_PARENTS = 64  # folders above a run in which its corpus is looked for


def shared(experiment: Experiment, folder: Path) -> Experiment:
    """The experiment as a file in this folder may say it; a name, and a text without a place, stay as they are."""
    if not os.path.isabs(experiment.corpus):
        return experiment
    try:
        way = os.path.relpath(experiment.corpus, os.path.realpath(folder))
    except ValueError:  # on another drive
        return experiment
    way = way.replace(os.sep, "/")
    return replace(experiment, corpus=way if way.startswith("../") else f"./{way}")


def nameless(experiment: Experiment) -> Experiment:
    """The experiment as weights carry it: with the corpus's name alone, so that equal runs have equal weights."""
    if not os.path.isabs(experiment.corpus):
        return experiment
    return replace(experiment, corpus=f"./{os.path.basename(experiment.corpus)}")


def whole(experiment: Experiment, folder: Path) -> Experiment:
    """The experiment with the whole path of a corpus that a file in this folder names from there.

    Where the folder was moved without the text, the same way is tried from the folders above it and from the working
    directory.
    """
    if not experiment.corpus.startswith(SEEN_FROM_HERE):
        return experiment
    start = Path(os.path.realpath(folder))
    here = os.path.normpath(start / experiment.corpus)
    way = experiment.corpus
    while way.startswith(SEEN_FROM_HERE):
        way = way.partition("/")[2]
    others = [str(parent / way) for parent in start.parents[:MOST_PARENTS]]
    others.append(os.path.abspath(way) if os.path.isdir(".") else way)  # a working directory may have been deleted
    return replace(experiment, corpus=next(filter(os.path.exists, (here, *others)), here))
