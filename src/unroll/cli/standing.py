"""What `unroll sweep --status` prints."""

from __future__ import annotations

from dataclasses import asdict

from unroll.base.errors import counted
from unroll.cli.screen import duration, print_json, show, warn
from unroll.sweep.standing import FleetStanding, Standing


def print_standing(standing: Standing, json: bool) -> None:
    """A line for the sweep and one for each fleet, or one JSON object."""
    for note in standing.notes:
        warn(note)
    if json:
        print_json({**asdict(standing), "counts": standing.counted()})
        return
    counts = ", ".join(f"{number} {state}" for state, number in standing.counted().items())
    show(f"{counted(len(standing.fleets), 'fleet')}: {counts}" if standing.fleets else "Nothing is planned yet.")
    show(f"Held by {standing.driver}." if standing.driver else "No process is at work in it.")
    for fleet in standing.fleets:
        show(f"fleet {fleet.fleet}: {_in_words(fleet)}")
    for name, reason in standing.refused.items():
        show(f"cannot be trained: {name}: {reason}")
    for change in standing.changes:
        show(change)


def _in_words(fleet: FleetStanding) -> str:
    words = [fleet.state, counted(fleet.runs, "run") + (f" ({fleet.ended} ended)" if fleet.ended else "")]
    if fleet.batch and fleet.state != "ended":
        words.append(f"batch {fleet.batch:,} of {fleet.batches:,}")
    if fleet.seconds_left is not None:
        words.append(f"{duration(fleet.seconds_left)} left")
    if fleet.where:
        words.append(fleet.where)
    if fleet.lost:
        words.append("lost once and tried again" if fleet.lost == 1 else f"lost {fleet.lost} times and tried again")
    if fleet.state == "lost":
        words.append("the process that trained it is gone; --resume goes on with it")
    if fleet.reason:
        words.append(fleet.reason)
    return ", ".join(words)
