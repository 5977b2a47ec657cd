"""Where a run's corpus lies, as its folder says it: seen from that folder, and not from the root of this machine.

A folder that is shared then says no more of its maker's disk than the way from it to the text: `../../texts/book.txt`.
In memory a corpus always has its whole path, and so have a validation and a test file. What was hashed decides whether
a text is the run's, never where it lies.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from unroll.experiment.experiment import Experiment

PLACES = ("corpus", "validation_file", "test_file")
SEEN_FROM_HERE = ("./", "../")
MOST_PARENTS = 64  # folders above a run in which its corpus is looked for


def shared(experiment: Experiment, folder: Path) -> Experiment:
    """The experiment as a file in this folder may say it; a name, and a text without a place, stay as they are."""
    return _with_places(experiment, os.path.isabs, lambda path: _seen_from(path, folder))


def nameless(experiment: Experiment) -> Experiment:
    """The experiment as weights carry it: with the names of files alone, so that equal runs have equal weights."""
    return _with_places(experiment, os.path.isabs, lambda path: f"./{os.path.basename(path)}")


def whole(experiment: Experiment, folder: Path) -> Experiment:
    """The experiment with the whole path of each file that a file in this folder names from there.

    Where the folder was moved without the text, the same way is tried from the folders above it and from the working
    directory.
    """
    return _with_places(experiment, lambda way: way.startswith(SEEN_FROM_HERE), lambda way: _found(way, folder))


def _with_places(experiment: Experiment, applies: Callable[[str], bool], place: Callable[[str], str]) -> Experiment:
    said = {name: getattr(experiment, name) for name in PLACES}
    places: dict[str, Any] = {name: place(path) for name, path in said.items() if path and applies(path)}
    return replace(experiment, **places) if places else experiment


def _seen_from(path: str, folder: Path) -> str:
    try:
        way = os.path.relpath(path, os.path.realpath(folder))
    except ValueError:  # on another drive
        return path
    way = way.replace(os.sep, "/")
    return way if way.startswith("../") else f"./{way}"


def _found(said: str, folder: Path) -> str:
    start = Path(os.path.realpath(folder))
    here = os.path.normpath(start / said)
    way = said
    while way.startswith(SEEN_FROM_HERE):
        way = way.partition("/")[2]
    others = [str(parent / way) for parent in start.parents[:MOST_PARENTS]]
    others.append(os.path.abspath(way) if os.path.isdir(".") else way)  # a working directory may have been deleted
    return next(filter(os.path.exists, (here, *others)), here)
