"""A sweep on a Ray cluster of three nodes, to which everything happens, ends with the table of `local`, byte for byte.

Runs that have ended are not touched again, the fleet that was lost goes on at a batch above 0, and nothing is trained
twice. Each case once with a folder that all nodes see, and once where none sees it. UNROLL_TEST_ROUNDS says how often
each is tried: once unless it is set.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sweeping
from ray_clusters import Cluster, Driver, Node, cluster, remove, signal_all, tree

from unroll.sweep.folder import SweepFolder

# Ray closes not all of its own files.
OF_RAY = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings(*OF_RAY)]
ROUNDS = range(int(os.environ.get("UNROLL_TEST_ROUNDS", "1")))
each_round = pytest.mark.parametrize("number", ROUNDS)
each_disk = pytest.mark.parametrize("seen", [True, False], ids=["shared", "private"])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text and a sweep of `local`."""
    folder = tmp_path_factory.mktemp("sweeps")
    (folder / "text.txt").write_text("abcdefgh " + "".join(random.Random(0).choices("abcdefgh ", k=600)))
    assert Driver(folder / "local", folder / "text.txt", "local").end() == 0
    return folder


@pytest.fixture(scope="module")
def started() -> Iterator[dict[bool, Cluster]]:
    """The cluster that is there."""
    there: dict[bool, Cluster] = {}
    yield there
    for one in there.values():
        one.end()


@pytest.fixture
def nodes(seen: bool, place: Path, started: dict[bool, Cluster]) -> Cluster:
    """The cluster of one kind; the other kind's is ended first, since the machine is small."""
    if seen not in started:
        for other in started.values():
            other.end()
        started.clear()
        started[seen] = Cluster(3, private=None if seen else place)
    return started[seen]


class Sweep:
    """One sweep, what it was when something befell it, and what it must be at the end."""

    def __init__(self, place: Path, nodes: Cluster, number: int) -> None:
        self.place, self.nodes = place, nodes
        self.folder = place / f"sweep-{number}-{time.monotonic_ns()}"
        self.drivers: list[Driver] = []
        self.stamps: dict[tuple[str, str], tuple[int, int]] = {}
        self.saved: dict[str, int] = {}
        self.done: set[str] = set()

    def drive(self, nodes: Cluster | None = None) -> Driver:
        """Begin, or go on."""
        address = (nodes or self.nodes).address
        self.drivers.append(Driver(self.folder, self.place / "text.txt", f"ray,address={address}"))
        return self.drivers[-1]

    def checkpoint(self, fleet: str) -> int:
        """The newest batch of which every run of a fleet that goes on has a checkpoint in its own folder."""
        folder = SweepFolder(self.folder)
        plan = folder.plan
        assert plan
        runs = next(one.runs for one in plan.fleets if one.name == fleet)
        going = [folder.run(name) for name in runs if not folder.run(name).has_ended()]
        return max(set.intersection(*(set(run.checkpoints()) for run in going)), default=0) if going else 0

    def training(self) -> dict[str, Any] | None:
        """A fleet that trains and has a checkpoint, after another one has ended: its first report."""
        driver = self.drivers[-1]
        if not driver.of("RunEnded"):
            return None
        for begun in reversed(driver.of("Begun")):
            lost = driver.of("Lost", begun["fleet"])
            if not lost and 0 < self.checkpoint(begun["fleet"]) < 180:
                return begun
        return None

    def note(self) -> None:
        """Remember what must not change, and what must not be lost."""
        self.done = sweeping.ended(self.folder)
        self.stamps = sweeping.stamps(self.folder, self.done)
        plan = SweepFolder(self.folder).plan
        assert plan
        self.saved = {fleet.name: self.checkpoint(fleet.name) for fleet in plan.fleets}

    def check(self, fleet: str) -> None:
        """It ends like `local`; what was lost went on from what was saved, and nothing else was trained again."""
        driver = self.drivers[-1]
        assert driver.end() == 0, (driver.reports[-3:], driver.said())
        assert (self.folder / "table.csv").read_bytes() == (self.place / "local" / "table.csv").read_bytes()
        ours, theirs = sweeping.result(self.folder), sweeping.result(self.place / "local")
        assert ours.keys() == theirs.keys()
        differ = {name for name in theirs if ours[name] != theirs[name]}
        assert differ <= {"plan.json", "fleets.json"}, differ  # the first says why in other words
        assert {key: sweeping.stamps(self.folder, {key[0]}).get(key) for key in self.stamps} == self.stamps
        again = driver.of("Begun", fleet)[-1]
        assert again["batch"] >= self.saved[fleet] > 0
        ends = [end["run"] for each in self.drivers for end in each.of("RunEnded")]
        assert len(ends) == len(set(ends)), "A run ended twice."
        if len(self.drivers) == 1:
            assert len(ends) == 24
        assert driver.said() == ""
        assert not list(self.folder.glob("runs/.*"))
        remove(self.folder)


