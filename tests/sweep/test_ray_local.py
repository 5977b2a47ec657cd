"""A Ray of this machine alone: interrupted, out of memory, and a fleet that kills every worker."""

from __future__ import annotations

import os
import random
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sweeping
from ray_clusters import Driver
from sweeping import small

from unroll import Corpus
from unroll.corpus.open_corpora import Library
from unroll.runs.folder import RunFolder
from unroll.sweep.launchers import Begun, Failed, Job, Lost, TooLarge, ray
from unroll.sweep.launchers._ray_team import IN_VAIN

# Ray closes not all of its own files.
OF_RAY = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::FutureWarning")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings(*OF_RAY)]
LONG = 10_000_000  # batches: it never ends by itself


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A small corpus."""
    path = tmp_path / "text.txt"
    path.write_text("abcdefgh " + "".join(random.Random(0).choices("abcdefgh ", k=600)))
    return path


def job(text: Path, seeds: list[int]) -> Job:
    """A fleet that saves nothing and does not end."""
    asked = small(corpus=str(text), seed=seeds, batches=LONG, kernel="stacked")
    described = Corpus.open(str(text)).described_in
    names = tuple(f"run{e.seed}" for e in asked)
    outs = tuple(str(text.parent / "runs" / name) for name in names)
    return Job(str(seeds), names, tuple(described(e) for e in asked), outs, LONG)


@pytest.fixture
def short_of_memory() -> Iterator[None]:
    """A Ray that ends every worker that takes memory."""
    import ray as rays

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    limits = {"memory_usage_threshold": 0.01, "memory_monitor_refresh_ms": 300, "min_memory_free_bytes": -1}
    quiet = {"include_dashboard": False, "log_to_driver": False, "configure_logging": False}
    rays.init(address="local", num_cpus=2, _system_config=limits, **quiet)
    yield
    rays.shutdown()


@pytest.mark.usefixtures("short_of_memory")
def test_a_fleet_that_ray_ends_for_its_memory_is_to_be_split_and_a_run_alone_fails(text: Path) -> None:
    reports = list(ray.run([job(text, [0, 1]), job(text, [2])], Library()))
    assert [(r.fleet, "memory" in r.reason) for r in reports if isinstance(r, TooLarge)] == [("[0, 1]", True)]
    (failed,) = (r for r in reports if isinstance(r, Failed))
    assert failed.runs == ("run2",)
    assert failed.reason.startswith("There is not enough memory for this run alone (Ray ended its worker")
    assert not [r for r in reports if isinstance(r, Lost)]


def test_a_fleet_that_loses_every_worker_and_saves_nothing_fails_in_the_end(text: Path) -> None:
    reports = []
    for report in ray.run([job(text, [0])], Library()):
        reports.append(report)
        if isinstance(report, Begun):
            os.kill(int(re.search(r"process (\d+)", report.where)[1]), signal.SIGKILL)  # type: ignore[index]
    assert len([r for r in reports if isinstance(r, Lost)]) == IN_VAIN
    (failed,) = (r for r in reports if isinstance(r, Failed))
    assert failed.runs == ("run0",)
    assert failed.reason.startswith("5 workers in a row were lost while they trained them, and none had saved")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_sweep_is_saved_and_goes_on_without_ray_to_the_same_table(
    text: Path, tmp_path: Path, number: signal.Signals
) -> None:
    assert Driver(tmp_path / "local", text, "local").end() == 0
    first = Driver(tmp_path / "sweep", text, "ray")
    first.until(lambda: first.of("RunEnded") and len(first.of("Begun")) > 2)
    first.process.send_signal(number)
    assert first.end() == 128 + number
    assert first.of("raised")[0]["error"] == "Interrupted"
    assert first.said() == ""
    states = [RunFolder(path).status["state"] for path in (tmp_path / "sweep" / "runs").iterdir()]
    assert set(states) <= {"finished", "interrupted", "new"}
    assert "interrupted" in states
    done = sweeping.ended(tmp_path / "sweep")
    stamps = sweeping.stamps(tmp_path / "sweep", done)
    second = Driver(tmp_path / "sweep", text, "local")
    assert second.end() == 0
    assert max(begun["batch"] for begun in second.of("Begun")) > 0
    assert sweeping.stamps(tmp_path / "sweep", done) == stamps
    tables = [(tmp_path / name / "table.csv").read_bytes() for name in ("local", "sweep")]
    assert tables[0] == tables[1]
    if sys.platform == "linux":
        assert not [pid for pid in os.listdir("/proc") if pid.isdecimal() and _is_of(pid, str(first.process.pid))]


def _is_of(pid: str, driver: str) -> bool:
    """Whether a process was started by the driver, and is still there."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] == driver
    except OSError:
        return False
