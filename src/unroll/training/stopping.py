"""When a run ends before its last batch, or is cut short because it diverged.

A stop condition is one function here, listed in CONDITIONS: from what was asked, a run's evaluations so far and its
clock to the reason in words, or None. It is asked at each evaluation; one whose answer the clock alone decides is asked
at each look at the device as well (`out_of_time`). All else follows from the answer: the run is scored under both
procedures at that batch, its weights are stored, its slot in the fleet is masked, and the reason stands in status.json.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unroll.base.durations import duration
from unroll.experiment.experiment import Experiment
from unroll.runs.selection import Point, chosen_on, lowest

FINISHED, STOPPED = "finished", "stopped"

Condition = Callable[[Experiment, Sequence[Point], float], str | None]


@dataclass(frozen=True)
class Ending:
    """How a run ended."""

    state: str  # finished, or stopped where it diverged
    batch: int  # the batches that its weights have seen
    reason: str | None = None  # None where it is through


def why(experiment: Experiment, points: Sequence[Point], seconds: float) -> str | None:
    """Why a run ends at its last evaluation; None where it goes on, or is through anyway."""
    if points[-1].batch >= experiment.batches:
        return None
    return next((words for ends in CONDITIONS if (words := ends(experiment, points, seconds))), None)


def out_of_time(experiment: Experiment, seconds: float) -> bool:
    """Whether the clock ends a run, wherever it stands."""
    return experiment.minutes is not None and seconds >= 60 * experiment.minutes


def _at_target(experiment: Experiment, points: Sequence[Point], seconds: float) -> str | None:
    target, (batch, perplexity) = experiment.target, points[-1]
    if target is None or not perplexity <= target:
        return None
    on = chosen_on(experiment)
    return f"At batch {batch:,} the perplexity {perplexity:,.4f} of the {on} reached the target {target:g}."


def _out_of_patience(experiment: Experiment, points: Sequence[Point], seconds: float) -> str | None:
    best, patience = lowest(points), experiment.patience
    since = sum(point.batch > best.batch for point in points) if best else len(points)
    if patience is None or since < patience:
        return None
    evaluations = "evaluation" if since == 1 else f"{since:,} evaluations"
    on, lowest_one = chosen_on(experiment), f"was best at batch {best.batch:,}" if best else "was never finite"
    return f"At batch {points[-1].batch:,} the last {evaluations} brought no better one: the {on} {lowest_one}."


def _out_of_time(experiment: Experiment, points: Sequence[Point], seconds: float) -> str | None:
    if not out_of_time(experiment, seconds):
        return None
    return f"At batch {points[-1].batch:,} its time was over: {duration(60 * (experiment.minutes or 0))} of training."


CONDITIONS: tuple[Condition, ...] = (_at_target, _out_of_patience, _out_of_time)