def once(place: Path, nodes: Cluster, number: int, befalls: Callable[[Sweep, Driver, Node, str], None]) -> None:
    """A sweep, in which something befalls a fleet that has saved."""
    sweep = Sweep(place, nodes, number)
    driver = sweep.drive()
    begun = driver.until(sweep.training)
    node = nodes.node_of(begun["where"])
    befalls(sweep, driver, node, begun["where"])
    sweep.check(begun["fleet"])


@each_disk
@each_round
def test_a_node_that_vanishes_costs_what_was_not_saved(place: Path, nodes: Cluster, number: int) -> None:
    def befalls(sweep: Sweep, driver: Driver, node: Node, where: str) -> None:
        node.kill()
        sweep.note()
        nodes.nodes.remove(node)
        nodes.add()
        driver.until(lambda: driver.of("Lost"))

    once(place, nodes, number, befalls)


@each_disk
@each_round
def test_a_worker_that_is_killed_costs_what_was_not_saved(place: Path, nodes: Cluster, number: int) -> None:
    def befalls(sweep: Sweep, driver: Driver, node: Node, where: str) -> None:
        signal_all([int(where.split()[1])], signal.SIGKILL)
        sweep.note()
        driver.until(lambda: driver.of("Lost"))

    once(place, nodes, number, befalls)


@each_disk
@each_round
def test_a_driver_that_is_killed_takes_its_workers_with_it_and_the_next_one_goes_on(
    place: Path, nodes: Cluster, number: int
) -> None:
    def befalls(sweep: Sweep, driver: Driver, node: Node, where: str) -> None:
        workers = [pid for each in nodes.nodes for pid in each.processes if _trains(pid)]
        driver.kill()
        sweep.note()
        _gone(workers)
        sweep.drive()

    once(place, nodes, number, befalls)


@each_disk
@each_round
def test_a_node_that_was_stopped_until_it_was_declared_dead_changes_nothing_when_it_is_let_go(
    place: Path, nodes: Cluster, number: int
) -> None:
    def befalls(sweep: Sweep, driver: Driver, node: Node, where: str) -> None:
        stopped = node.processes
        signal_all(stopped, signal.SIGSTOP)
        sweep.note()
        lost = driver.until(lambda: driver.of("Lost"))[0]["fleet"]
        driver.until(lambda: len(driver.of("Begun", lost)) > 1)
        signal_all(stopped, signal.SIGCONT)  # in the midst of the work of the one that took over
        nodes.nodes.remove(node)
        nodes.add()
        _gone(stopped)

    once(place, nodes, number, befalls)


@each_disk
@each_round
def test_a_head_that_is_killed_ends_the_sweep_and_another_cluster_goes_on_with_it(
    place: Path, seen: bool, started: dict[bool, Cluster], number: int
) -> None:
    for other in started.values():
        other.end()
    started.clear()
    private = None if seen else place
    with cluster(3, private) as first:
        sweep = Sweep(place, first, number)
        driver = sweep.drive()
        begun = driver.until(sweep.training)
        for process in [*tree(first.head), *_services(first)]:
            signal_all([process], signal.SIGKILL)
        for node in first.nodes:
            node.kill()
        code = _end_or_kill(driver)
        assert code != 0
        sweep.note()
    with cluster(3, private) as second:
        sweep.drive(second)
        sweep.drivers[-1].errors.write_text("")  # what Ray itself says of its own end
        sweep.check(begun["fleet"])


def _services(nodes: Cluster) -> list[int]:
    """All processes of the head."""
    found = []
    for infos in nodes.rays.head_node.all_processes.values():
        found += [pid for info in infos for pid in tree(info.process.pid)]
    return found


def _end_or_kill(driver: Driver, seconds: float = 60.0) -> int:
    """The exit code of a driver that has lost its cluster; one that waits for it is killed."""
    until = time.monotonic() + seconds
    while driver.hear(0.2) and time.monotonic() < until:
        pass
    if driver.process.poll() is None:
        driver.kill()
    return driver.process.wait()


def _trains(pid: int) -> bool:
    try:
        return "train" in Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return False


def _gone(pids: list[int], seconds: float = 60.0) -> None:
    """Wait until these processes have ended."""
    until = time.monotonic() + seconds
    while left := [pid for pid in pids if _runs(pid)]:
        assert time.monotonic() < until, f"Still there: {left}"
        time.sleep(0.1)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
