"""Each fleet a job of Slurm: a sweep is an array of jobs, and the driver may leave and come back.

The folder of the sweep is one that all nodes share. Jobs write the folders of their runs, and their reports into
`slurm/` in the sweep's folder, where the driver reads them. A driver that comes back asks Slurm which jobs of this
sweep are alive, and follows them; what no job trains, and has not ended, is submitted.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from unroll.base import generators
from unroll.base.cache import cache_folder
from unroll.base.errors import ConfigurationError, Interrupted, UnrollError, counted
from unroll.base.wording import at_a_shell
from unroll.corpus.open_corpora import Library
from unroll.experiment.experiment import Experiment
from unroll.experiment.settings import at_least
from unroll.experiment.spelled import Key
from unroll.sweep.launchers import Job, Report, _slurm_submission, chosen, require_reach
from unroll.sweep.launchers._slurm_drive import LATE, SOON, Drive, last_words
from unroll.sweep.launchers._slurm_queue import MISSING, Queue, Unreachable, queue, sbatch_options
from unroll.sweep.launchers._slurm_submission import Submission
from unroll.sweep.launchers._travel import packed
from unroll.training.signals import Pressed, Watch

ELSEWHERE = True  # what this process registered, jobs do not know
CLUSTERS = ("slurm", "local")
KEYS = {
    "partition": Key(""),
    "minutes": Key(0, at_least(0)),  # the time limit of a job; 0 is the partition's
    "gpus": Key(0, ((0, 1).__contains__, "0 or 1, since a fleet trains on one")),
    "cpus": Key(1, at_least(1)),
    "memory": Key(""),
    "account": Key(""),
    "qos": Key(""),
    "constraint": Key(""),
    "at_once": Key(0, at_least(0)),  # the most jobs that run at the same time; 0 is no limit
    "warning": Key(60, at_least(1)),  # seconds before the time limit at which a job saves
    "sbatch": Key(""),  # further options of sbatch
    "cluster": Key("slurm", (CLUSTERS.__contains__, "slurm, or local to try it out without one")),
}
DAY = 86_400.0  # seconds
TRIAL = {"cluster": "local"}
GLANCE, EACH, MOST = 0.5, 0.005, 5.0  # seconds between two looks at the reports: at least, for each job, at most


def why_not() -> str | None:
    """Why nothing can be submitted here, in words; None where that can be."""
    if not hasattr(os, "getuid"):
        return "The launcher slurm needs a system on which Slurm runs. Leave --launcher out: runs are trained here."
    return None if find_spec("submitit") else MISSING


def run(jobs: Sequence[Job], library: Library, **keys: Any) -> Generator[Report, None, None]:
    """Train fleets as jobs of Slurm; reports come as the jobs write them."""
    require_reach(chosen("slurm"), [experiment for job in jobs for experiment in job.experiments])
    return generators.closed_at_exit(_run(jobs, library, queue(_complete(keys))))


def _run(jobs: Sequence[Job], library: Library, there: Queue) -> Generator[Report, None, None]:
    if not jobs:
        return
    drive = Drive(jobs, library, there)
    try:
        with Watch() as watch:
            yield from drive.begin()
            while drive.going:
                watch.check()
                yield from drive.news()
                time.sleep(min(MOST, max(GLANCE, EACH * len(drive.going))))
        drive.end()
    except Pressed as pressed:
        raise Interrupted(pressed.number, left=there.leave([task.id for task in drive.going])) from None
    finally:
        there.close()


def refusal(experiments: Iterable[Experiment], **keys: Any) -> str | None:
    """Why these cannot be trained by jobs, in words; None where they can."""
    numbered = next((e.device for e in experiments if e.device[-1:].isdecimal()), None)
    if numbered:
        return f"A job's GPUs are those of its node, whatever their number: say --device cuda. Got {numbered}."
    return None


def at_once(device: str, **keys: Any) -> int:
    """How many fleets train at the same time."""
    return int(keys["at_once"]) or 1


def call(function: Callable[..., Any], *arguments: Any, **keys: Any) -> Any:
    """What a function gives for these arguments, computed by a job of the kind that will train."""
    from unroll.sweep.launchers._slurm_job import compute

    asked = _complete(keys)
    there = queue(asked)
    place = cache_folder().absolute() / _slurm_submission.FOLDER
    for left in _slurm_submission.known(place):
        if left.age > DAY:
            left.clear()
    submission = _slurm_submission.make(place, ())
    task, result = submission.path / "task.pkl", submission.path / _slurm_submission.RESULT
    task.write_bytes(packed((function, arguments)))
    told = (str(task), str(result), os.getcwd(), at_a_shell(), asked["cpus"])
    try:
        (job,) = there.submit(submission, compute, [told], asked["cpus"], bool(asked["gpus"]))
    except UnrollError:
        submission.clear()
        raise
    try:
        _wait_for(result, submission, job, there)
        done, outcome = pickle.loads(result.read_bytes())  # of a folder that this process has just made for itself
    except Pressed as pressed:
        there.cancel(job)
        raise Interrupted(pressed.number, left="The job that was to make the plan is cancelled.") from None
    finally:
        there.close()
        submission.clear()
    if not done and not asked["gpus"] and "CUDA" in str(outcome):
        raise ConfigurationError(*outcome.problems, "A job has a GPU if the launcher slurm is given gpus=1.")
    if not done:
        raise outcome
    return outcome


def _wait_for(result: Path, submission: Submission, job: str, there: Queue) -> None:
    """Until there is a result; raise where the job is over and there is none."""
    asked, over = time.monotonic(), None
    with Watch() as watch:
        while not result.exists():
            watch.check()
            time.sleep(GLANCE)
            now = time.monotonic()
            if over and now - over[0] > (LATE if over[1] == "COMPLETED" else SOON):
                word = ", ".join(filter(None, (over[1], last_words(submission, job))))
                raise UnrollError(f"Slurm ended the job {job}, which was to make the plan: {word}.")
            if over or now - asked < there.every:
                continue
            asked = now
            with suppress(Unreachable):
                standing = there.standings([submission]).get((submission.name, 0))
                if standing is None or standing.is_over:
                    over = now, standing.word if standing else "it is in the queue no more"


def _complete(keys: dict[str, Any]) -> dict[str, Any]:
    """All keys, those that were not said with their defaults."""
    complete = {name: key.default for name, key in KEYS.items()} | keys
    sbatch_options(complete["sbatch"])
    if complete["minutes"] and 60 * complete["minutes"] <= complete["warning"]:
        raise ConfigurationError(
            f"A job of {counted(complete['minutes'], 'minute')} cannot be warned {complete['warning']} seconds before "
            "its end. Give the launcher slurm more minutes=N, or fewer seconds of warning=N."
        )
    return complete
