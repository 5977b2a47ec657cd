"""What a sweep of many tiny fleets costs through Ray and through processes, and what travels. Writes
results/bench/scaling_out.json.

    python benchmarks/scaling_out.py [--runs 1000] [--launchers ray,processes,local]

Each run is a fleet of its own, of ten batches: nothing but the overhead of a fleet is measured. The driver is a process
of its own, whose time and largest memory are taken from the system when it ends.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import platform
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RECORD = Path(__file__).parent.parent / "results" / "bench" / "scaling_out.json"
BATCHES = 10
DRIVER = """
import json, resource, sys, time
from pathlib import Path
sys.path.insert(0, {here!r})
import scaling_out
print(json.dumps(scaling_out.drive(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))), flush=True)
"""


def experiments(text: Path, runs: int) -> list[Any]:
    """Runs that differ in their seeds alone."""
    from unroll import Corpus, grid

    shape = {"k1": 4, "k2": 8, "hidden": 8, "dense": 16, "rows": 4, "batches": BATCHES, "test_tokens": 60}
    asked = grid(corpus=str(text), seed=range(runs), device="cpu", threads=1, kernel="stacked", evaluations=4, **shape)
    described = Corpus.open(str(text)).described_in
    return [described(one) for one in asked]


def drive(folder: Path, launcher: str, runs: int) -> dict[str, Any]:
    """Carry out the sweep in this process; what it took."""
    from unroll.corpus.open_corpora import Library
    from unroll.sweep.folder import SweepFolder
    from unroll.sweep.sweep import sweep

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, first, counted = time.perf_counter(), 0.0, dict[str, int]()
    for report in sweep(
        SweepFolder(folder / launcher), Library(), experiments(folder / "text.txt", runs), 1, None, launcher
    ):
        kind = type(report).__name__
        counted[kind] = counted.get(kind, 0) + 1
        first = first or (time.perf_counter() - began if kind == "Begun" else 0.0)
    wall = time.perf_counter() - began
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "runs": runs,
        "ended": counted.get("RunEnded", 0),
        "seconds": round(wall, 1),
        "seconds_to_the_first_fleet": round(first, 1),
        "milliseconds_a_run": round(1000 * (wall - first) / runs, 1),
        "driver_processor_seconds": round(used.ru_utime + used.ru_stime, 1),
        "driver_largest_MB": round(used.ru_maxrss / 1024),
        "driver_MB_at_the_start": round(before / 1024),
        "reports": counted,
    }


def through(folder: Path, launcher: str, runs: int) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, "-c", DRIVER.format(here=str(Path(__file__).parent)), str(folder), launcher, str(runs)]
    told = subprocess.run(command, stdout=subprocess.PIPE, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    found: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    return found


def travels(folder: Path, shared: bool, hidden: int) -> dict[str, Any]:
    """What the worker of one run says to the driver: messages and bytes, in all and for each save."""
    from dataclasses import replace

    from unroll.corpus.open_corpora import Library
    from unroll.sweep.folder import ATTEMPTS
    from unroll.sweep.launchers import Job, _ray_worker
    from unroll.sweep.launchers._ray_parcels import Copies, Errand, Shared
    from unroll.training.signals import Watch

    place = folder / f"travels-{shared}-{hidden}"
    (one,) = experiments(folder / "text.txt", 1)
    one = replace(one, hidden=hidden, dense=2 * hidden)
    outs = (str(place / "runs" / "one"),)
    beside = None
    if shared:
        attempts = place / ATTEMPTS
        attempts.mkdir(parents=True)
        beside = Shared(str(attempts), "")
    errand = Errand("one", Job("1", ("one",), (one,), outs, 5), {}, beside, ({},), 1.0)
    messages = [pickle.dumps(message) for message in _ray_worker.attempt(errand, Library(), Watch())]
    whole = [pickle.loads(message) for message in messages]
    saves = [
        len(pickle.dumps(thing))
        for message in whole
        for thing in message
        if isinstance(thing, Copies) and any(parcel.is_checkpoint for parcel in thing.parcels)
    ]
    return {
        "shared_folder": shared,
        "hidden": hidden,
        "messages": len(messages) + 1,  # and one in which it says where it is
        "bytes": sum(map(len, messages)),
        "bytes_of_a_save": max(saves, default=0),
    }


def recovery(folder: Path, times: int) -> list[float]:
    """Seconds from SIGKILL of a worker to its fleet's going on, on a Ray of this machine."""
    from dataclasses import replace

    from unroll.corpus.open_corpora import Library
    from unroll.sweep.launchers import Begun, Job, Lost, Progressed, load

    (one,) = experiments(folder / "text.txt", 1)
    job = Job("1", ("one",), (replace(one, batches=10_000_000),), (str(folder / "recovery" / "one"),), 200)
    found: list[float] = []
    killed, where = 0.0, ""
    reports = load("ray").run([job], Library())
    for report in reports:
        if isinstance(report, Begun):
            where = report.where
            if killed:
                found.append(round(time.perf_counter() - killed, 2))
                killed = 0.0
            if len(found) == times:
                break
        elif isinstance(report, Progressed) and report.batch > 200 and not killed:
            killed = time.perf_counter()
            os.kill(int(where.split()[1]), signal.SIGKILL)
        elif isinstance(report, Lost):
            continue
    reports.close()  # type: ignore[attr-defined]
    return found


