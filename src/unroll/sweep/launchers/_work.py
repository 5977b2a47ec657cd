"""Train one job where this is called: prepare its folders, run the loop, and tell what happens in plain words."""

from __future__ import annotations

import gc
import os
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

from unroll.base import limits, locks
from unroll.base.errors import Interrupted, RunError, SaveError, UnrollError
from unroll.corpus.open_corpora import Library
from unroll.engines import devices
from unroll.experiment.experiment import Experiment
from unroll.runs.folder import RunFolder
from unroll.sweep.launchers import Begun, Failed, Job, Noted, Progressed, Report, RunEnded, Scored, TooLarge
from unroll.training import extension, relocate
from unroll.training.events import Ended, Evaluated, Event, Stepped, Warned
from unroll.training.loop import train_fleet
from unroll.training.preflight import refuse_hopeless

OFTEN = 0.1  # seconds between two reports of progress
NOT_THE_SAME = "the runs go on, but not bit for bit as they would have"


def work(job: Job, library: Library) -> Iterator[Report]:
    """Train the runs of a job that have not ended, and report."""
    try:
        job, notes = _moved_here(job)
        yield from (Noted(job.fleet, f"{note}: {NOT_THE_SAME}.") for note in notes)
        corpora = [library.open(e) for e in job.experiments]
        refuse_hopeless(job.experiments, corpora)  # before there are folders of runs that cannot be trained
        for out, experiment, corpus in zip(job.outs, job.experiments, corpora, strict=True):
            RunFolder(out).begin(corpus.described_in(experiment), corpus.vocabulary)
        fleet = train_fleet(job.experiments, corpora, job.outs, resume=True, save_every=job.save_every, track=job.track)
        with closing(fleet) as events:
            yield from _reports(job, events)
        return
    except Interrupted:
        raise
    except Exception as error:
        if isinstance(error, SaveError) and not limits.shortage(error):
            raise
        report = _verdict(job, error)
    finally:
        # Only now, the error forgotten, nothing holds what filled the memory.
        gc.collect()
        devices.give_back()
    yield report


def _moved_here(job: Job) -> tuple[Job, list[str]]:
    """The job as it can go on here, on one device, and what changes for runs that have begun, in words."""
    place = relocate.places(job.device)[0]
    if devices.kind(place) == devices.kind(job.device):  # else the run is told of another kind of device below
        job = job.on(place)
    moved = [
        relocate.here(run, status=_last(RunFolder(out))) for run, out in zip(job.experiments, job.outs, strict=True)
    ]
    notes = dict.fromkeys("; ".join(changes) for _, changes in moved if changes)
    return replace(job, experiments=tuple(run for run, _ in moved)), list(notes)


def _last(folder: RunFolder) -> Mapping[str, Any]:
    """What a run computed with last, if it has begun."""
    try:
        return folder.status
    except RunError:
        return {}  # what is wrong with it is said where it is trained


def where(device: str) -> str:
    """The process, the machine and the device that train, in words."""
    name = "" if devices.is_host(device) else f", {devices.describe(devices.find(device))}"
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    number = f" {seen}" if name and seen else f" {device.partition(':')[2]}" if name and ":" in device else ""
    return f"process {os.getpid()} on {locks.this_machine().partition('?')[0]}{name}{number}"


def _reports(job: Job, events: Iterator[Event]) -> Iterator[Report]:
    begun, reported = False, 0.0
    for event in events:
        count = event.learner.count
        if isinstance(event, Warned):
            yield Noted(job.fleet, event.message)
            continue
        if not begun:
            yield Begun(job.fleet, count - 1 if isinstance(event, Stepped) else count, where(job.device))
            begun = True
        if isinstance(event, Evaluated):
            yield Scored(job.fleet, job.runs[event.run], event.metrics)
        elif isinstance(event, Ended):
            yield RunEnded(job.fleet, job.runs[event.run], event.status)
        if not isinstance(event, Stepped) or time.perf_counter() - reported > OFTEN:
            yield Progressed(job.fleet, count, event.seconds, event.evaluating)
            reported = time.perf_counter()


def _verdict(job: Job, error: Exception) -> Report:
    """What an error means for the runs of a fleet."""
    folders = [RunFolder(out) for out in job.outs]
    if lack := limits.shortage(error):
        if len(job.runs) > 1 and not any(map(has_saved, folders)):
            return TooLarge(job.fleet, lack.said)
        return Failed(job.fleet, unended(job), too_little(lack, len(job.runs)))
    if isinstance(error, UnrollError):
        return Failed(job.fleet, unended(job), " ".join(getattr(error, "problems", (str(error),))))
    return Failed(
        job.fleet, unended(job), f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))
    )


def too_little(lack: limits.Shortage, runs: int) -> str:
    """Why runs that cannot be divided any further do not fit here, and what would do."""
    who = f"{runs:,} runs side by side" if runs > 1 else "this run alone"
    if lack.of == limits.FILES:
        return (
            f"This process may not open enough files for {who} ({lack.said}). Raise that limit (ulimit -n) and go on."
        )
    remedy = "Lower --hidden, --rows, --k2 or --dense, or bring more memory, and go on."
    return f"There is not enough memory for {who} ({lack.said}). {remedy}"


def unended(job: Job) -> tuple[str, ...]:
    """The runs of a job that have not ended, whatever ended the job: the others have their results."""
    runs = zip(job.runs, job.experiments, job.outs, strict=True)
    return tuple(run for run, experiment, out in runs if not _has_ended(RunFolder(out), experiment))


def has_saved(folder: RunFolder) -> bool:
    """Whether there is anything in a run's folder from which it goes on."""
    try:
        return folder.has_saved()
    except RunError:  # it is damaged: what is in it is not to be begun anew
        return True


def _has_ended(folder: RunFolder, experiment: Experiment) -> bool:
    try:
        return extension.has_ended(folder, experiment)
    except RunError:  # it is damaged
        return False
