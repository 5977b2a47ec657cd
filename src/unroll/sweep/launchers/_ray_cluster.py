"""The Ray cluster behind a sweep: connecting to it, what its nodes are, and what a fleet takes of them.

Ray says nothing on this program's output, and nothing to its makers. Where no cluster is named, one of this machine
alone is started, and ended with the sweep.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import math
import os
import secrets
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from unroll.base import atomic_files, untrusted
from unroll.base.errors import ConfigurationError, RunError, UnrollError
from unroll.base.wording import in_words
from unroll.corpus.corpus import Corpus
from unroll.sweep.folder import ATTEMPTS
from unroll.sweep.launchers import Job, _ray_worker
from unroll.sweep.launchers import _ray_parcels as parcels
from unroll.sweep.launchers._ray_parcels import Shared
from unroll.sweep.launchers.processes import cores
from unroll.training.signals import SIGNALS

SILENT = {
    "RAY_USAGE_STATS_ENABLED": "0",  # telemetry
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
}
PROBED = 60.0  # seconds that a node has to say what it is
REFRESH = 1.0  # seconds between two looks at the nodes
CONTEXT = 1 << 30  # bytes that a process takes on a GPU beside its tensors
MOST_ON_A_GPU = 8
_connected: list[Cluster] = []  # the cluster that this process is connected to, by this file


def connect(address: str) -> Cluster:
    """The cluster at an address, or one of this machine alone, newly started; it stays until somebody leaves it."""
    for name, value in SILENT.items():
        os.environ.setdefault(name, value)
    ray = importlib.import_module("ray")
    if _connected and ray.is_initialized():
        return _connected[0]
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    if ray.is_initialized():  # by the program, which leaves it as well
        return Cluster(ray, started=False)
    if "://" in address:
        raise ConfigurationError(
            f"--address must be auto or HOST:PORT. Got {address!r}. Start the sweep on a machine of the cluster."
        )
    own: dict[str, Any] = {"address": address}
    if not address:
        own = {"address": "local", "num_cpus": cores(), "include_dashboard": False}
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        ray.init(**own, log_to_driver=False, configure_logging=False, namespace="unroll")
    except (ConnectionError, ValueError, RuntimeError, OSError, ray.exceptions.RayError) as error:
        said = str(error).strip().split("\n")[0]
        raise UnrollError(
            f"There is no Ray cluster to train on{f' at {address}' if address else ''}: {said} "
            "Start one (`ray start --head`), or leave --address out for one of this machine alone."
        ) from None
    finally:
        if threading.current_thread() is threading.main_thread():  # Ray takes SIGTERM for itself
            for number, handler in handlers.items():
                signal.signal(number, handler)
    _hush()
    _connected[:] = [Cluster(ray, started=not address)]
    return _connected[0]


def leave() -> None:
    """End the Ray that was started here, or leave the cluster; one that the program itself connected to stays."""
    if _connected:
        ray = _connected.pop().ray
        with suppress(Exception):  # it may be gone
            ray.shutdown()


def _hush() -> None:
    """Let Ray print nothing: it writes of every worker that dies, on standard output. What matters is a report."""
    worker: Any = importlib.import_module("ray._private.worker")
    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_, **__: None


class Cluster:
    """The nodes, as they are seen from the driver."""

    def __init__(self, ray: Any, started: bool) -> None:
        self.ray, self.started = ray, started  # by this process, on this machine
        self.unfit: set[str] = set()
        self._alive: dict[str, Mapping[str, Any]] = {}
        self._looked = -math.inf
        self._corpora: dict[tuple[Any, ...], Any] = {}
        self.facts: dict[str, dict[str, Any]] = {}  # what each node says of itself

    def alive(self, anew: bool = False) -> dict[str, Mapping[str, Any]]:
        """The nodes that are alive, by Ray's names for them."""
        if anew or time.monotonic() - self._looked > REFRESH:
            nodes = self.ray.nodes()
            self._alive = {node["NodeID"]: node for node in nodes if node["Alive"]}
            self._looked = time.monotonic()
        return self._alive

    def working(self) -> dict[str, dict[str, float]]:
        """What the nodes have that may train: the others have no processor to give."""
        found = {name: dict(node["Resources"]) for name, node in self.alive().items() if name not in self.unfit}
        return {name: has for name, has in found.items() if has.get("CPU", 0) >= 1}

    # --- what a fleet takes ---------------------------------------------------------------------------------------

    def whole_node(self) -> tuple[dict[str, Any], int]:
        """What to ask Ray for to compute as if alone on a node, and how many threads that are."""
        nodes = list(self.working().values())
        with_gpu = [has for has in nodes if has.get("GPU", 0) >= 1]
        processors = int(min((has["CPU"] for has in with_gpu or nodes), default=1))
        return {"num_cpus": processors, **({"num_gpus": 1} if with_gpu else {})}, processors

    def taken_by(self, job: Job) -> dict[str, float]:
        """What a fleet takes of a node, in Ray's words."""
        threads = job.experiments[0].threads or 1
        nodes = list(self.working().values())
        if job.experiments[0].device.startswith("cuda"):
            shares = [has["CPU"] // has["GPU"] for has in nodes if has.get("GPU", 0) >= 1]
            processors = max(1, min([threads, *map(int, shares)]))
            memory = min((facts["gpu"] for facts in self.facts.values() if facts["gpu"]), default=0)
            return {"num_cpus": processors, "num_gpus": gpu_share(job.bytes, memory)}
        most = int(max((has["CPU"] for has in nodes), default=threads))
        return {"num_cpus": max(1, min(threads, most)), "num_gpus": 0}

    def room(self, taken: Mapping[str, float]) -> int:
        """How many fleets that take this much can train at once."""
        return sum(_fits(has, taken) for has in self.working().values())

    def constraint(self) -> dict[str, Any]:
        """What keeps tasks away from nodes that must not train."""
        return {"label_selector": {"ray.io/node-id": f"!in({','.join(sorted(self.unfit))})"}} if self.unfit else {}

    # --- what it is -----------------------------------------------------------------------------------------------

    def require_alike(self) -> None:
        """Refuse nodes with other versions; what they are is known afterwards."""
        if self.started:
            return
        new = [name for name in self.working() if name not in self.facts]
        said = self._asked(new, _probe(), gpu=True)
        refuse_differences({f"{self.host(name)} ({name[:8]})": facts for name, facts in said.items()})
        self.facts |= said

    def all_read(self, shared: Shared) -> bool:
        """Whether all nodes read what the driver wrote in a folder."""
        if self.started:
            return True
        nodes = list(self.working())
        said = self._asked(nodes, _ray_worker.reads, shared.folder, shared.nonce)
        return len(said) == len(nodes) and all(said.values())

    def _asked(self, nodes: Sequence[str], function: Any, *arguments: Any, gpu: bool = False) -> dict[str, Any]:
        """What a function gives on each of these nodes; one that is gone, or too busy to answer, is left out."""
        asked = {}
        for name in nodes:
            part = 0.001 if gpu and self.working().get(name, {}).get("GPU", 0) >= 1 else 0
            task = self.ray.remote(num_cpus=0, num_gpus=part, max_retries=0, scheduling_strategy=on_node(name))
            asked[name] = task(function).remote(*arguments)
        ready, _ = self.ray.wait(list(asked.values()), num_returns=len(asked), timeout=PROBED) if asked else ([], [])
        said = {}
        for name, answer in asked.items():
            if answer in ready:
                with suppress(self.ray.exceptions.RayError):
                    said[name] = self.ray.get(answer)
        return said

    def host(self, name: str) -> str:
        """What the machine of a node is called."""
        return str(self.alive().get(name, {}).get("NodeManagerHostname", name))

    def notes(self, shared: bool) -> list[str]:
        """What should be known of these nodes."""
        notes = []
        hosts: dict[str, set[str]] = {}
        for name, facts in self.facts.items():
            hosts.setdefault(facts["processor"], set()).add(self.host(name))
        if len(hosts) > 1:
            kinds = "; ".join(f"{kind} ({', '.join(sorted(names))})" for kind, names in hosts.items())
            notes.append(
                f"The nodes have different processors: {kinds}. The last bits of a run depend on where it trains; "
                "times.csv names the processor of each."
            )
        if not shared:
            notes.append("Not all nodes see the sweep's folder: what they save travels through this process.")
        return notes

    # --- corpora --------------------------------------------------------------------------------------------------

    def packed(self, value: Any) -> tuple[bytes, list[Any]]:
        """A value as bytes, and references to the corpora in it: each is in Ray's store once."""
        content, corpora = parcels.pack(value)
        return content, [self._reference(corpus) for corpus in corpora]

    def _reference(self, corpus: Corpus) -> Any:
        key = parcels.identity(corpus)
        if key not in self._corpora:
            self._corpora[key] = self.ray.put(parcels.in_memory(corpus))
        return self._corpora[key]


class Bell:
    """An actor that workers wait for: it rings when they are to save and end."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    async def wait(self) -> None:
        """Return when it has rung."""
        await self._rung.wait()

    async def ring(self) -> None:
        """Let all return."""
        self._rung.set()


def on_node(name: str) -> Any:
    """Ray's words for: on this node and no other."""
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    return strategies.NodeAffinitySchedulingStrategy(name, soft=False)


def cancel(ray: Any, stream: Any) -> None:
    """Let a worker end, if it is still there; one that has ended is left."""
    with suppress(Exception):
        ray.cancel(stream, force=True)


def gpu_share(needed: int, there: int) -> float:
    """The part of a GPU that a fleet takes: as many as fit share one, if it is known what fits.

    >>> gpu_share(10 << 30, 80 << 30), gpu_share(60 << 30, 80 << 30), gpu_share(0, 80 << 30)
    (0.1667, 1.0, 1.0)
    """
    if not needed or not there:
        return 1.0
    fit = min(int(there // (1.1 * needed + CONTEXT)), MOST_ON_A_GPU)
    return 1.0 if fit < 2 else math.ceil(10_000 / fit) / 10_000


def _fits(has: Mapping[str, float], taken: Mapping[str, float]) -> int:
    names = {"num_cpus": "CPU", "num_gpus": "GPU"}
    return min(int(has.get(names[name], 0) / amount + 1e-9) for name, amount in taken.items() if amount)


def refuse_differences(nodes: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse to train on nodes whose versions are not those of the driver: bits would differ, or nothing would work."""
    own = _ray_worker.versions()
    wrong = []
    for node, facts in nodes.items():
        if facts.get("error"):
            wrong.append(f"The node {node} cannot run Unroll: {facts['error']}.")
            continue
        for name, version in own.items():
            if facts["versions"].get(name) != version:
                there = facts["versions"].get(name, "none")
                wrong.append(f"The node {node} has {name} {there}; this machine has {version}.")
    if wrong:
        raise RunError(*wrong, "A sweep's runs are trained with one version of each. Install the same, and go on.")


def _probe() -> Any:
    """A function that says what a node is; it must work where Unroll is not installed, so it travels by value."""

    def probe() -> dict[str, Any]:
        try:
            import torch

            from unroll.engines import devices
            from unroll.sweep.launchers import _ray_worker

            gpu = torch.cuda.is_available()
            return {
                "versions": _ray_worker.versions(),
                "processor": devices.describe(torch.device("cuda" if gpu else "cpu")),
                "gpu": torch.cuda.get_device_properties(0).total_memory if gpu else 0,
            }
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}

    return probe


# --- the folder of the attempts ------------------------------------------------------------------------------------


@contextmanager
def attempts_folder(jobs: Sequence[Job]) -> Iterator[Shared | None]:
    """A folder for attempts beside the runs, with a nonce in it; what dead drivers left there is removed."""
    if not jobs:
        yield None
        return
    beside = Path(os.path.commonpath([os.path.dirname(os.path.abspath(out)) for job in jobs for out in job.outs]))
    folder = beside / ATTEMPTS
    remove(folder)
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise RunError(f"Cannot make the folder {folder}: {error.strerror}. Choose another with --out.") from None
    try:
        shared = Shared(str(folder), secrets.token_hex(16))
        atomic_files.write(folder / _ray_worker.NONCE, shared.nonce.encode())
        yield shared
    finally:
        remove(folder)


def remove(folder: Path) -> None:
    """Remove a folder of attempts. It is renamed first: who still writes in it loses the way to it."""
    if untrusted.is_folder(folder):
        gone = folder.with_name(f"{folder.name}.{secrets.token_hex(4)}.given-up")
        with suppress(OSError):
            os.rename(folder, gone)
            shutil.rmtree(gone, ignore_errors=True)
            for _ in range(10):
                if not gone.exists():
                    break
                time.sleep(0.05)  # a file that was open a moment ago
                shutil.rmtree(gone, ignore_errors=True)


def in_plain_words(error: BaseException) -> str:
    """The first sentence of an error of Ray's."""
    return in_words(str(error).strip().split("\n")[0].split(". ")[0].rstrip("."))
