"""Who else is told how a training goes: TensorBoard, W&B, MLflow. One file a tracker; a file supplies

    why_not()             None; or why it cannot be used here, in words, with the remedy
    begin(run, lines)     begin with a run: `run` says what it is (`Tracked`), `lines` are the evaluations that stand.
                          It gives an object with

        add(line)         another evaluation
        end(state)        the run is left: `finished`, `stopped` where it diverged, `interrupted`, or `failed`; nothing
                          is called after it

`metrics.jsonl` is the source. A line is what that file holds, and `points` makes of it names and numbers; a tracker has
the points of the lines that it was given, each once, at the line's batch.

What every tracker keeps to:
- it may begin again with a run at any time: after a kill and a resume, `lines` are those that stand. A point that was
  there before is not doubled, and none is missing. One that was cut off comes again, with the numbers that it had;
- numbers that are not finite are no error;
- it writes nothing into the run's folder but through `run`, asks nothing at the terminal, and prints nothing;
- it leaves the process as it is: no signal handlers, no working directory, no random generator.

A tracker may raise whatever it likes, and take as long as it likes: it is called by a thread of its own, beside the
training (`training/following.py`), one call after the other. What it raises is one note, and the run is tracked no
more by it.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from unroll.base import plugins
from unroll.base.errors import ConfigurationError
from unroll.experiment import corpus_place
from unroll.experiment.experiment import Experiment, to_tables

if TYPE_CHECKING:
    from unroll.runs.folder import RunFolder

APART = frozenset({"batch", "fleet"})  # what a line holds beside its points: the step, and how many trained together

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Tracked:
    """The run that is tracked."""

    folder: RunFolder
    experiment: Experiment

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.folder.path.resolve().name

    @property
    def group(self) -> str | None:
        """The name of the sweep that it belongs to; None for a run by itself."""
        path = self.folder.path.resolve()
        sweep = path.parent.parent
        return sweep.name if path.parent.name == "runs" and (sweep / "sweep.json").is_file() else None

    @property
    def settings(self) -> dict[str, Any]:
        """Its whole configuration, `training.seed` and the like; of places on this machine the last name alone."""
        tables = to_tables(corpus_place.nameless(self.experiment))
        return {f"{table}.{key}": value for table, content in tables.items() for key, value in content.items()}

    @property
    def key(self) -> str:
        """A name that this run's folder alone has, the same after each resume."""
        return self.folder.tracking_key()


class Following(Protocol):
    """A run in a tracker."""

    def add(self, line: Line) -> None: ...

    def end(self, state: str) -> None: ...


class Tracker(Protocol):
    """What every tracker file is."""

    def why_not(self) -> str | None: ...

    def begin(self, run: Tracked, lines: Sequence[Line]) -> Following: ...


def load(name: str) -> Tracker:
    """The tracker behind an option's name."""
    return cast(Tracker, plugins.load("trackers", name))


def points(line: Line) -> dict[str, float]:
    """Every number of a line by its name, as `loss` and `perplexity/windowed`.

    One that JSON cannot write is null in the file: a perplexity is infinite then, and anything else is no number.

    >>> points({"batch": 3, "loss": 2.5, "perplexity": {"windowed": None}, "fleet": 1})
    {'loss': 2.5, 'perplexity/windowed': inf}
    """
    found: dict[str, float] = {}
    for name, value in line.items():
        if isinstance(value, Mapping):
            found |= {f"{name}/{part}": math.inf if one is None else float(one) for part, one in value.items()}
        elif name not in APART and (value is None or type(value) in (int, float)):
            found[name] = math.nan if value is None else float(value)
    return found


def named(track: str | Sequence[str]) -> tuple[str, ...]:
    """Names that stand in one text, as `tensorboard,wandb`, or one by one."""
    said = track.split(",") if isinstance(track, str) else track
    return tuple(dict.fromkeys(name for word in said if (name := word.strip())))


def chosen(track: str | Sequence[str]) -> tuple[str, ...]:
    """The trackers that are named; a ConfigurationError says all that is wrong with them at once."""
    names = named(track)
    unknown = {name: problem for name in names if (problem := plugins.problem("trackers", name))}
    wrong = [unknown.get(name) or load(name).why_not() for name in names]
    if problems := [problem for problem in wrong if problem]:
        raise ConfigurationError(*problems)
    return names


def missing(package: str, what: str, command: str) -> str | None:
    """Why a tracker cannot be used where its package is not installed; it is looked for, not imported."""
    try:
        there = importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        there = False
    return None if there else f"{what} needs {package}: {command}."
