"""How a training stands, in words: what a line of progress says."""

from __future__ import annotations

from typing import Any

from unroll.base.durations import duration
from unroll.training.bookkeeping import evaluation_points
from unroll.training.events import Evaluated, Event

EVALUATING = "evaluating…"


def pace(event: Event) -> str:
    """Tokens a second of training, and the time left."""
    experiment, count = event.learner.experiments[0], event.learner.count
    if not count or not event.seconds:
        return ""
    tokens = experiment.rows * experiment.scheme.k2 * count / event.seconds
    return f"{tokens:,.0f} tokens/s   {duration(seconds_left(event))} left"


def seconds_left(event: Event) -> float:
    """The time left of batches and of evaluations, each at its pace so far; after at least one batch.

    Evaluations crowd at the beginning of a run; by the clock alone a one-minute run would begin with four minutes left.
    """
    experiment, count = event.learner.experiments[0], event.learner.count
    points = evaluation_points(experiment.batches, experiment.evaluations)
    scored = sum(point <= count for point in points)
    left = event.seconds / count * (experiment.batches - count)
    return left + event.evaluating / max(scored, 1) * (len(points) - scored)


def resumed(event: Event) -> str:
    """From where a run goes on."""
    return f"Going on from batch {event.batch:,} of {event.batches:,}."


def scores(metrics: dict[str, Any]) -> str:
    """The perplexities of an evaluation; one too large for a float is infinite."""
    values = [("perplexity", *score) for score in metrics["perplexity"].items()]
    values += [("validation", *score) for score in metrics.get("validation", {}).items()]
    return "   ".join(f"{of} {'∞' if v is None else f'{v:,.3f}'} {procedure}" for of, procedure, v in values)


def evaluation_line(event: Evaluated) -> str:
    """An evaluation as a line of a log."""
    metrics, batches = event.metrics, event.learner.experiments[event.run].batches
    loss = "" if metrics["loss"] is None else f"   loss {metrics['loss']:.4f}"
    return f"batch {metrics['batch']:>6,} / {batches:,}{loss}   {scores(metrics)}   {pace(event)}"
