"""On a Ray cluster: a fleet is a task, on whatever node has room for it.

    --launcher ray                      a Ray of this machine alone, started and ended with the sweep
    --launcher ray --address auto       the cluster that this machine is part of; or HOST:PORT

The driver alone writes in the sweep's folder. A worker trains in a folder of its own attempt, on the same disk where
all nodes see it, else in its node's scratch space; what it saves is then put in place by the driver. A fleet whose
worker or node is lost is tried again from the last checkpoint. docs/scaling-out.md says why nothing can be lost or
overwritten in this way. Needs the extra `ray`.
"""

from __future__ import annotations

import importlib.util
import signal
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, TypeVar

from unroll.base import generators
from unroll.base.errors import Interrupted, UnrollError
from unroll.corpus.open_corpora import Library
from unroll.experiment.experiment import Experiment
from unroll.experiment.spelled import Key
from unroll.sweep.launchers import Job, Noted, Report, chosen, require_reach
from unroll.training.signals import Pressed, Watch

MISSING = "The launcher ray needs the ray extra: pip install 'unroll-rnn[ray]'."
KEYS = {"address": Key("")}
ELSEWHERE = True  # what this process registered, the workers do not know
CALLS = 3  # times that a function is computed anew where its node was lost
OFTEN = 0.2  # seconds between two looks for a signal
Result = TypeVar("Result")


def why_not() -> str | None:
    """Why no cluster can be used here, in words."""
    if not hasattr(signal, "pthread_sigmask"):
        return "The launcher ray needs a POSIX system. Leave --launcher out: runs are trained in this process."
    return None if importlib.util.find_spec("ray") else MISSING


def run(jobs: Sequence[Job], library: Library, address: str = "") -> Generator[Report, None, None]:
    """Each job goes to a worker of the cluster; reports of different fleets come interleaved."""
    experiments = [experiment for job in jobs for experiment in job.experiments]
    require_reach(chosen("ray"), experiments)
    return generators.closed_at_exit(_run(jobs, library, address))


def _run(jobs: Sequence[Job], library: Library, address: str) -> Generator[Report, None, None]:
    from unroll.sweep.launchers import _ray_cluster as clusters
    from unroll.sweep.launchers._ray_team import Team

    cluster = clusters.connect(address)
    try:
        with Watch() as watch, clusters.attempts_folder(jobs) as folder:
            cluster.require_alike()
            shared = folder if folder and cluster.all_read(folder) else None
            yield from (Noted("", note) for note in cluster.notes(shared is not None))
            team = Team(jobs, library, cluster, shared)
            try:
                while team.busy:
                    watch.check()
                    yield from team.employ()
                    yield from team.heard()
            finally:
                if not watch.quits:
                    team.interrupt()
                team.leave()
    except Pressed as pressed:
        raise Interrupted(pressed.number) from None
    except cluster.ray.exceptions.RayError as error:
        raise UnrollError(f"The Ray cluster is gone: {clusters.in_plain_words(error)}.") from None
    finally:
        clusters.leave()


def call(function: Callable[..., Result], *arguments: Any, address: str = "", **keys: Any) -> Result:
    """Compute a function on a node of the kind that will train, as if alone there."""
    from unroll.sweep.launchers import _ray_cluster as clusters
    from unroll.sweep.launchers import _ray_worker as workers

    cluster = clusters.connect(address)
    cluster.require_alike()
    ray = cluster.ray
    options, threads = cluster.whole_node()
    packed, references = cluster.packed((function, arguments, keys))
    answer = ray.remote(max_retries=CALLS, **options)(workers.called).remote(packed, references, threads)
    with Watch() as watch:
        while not ray.wait([answer], timeout=OFTEN)[0]:
            watch.check()
    returned, value = ray.get(answer)
    if not returned:
        raise value
    result: Result = value
    return result


def at_once(device: str, address: str = "") -> int:
    """How many fleets can surely train at the same time: one a GPU, or one a node."""
    from unroll.sweep.launchers import _ray_cluster as clusters

    nodes = list(clusters.connect(address).working().values())
    gpus = sum(int(has.get("GPU", 0)) for has in nodes)
    return max(1, gpus if gpus and device != "cpu" else len(nodes))


def refusal(experiments: Iterable[Experiment], address: str = "") -> str | None:
    """Why these cannot be trained in a cluster: which GPU of which node a fleet gets is decided there."""
    named = dict.fromkeys(e.device for e in experiments if ":" in e.device and e.device != "cuda:0")
    if not named:
        return None
    return (
        f"--device {' and '.join(named)}: the launcher ray gives each fleet a GPU of whatever node is free, which is "
        "cuda:0 there. Use --device cuda."
    )
