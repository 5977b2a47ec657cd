"""A Ray cluster of simulated nodes on this machine, a driver in a process of its own, and what befalls both."""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "5")  # for a head that does not come back
HEALTH = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 3,
}
PATIENCE = 240.0  # seconds: a busy machine is no fault of the code under test
TESTS = Path(__file__).parent


def tree(pid: int) -> list[int]:
    """A process and all that it started."""
    import psutil

    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return [pid, *(child.pid for child in process.children(recursive=True))]
    return []


def signal_all(pids: list[int], number: int) -> None:
    """Send a signal to each that is there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


class Node:
    """A simulated node: a raylet and its workers."""

    def __init__(self, raylet: int, remove: Callable[[], object]) -> None:
        self.raylet, self._remove = raylet, remove

    @property
    def processes(self) -> list[int]:
        """All its processes."""
        return tree(self.raylet)

    def kill(self) -> None:
        """Let it vanish, as when its power goes: nothing of it says goodbye."""
        signal_all(self.processes, signal.SIGKILL)
        with suppress(Exception):
            self._remove()


class Cluster:
    """A head without processors, and nodes with one each; `private` is a folder that no node sees."""

    def __init__(self, nodes: int = 3, private: Path | None = None) -> None:
        from ray.cluster_utils import Cluster as Rays

        self.private = private
        self.rays = Rays(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "include_dashboard": False, "_system_config": HEALTH},
        )
        self.address: str = self.rays.address
        self.head: int = self.rays.head_node.all_processes["raylet"][0].process.pid
        self.nodes: list[Node] = []
        self.started: list[subprocess.Popen[bytes]] = []
        for _ in range(nodes):
            self.add()

    def add(self) -> Node:
        """One more node."""
        node = self._apart() if self.private else self._beside()
        self.nodes.append(node)
        return node

    def _beside(self) -> Node:
        one = self.rays.add_node(num_cpus=1)
        raylet = one.all_processes["raylet"][0].process.pid
        return Node(raylet, lambda: self.rays.remove_node(one, allow_graceful=False))

    def _apart(self) -> Node:
        """A node in a mount namespace of its own, in which the folder is empty."""
        start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--address", self.address, "--num-cpus", "1"]
        start += ["--block", "--object-store-memory", "100000000", "--disable-usage-stats"]
        script = f'mount -t tmpfs none "{self.private}" && exec "$@"'
        enter = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
        known = set(self._raylets())
        process = subprocess.Popen(
            [*enter, "sh", "-c", script, "sh", *start], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.started.append(process)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            mine = [pid for pid in tree(process.pid) if pid in self._raylets() and pid not in known]
            if mine:
                return Node(mine[0], process.kill)
            assert process.poll() is None, "a node did not start"
            time.sleep(0.1)
        raise AssertionError("a node did not start")

    def _raylets(self) -> list[int]:
        import psutil

        return [p.pid for p in psutil.process_iter(["name"]) if p.info["name"] == "raylet"]

    def node_of(self, where: str) -> Node:
        """The node on which a worker trains, by what its report says of it."""
        import psutil

        worker = int(re.search(r"process (\d+)", where)[1])  # type: ignore[index]
        above = {worker, *(parent.pid for parent in psutil.Process(worker).parents())}
        return next(node for node in self.nodes if node.raylet in above)

    def end(self) -> None:
        """End everything that was started."""
        for node in self.nodes:
            signal_all(node.processes, signal.SIGCONT)
            signal_all(node.processes, signal.SIGKILL)
        for process in self.started:
            signal_all(tree(process.pid), signal.SIGKILL)
            process.wait()
        with suppress(Exception):
            self.rays.shutdown()


@contextmanager
def cluster(nodes: int = 3, private: Path | None = None) -> Iterator[Cluster]:
    """A cluster, and its end."""
    started = Cluster(nodes, private)
    try:
        yield started
    finally:
        started.end()


class Driver:
    """`ray_driver.py` in a process of its own, and what it says."""

    def __init__(self, folder: Path, text: Path, launcher: str) -> None:
        source = str(TESTS.parent / "src")
        path = os.pathsep.join([source, str(TESTS), os.environ.get("PYTHONPATH", "")])
        self.errors = folder.with_suffix(".stderr")
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(TESTS / "ray_driver.py"), str(folder), str(text), launcher],
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            )
        self.reports: list[dict[str, Any]] = []
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def hear(self, seconds: float) -> bool:
        """Take what it says within a time; False when it has ended."""
        with suppress(queue.Empty):
            line = self._lines.get(timeout=seconds)
            if line is None:
                return False
            assert line.startswith(b"{"), f"The driver printed {line!r}"
            self.reports.append(json.loads(line))
        return True

    def until(self, holds: Callable[[], Any]) -> Any:
        """Listen until something holds, and give it."""
        until = time.monotonic() + PATIENCE
        while not (found := holds()):
            assert self.hear(0.02) or holds(), f"The driver ended early: {self.reports[-3:]} {self.said()}"
            assert time.monotonic() < until, f"Waited too long: {self.reports[-3:]} {self.said()}"
        return found

    def end(self) -> int:
        """Listen to the end; its exit code."""
        until = time.monotonic() + PATIENCE
        while self.hear(0.2):
            assert time.monotonic() < until, f"It does not end: {self.reports[-3:]} {self.said()}"
        return self.process.wait(PATIENCE)

    def said(self) -> str:
        """What it wrote on standard error."""
        return self.errors.read_text(errors="replace")[-2000:]

    def of(self, kind: str, fleet: str | None = None) -> list[dict[str, Any]]:
        """Its reports of a kind, of all fleets or one."""
        return [r for r in self.reports if r["kind"] == kind and (fleet is None or r["fleet"] == fleet)]

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()


def remove(folder: Path) -> None:
    """Remove a folder of a test."""
    shutil.rmtree(folder, ignore_errors=True)
