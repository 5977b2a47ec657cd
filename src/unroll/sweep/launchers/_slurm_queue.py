"""The queue: jobs are submitted by submitit, and asked after with Slurm's own commands.

`squeue` says which jobs are alive, on every cluster. How a job ended is known from it for some minutes (MinJobAge), and
from `sacct` later, where a cluster keeps accounts.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import dataclass, field
from typing import Any

from unroll.base import locks
from unroll.base.errors import ConfigurationError, InputError, UnrollError, counted
from unroll.base.printable import one_line
from unroll.sweep.launchers._slurm_submission import Submission

MISSING = "The launcher slurm needs submitit: pip install 'unroll-rnn[slurm]'."
NO_SLURM = (
    "There is no Slurm on this machine: it has no command {}. Start the sweep where jobs are submitted, on a login "
    "node of the cluster; or leave --launcher out: then runs are trained here."
)
COMMANDS = ("sbatch", "squeue", "scancel", "scontrol", "srun")
OURS = ("array", "chdir", "error", "job-name", "no-requeue", "open-mode", "output", "requeue", "signal", "wrap")
NOT_INHERITED = {
    f"SBATCH_{name}"
    for name in ("ARRAY_INX", "ERROR", "JOB_NAME", "NO_REQUEUE", "OPEN_MODE", "OUTPUT", "SIGNAL", "WAIT")
}
LARGEST = 1000  # jobs of an array: Slurm allows 1,001 unless a cluster says otherwise
GLANCE = 0.05  # seconds between two looks at a process that ends
PATIENCE = 60.0  # seconds for an answer of Slurm
# What Slurm calls jobs that are over; any other word is one that lives, or may live again.
OVER = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
    "TIMEOUT",
}  # fmt: skip
Key = tuple[str, int]  # a job: the name that all of its array bear, and its number there


@dataclass(frozen=True)
class Standing:
    """How a job stands: its number in the queue and Slurm's word for its state."""

    id: str
    word: str

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs, or will."""
        return self.word in OVER


class Unreachable(UnrollError):
    """Slurm does not answer: nothing is known of any job."""


@dataclass
class Slurm:
    """The queue of a cluster."""

    keys: Mapping[str, Any]
    every = 10.0  # seconds between two questions

    def require(self) -> None:
        """Raise where there is no Slurm."""
        absent = [command for command in COMMANDS if shutil.which(command) is None]
        if absent:
            raise ConfigurationError(NO_SLURM.format(absent[0]))

    def submit(
        self, submission: Submission, work: Callable[..., object], jobs: Sequence[tuple[Any, ...]], cpus: int, gpu: bool
    ) -> list[str]:
        """Hand an array of jobs to Slurm, each with its arguments for `work`; their ids."""
        from submitit import SlurmExecutor

        executor = SlurmExecutor(folder=submission.path, python=f"{shlex.quote(sys.executable)} -P")
        executor.update_parameters(**self._parameters(submission, cpus, gpu))
        with _explained(), _own_environment(), redirect_stderr(io.StringIO()):
            return [str(job.job_id) for job in executor.map_array(work, *zip(*jobs, strict=True))]

    def _parameters(self, submission: Submission, cpus: int, gpu: bool) -> dict[str, Any]:
        said = self.keys
        further = sbatch_options(said["sbatch"])
        path = os.pathsep.join(place for place in sys.path if isinstance(place, str) and os.path.isabs(place))
        gpus = said["gpus"] or (0 if any("gpu" in option for option in (*further, said["sbatch"])) else 1)
        asked = {name: said[name] or None for name in ("partition", "account", "qos", "constraint")}
        return {
            **asked,
            "job_name": submission.name,
            "time": said["minutes"] or None,
            "mem": said["memory"] or None,
            "gpus_per_node": gpus if gpu else None,
            "cpus_per_task": cpus,
            "srun_args": [f"--cpus-per-task={cpus}"],  # which srun does not take over from sbatch
            "array_parallelism": said["at_once"] or LARGEST,
            "setup": [f"export PYTHONPATH={shlex.quote(path)}"],
            "wckey": None,
            # After Unroll's own: a job is warned by USR2, and stays in the queue when it asks for that.
            "additional_parameters": {**further, "requeue": True, "signal": f"USR2@{said['warning']}"},
        }

    def standings(self, submissions: Iterable[Submission]) -> dict[Key, Standing]:
        """How the jobs of these submissions stand; one that is over may be missing."""
        names = {submission.name for submission in submissions}
        if not names:
            return {}
        fields = "%j|%F|%K|%i|%T"
        whose = [f"--user={os.getuid()}", f"--name={','.join(sorted(names))}"]
        said = _asked(["squeue", *whose, "--states=all", "--array", "--noheader", f"--format={fields}"])
        standings: dict[Key, Standing] = {}
        for line in said.splitlines():
            name, *words = line.strip().split("|")
            if name not in names or len(words) != 4:
                continue
            whole, number, own, word = words
            key = name, int(number) if number.isdecimal() else 0
            standing = Standing(f"{whole}_{number}" if number.isdecimal() else own, word)
            if key not in standings or standings[key].is_over:
                standings[key] = standing
        return standings

    def end_of(self, job: str) -> str | None:
        """How a job ended that is in the queue no more; None where this cluster keeps no accounts."""
        with suppress(Unreachable):
            said = _asked(["sacct", "-X", "-n", "-P", "-o", "State", "-j", job]).split()
            return said[0] if said else None
        return None

    def taken(self, jobs: Sequence[str]) -> str:
        """What is to be said when jobs were submitted."""
        return (
            f"Submitted to Slurm as {_arrays(jobs)}: {counted(len(jobs), 'job')}. Ctrl-C ends this process alone: what "
            "is in the queue stays there and goes on."
        )

    def leave(self, jobs: Sequence[str]) -> str:
        """Let the jobs go on without the driver; what is to be said of them."""
        return f"Jobs stay in Slurm's queue and go on; scancel {_arrays(jobs)} ends them." if jobs else ""

    def close(self) -> None:
        """The driver goes; jobs do not."""

    def cancel(self, job: str) -> None:
        """End a job that nobody needs."""
        with suppress(Unreachable):
            _asked(["scancel", job])


@dataclass
class Local:
    """Processes of this machine instead of a queue, to try out what Slurm would do. They end with the driver."""

    keys: Mapping[str, Any]
    every = 0.5
    jobs: dict[Key, Any] = field(default_factory=dict)

    def require(self) -> None:
        """There is nothing to be missing."""

    def submit(
        self, submission: Submission, work: Callable[..., object], jobs: Sequence[tuple[Any, ...]], cpus: int, gpu: bool
    ) -> list[str]:
        """Start a process for each job."""
        from submitit import LocalExecutor

        executor = LocalExecutor(folder=submission.path, python=f"{shlex.quote(sys.executable)} -P")
        minutes = self.keys["minutes"] or 60 * 24 * 365
        executor.update_parameters(timeout_min=minutes, signal_delay_s=self.keys["warning"])
        started = executor.map_array(work, *zip(*jobs, strict=True))
        self.jobs |= {(submission.name, number): job for number, job in enumerate(started)}
        return [str(job.job_id) for job in started]

    def standings(self, submissions: Iterable[Submission]) -> dict[Key, Standing]:
        """Those that this process started, and those of an earlier driver that hold their runs."""
        standings = {}
        for submission in submissions:
            for number in range(max(1, len(submission.fleets))):
                key = submission.name, number
                if key in self.jobs:
                    over = self.jobs[key].done()
                    standings[key] = Standing(str(self.jobs[key].job_id), "FAILED" if over else "RUNNING")
                elif attempts := submission.attempts(number):
                    last = attempts[-1]
                    over = locks.is_gone(locks.Holder(last.process, last.machine, last.began, 0.0))
                    standings[key] = Standing(str(last.process), "FAILED" if over else "RUNNING")
        return standings

    def end_of(self, job: str) -> str | None:
        """Nobody keeps accounts."""
        return None

    def taken(self, jobs: Sequence[str]) -> str:
        """Nothing: they are as fleeting as the driver."""
        return ""

    def cancel(self, job: str) -> None:
        """It ends with the others."""

    def leave(self, jobs: Sequence[str]) -> str:
        """Nothing: they end with the driver."""
        return ""

    def close(self) -> None:
        """Those at work save and end."""
        for job in self.jobs.values():
            if not job.done():
                with suppress(ProcessLookupError):
                    os.kill(int(job.job_id), signal.SIGTERM)
        for job in self.jobs.values():
            while not job.done():
                time.sleep(GLANCE)


Queue = Slurm | Local


def queue(keys: Mapping[str, Any]) -> Queue:
    """The queue that the keys name; raises where it is not there."""
    chosen = Local(keys) if keys["cluster"] == "local" else Slurm(keys)
    chosen.require()
    return chosen


def sbatch_options(text: str) -> dict[str, str | bool]:
    """`--nice=5 --exclusive` as options and values; raises a ConfigurationError with all that is wrong."""
    options: dict[str, str | bool] = {}
    wrong = []
    for word in shlex.split(text):
        name, has_value, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not name:
            wrong.append(f"sbatch of the launcher slurm takes options as in '--nice=5 --exclusive'. Got {word!r}.")
        elif name in OURS:
            wrong.append(f"--{name} is set by the launcher slurm itself. Leave it out of sbatch.")
        else:
            options[name] = value if has_value else True
    if wrong:
        raise ConfigurationError(*wrong)
    return options


def _arrays(jobs: Sequence[str]) -> str:
    """The numbers of the arrays that jobs belong to."""
    return " ".join(dict.fromkeys(job.partition("_")[0] for job in jobs))


def _asked(command: Sequence[str]) -> str:
    """What a command of Slurm answers."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unreachable(f"Slurm does not answer: {error}.") from None
    if done.returncode:
        raise Unreachable(f"Slurm does not answer: {one_line(done.stderr.strip() or str(done.returncode))}.")
    return done.stdout


@contextmanager
def _own_environment() -> Iterator[None]:
    """Without what would change the jobs: a driver may itself be a job, whose variables are those of its own node.

    Other variables of sbatch stay: SBATCH_GRES and the like are the site's, or the user's.
    """
    before = dict(os.environ)
    for name in before:
        if (name.startswith("SLURM_") and name != "SLURM_CONF") or name in NOT_INHERITED:
            del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(before)


class _explained:
    """What sbatch refuses, in words."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        if isinstance(error, FailedJobError | FailedSubmissionError | OSError):
            errors = re.findall(r"^sbatch: (?:error|fatal): (.*)$", str(error), re.MULTILINE)
            said = one_line("; ".join(dict.fromkeys(errors)) or str(error))
            raise InputError(f"Slurm did not take the jobs: {said}.") from None
