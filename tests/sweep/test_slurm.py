"""The launcher slurm on a real Slurm of one node: jobs are cancelled, past their limit and left by their driver."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import slurm_cluster
import sweeping
from paths import TESTS
from sweeping import small

import unroll
from unroll import Experiment

PATIENCE = 420.0  # seconds until something must have happened, on a busy machine
LONG = 45.0  # seconds of a core that the long run takes: Slurm looks at time limits twice a minute
LARGER: dict[str, Any] = {"hidden": 64, "dense": 64, "k2": 60, "kernel": "stacked"}
SHORT = 11  # runs of a fraction of a second each, beside a long one
DRIVER = """
import dataclasses, json, sys
import test_slurm, unroll
if __name__ == "__main__":
    def say(report):
        print(json.dumps({"report": type(report).__name__, **getattr(report, "__dict__", {})}, default=str), flush=True)
    asked = test_slurm.asked(sys.argv[1], int(sys.argv[4]))
    test_slurm.trained(asked, sys.argv[2], sys.argv[3], on_event=say)
"""


def asked(text: str, batches: int) -> list[Experiment]:
    """Twelve runs, each a fleet of its own; the last is a larger model, and a longer run."""
    short = small(corpus=text, seed=list(range(SHORT)), kernel="stacked")
    return [*short, *small(corpus=text, seed=SHORT, batches=batches, **LARGER)]


def trained(runs: list[Experiment], folder: Path | str, launcher: str, **options: Any) -> None:
    """Train them, and save often."""
    unroll.train_all(runs, folder, most=1, save_every=25, launcher=launcher, progress=False, **options)


def batches_of_a_minute(text: Path, folder: Path) -> int:
    """How many batches of the larger model a core computes in about a minute."""
    (run,) = small(corpus=str(text), batches=100, **LARGER)
    before = time.process_time()
    unroll.train(run, folder, progress=False)
    return int(100 * LONG / (time.process_time() - before))


@pytest.fixture(scope="module")
def conf() -> Iterator[Path]:
    """The configuration of a Slurm that runs."""
    with slurm_cluster.cluster() as path:
        yield path


class Driver:
    """A process that drives a sweep, and what it has said."""

    def __init__(self, conf: Path, folder: Path, batches: int) -> None:
        self.out = folder.with_name(f"{folder.name}-{time.monotonic_ns()}.out")
        places = [str(TESTS / "sweep"), str(TESTS), str(Path(unroll.__file__).parents[1])]
        environment = {
            **os.environ,
            "SLURM_CONF": str(conf),
            "PYTHONPATH": os.pathsep.join(places),
            "UNROLL_CACHE": str(folder.with_name("cache")),
        }
        command = [sys.executable, "-c", DRIVER, folder.with_name("text.txt"), folder, "slurm", str(batches)]
        with open(self.out, "wb") as out:
            self.process = subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT)

    @property
    def said(self) -> list[dict[str, Any]]:
        """Its reports so far."""
        return [json.loads(line) for line in self.text.splitlines() if line.startswith("{") and line.endswith("}")]

    @property
    def text(self) -> str:
        """All that it has printed."""
        return self.out.read_text()

    def heard(self, kind: str, **facts: Any) -> list[dict[str, Any]]:
        """Its reports of a kind, with these facts."""
        return [r for r in self.said if r["report"] == kind and all(r[name] == fact for name, fact in facts.items())]

    def until(self, happened: Callable[[], Any]) -> Any:
        """Wait until something has happened."""
        end = time.monotonic() + PATIENCE
        while not (result := happened()):
            assert self.process.poll() is None, self.text
            assert time.monotonic() < end, self.text
            time.sleep(0.2)
        return result


def slurm(conf: Path, *command: str) -> str:
    """What a command of Slurm answers."""
    environment = {**os.environ, "SLURM_CONF": str(conf)}
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=60).stdout


def wait_for(happened: Callable[[], Any], otherwise: Callable[[], str]) -> None:
    """Wait until something has happened; say otherwise what is wrong."""
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, otherwise()
        time.sleep(0.2)


def job_of(conf: Path, folder: Path, run: str) -> tuple[str, str]:
    """The number of the living job that trains a run, and its state."""
    lines = slurm(conf, "squeue", "--array", "--noheader", "--format=%j|%i|%T").splitlines()
    names = {line.split("|")[0]: line for line in lines}
    from unroll.sweep.launchers._slurm_submission import known

    for submission in known(folder / "slurm"):
        if (run,) in submission.fleets and submission.name in names:
            number = submission.fleets.index((run,))
            own = [line.split("|")[1:] for line in lines if line.startswith(submission.name)]
            for id, state in own:
                if len(submission.fleets) == 1 or id.endswith(f"_{number}"):
                    return id, state
    return "", ""


@pytest.mark.slow
def test_cancelled_out_of_time_and_left_by_its_driver_a_sweep_ends_with_the_table_of_local(
    conf: Path, tmp_path: Path
) -> None:
    text, folder = tmp_path / "text.txt", tmp_path / "sweep"
    text.write_text("abcdefgh " * 100)
    batches = batches_of_a_minute(text, tmp_path / "pace")
    first = Driver(conf, folder, batches)
    first.until(lambda: first.heard("Planned"))
    plan = json.loads((folder / "plan.json").read_text())
    ((fleet, run),) = [(f["name"], f["runs"][0]) for f in plan["fleets"] if f["runs"][0].endswith("11")]
    assert len(plan["fleets"]) == SHORT + 1

    # All twelve are in one array. The long one is cancelled when it has saved: it is lost, and tried again from there.
    first.until(lambda: any(report["batch"] > 30 for report in first.heard("Progressed", fleet=fleet)))
    (submission,) = [path for path in (folder / "slurm").iterdir() if len(list(path.glob("*_submitted.pkl"))) == 12]
    slurm(conf, "scancel", job_of(conf, folder, run)[0])
    (lost,) = first.until(lambda: first.heard("Lost"))
    assert lost["fleet"] == fleet
    assert "CANCELLED" in lost["reason"]
    assert first.until(lambda: first.heard("Begun", fleet=fleet)[1:])[0]["batch"] > 25

    # Its driver is killed. Without one, it is warned of its time limit, saves, and is in the queue again.
    first.process.kill()
    first.process.wait()
    job, state = job_of(conf, folder, run)
    assert state == "RUNNING"
    slurm(conf, "scontrol", "update", f"JobId={job}", "TimeLimit=1")
    wait_for(lambda: job_of(conf, folder, run) == (job, "PENDING"), lambda: slurm(conf, "squeue", "--array"))
    saved = json.loads((folder / "runs" / run / "status.json").read_text())
    assert saved["state"] == "interrupted"
    slurm(conf, "scontrol", "update", f"JobId={job}", "TimeLimit=60")

    # The driver comes back: it follows the job that is there, and starts none. Interrupted, it says how to come back.
    second = Driver(conf, folder, batches)
    second.until(lambda: "In Slurm's queue from before: 1 job" in second.text)
    second.process.send_signal(signal.SIGINT)
    assert second.process.wait(60) != 0
    assert f"scancel {job.partition('_')[0]}" in second.text
    assert job_of(conf, folder, run)[0] == job

    third = Driver(conf, folder, batches)
    wait_for(lambda: third.process.poll() is not None, lambda: third.text)
    assert third.process.returncode == 0, third.text
    begun = third.heard("Begun", fleet=fleet)
    assert begun[-1]["batch"] >= saved["batch"] > 25
    assert third.heard("RunEnded", fleet=fleet)
    assert not third.heard("Lost")
    assert not slurm(conf, "squeue", "--noheader").strip()

    trained(asked(str(text), batches), tmp_path / "local", "local")
    assert (folder / "table.csv").read_bytes() == (tmp_path / "local" / "table.csv").read_bytes()
    assert sweeping.result(folder) == sweeping.result(tmp_path / "local")
    assert not submission.exists()
    assert not (tmp_path / "cache" / "slurm").exists()