def plan(record: dict[str, Any]) -> dict[str, Any]:
    """What 10,000 runs of hidden 512 on 100 GPUs would ask of the driver, in fleets of 16, by what was measured."""
    from unroll.sweep.launchers._ray_team import LEAST, MESSAGES
    from unroll.training.bookkeeping import SAVE_SECONDS

    runs, gpus, beside = 10_000, 100, 16
    ray = record["launchers"]["ray"]
    small, large = (next(t for t in record["travels"] if (t["shared_folder"], t["hidden"]) == k) for k in PLANNED)
    a_fleet = ray["driver_processor_seconds"] / ray["runs"]
    a_message = a_fleet / small["messages"]
    saves = gpus * (beside + 1) / SAVE_SECONDS
    words = gpus / max(LEAST, gpus / MESSAGES)
    saved = gpus * beside * large["bytes_of_a_save"] / 1e6  # MB, once by all
    return {
        "runs": runs,
        "gpus": gpus,
        "runs_a_fleet": beside,
        "fleets": runs // beside,
        "driver_ms_a_fleet": round(1000 * a_fleet, 1),
        "driver_ms_a_message": round(1000 * a_message, 2),
        "messages_a_second_of_progress": round(words, 1),
        "messages_a_second_of_saves": round(saves, 1),
        "driver_share_of_a_core": round(a_message * (saves + words), 2),
        "MB_a_second_through_the_driver_with_a_shared_folder": round(saves * small["bytes_of_a_save"] / 1e6, 2),
        "MB_a_second_to_a_disk_at_a_save_every_10_s": round(
            gpus * beside * large["bytes_of_a_save"] / SAVE_SECONDS / 1e6
        ),
        "MB_a_second_at_a_save_every_10_minutes": round(saved / 600),
        "driver_seconds_to_begin_and_end_all_fleets": round(a_fleet * runs / beside, 1),
    }


PLANNED = ((True, 512), (False, 512))


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--launchers", default="ray,processes,local")
    parser.add_argument("--out", type=Path, default=RECORD)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "text.txt").write_text("abcdefgh, to be or not to be. " * 40)
        record: dict[str, Any] = {
            "machine": f"{platform.machine()}, {platform.system()}, {os.cpu_count()} cores",
            "python": platform.python_version(),
            "load_before": [round(one, 1) for one in os.getloadavg()],
            "launchers": {},
        }
        for launcher in chosen.launchers.split(","):
            record["launchers"][launcher] = through(folder, launcher, chosen.runs)
            print(launcher, record["launchers"][launcher], flush=True)
        record["travels"] = [travels(folder, shared, hidden) for shared in (True, False) for hidden in (8, 128, 512)]
        record["recovery_s"] = recovery(folder, 5)
        record["plan"] = plan(record)
        record["load_after"] = [round(one, 1) for one in os.getloadavg()]
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps({key: record[key] for key in ("travels", "recovery_s", "plan")}, indent=1))


if __name__ == "__main__":
    main()
