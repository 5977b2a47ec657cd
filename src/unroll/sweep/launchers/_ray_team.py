"""The driver's side of a sweep on a Ray cluster: which fleet is tried when, what comes of it, and what is tried again.

Ray retries nothing (`max_retries=0`). An attempt that was lost is given up: nothing that it still says is heard, and
the fleet is tried again from the last checkpoint that this driver has put in its place.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unroll.base.errors import RunError, SaveError, UnrollError
from unroll.base.limits import MEMORY, Shortage
from unroll.corpus.open_corpora import Library
from unroll.sweep.launchers import Failed, Job, Lost, Noted, Report, TooLarge
from unroll.sweep.launchers import _ray_cluster as clusters
from unroll.sweep.launchers import _ray_worker as workers
from unroll.sweep.launchers._ray_arrivals import Arrivals
from unroll.sweep.launchers._ray_cluster import Cluster
from unroll.sweep.launchers._ray_parcels import (
    Apart,
    Arrived,
    Copies,
    Done,
    Errand,
    Full,
    Shared,
    Stopped,
    Unfit,
)
from unroll.sweep.launchers._work import too_little, unended

LOOK = 0.2  # seconds to wait for news
PATIENCE = 60.0  # seconds for all to save in
IN_VAIN = 5  # attempts in a row that saved nothing new, after which a fleet is given up
AHEAD = 2  # fleets that wait in the cluster's own queue
MESSAGES = 50.0  # a second, of all fleets together
LEAST, MOST = 1.0, 60.0  # seconds between two messages of a fleet
UNHEARD = 8  # messages that a worker may be ahead of the driver
LONELY = 10.0  # seconds without any node that could train, after which that is said


@dataclass
class Attempt:
    """One try to train a fleet."""

    job: Job
    name: str
    arrivals: Arrivals
    stream: Any  # Ray's: what the worker says
    begun: tuple[int, int]  # what was safe when it began
    node: str = ""
    where: str = ""
    over: bool = False


@dataclass
class Waiting:
    """A fleet that nobody trains yet, and how often that was tried in vain."""

    job: Job
    in_vain: int = 0


class Team:
    """Fleets that wait, and attempts that are under way."""

    def __init__(self, jobs: Sequence[Job], library: Library, cluster: Cluster, shared: Shared | None) -> None:
        self.cluster, self.ray, self.library, self.shared = cluster, cluster.ray, library, shared
        self.waiting = [Waiting(job) for job in jobs]
        self.attempts: list[Attempt] = []
        self.in_vain: dict[str, int] = {}
        self.bell: Any = None
        self.tracks = True
        self._said: set[tuple[str, str]] = set()
        self._lonely_since: float | None = None

    @property
    def busy(self) -> bool:
        """Whether a fleet is left."""
        return bool(self.waiting or self.attempts)

    # --- sending ----------------------------------------------------------------------------------------------------

    def employ(self) -> Iterator[Report]:
        """Give fleets to the cluster, as many as it can train at once and a few more."""
        while self.waiting:
            taken = self.cluster.taken_by(self.waiting[0].job)
            room = self.cluster.room(taken)
            if not room and not self.attempts:
                yield from self._lonely(taken)
                return
            self._lonely_since = None
            if len(self.attempts) >= room + AHEAD:
                return
            waiting = self.waiting.pop(0)
            try:
                attempt = self._sent(waiting, taken, room)
            except UnrollError as error:  # what is wrong with its folders
                if isinstance(error, SaveError):
                    raise
                yield Failed(waiting.job.fleet, unended(waiting.job), " ".join(error.problems))
                continue
            self.attempts.append(attempt)
            yield from self._notes(attempt)

    def _sent(self, waiting: Waiting, taken: dict[str, float], room: int) -> Attempt:
        arrivals = Arrivals(waiting.job, self.library)
        arrivals.take()
        try:
            stream, name = self._stream(waiting.job, arrivals, taken, room)
        except BaseException:
            arrivals.release()
            raise
        self.in_vain[waiting.job.fleet] = waiting.in_vain
        return Attempt(waiting.job, name, arrivals, stream, arrivals.progress())

    def _stream(self, job: Job, arrivals: Arrivals, taken: dict[str, float], room: int) -> tuple[Any, str]:
        """Ray's end of what a new worker says, and the name of the attempt."""
        every = min(MOST, max(LEAST, min(room, len(self.waiting) + len(self.attempts)) / MESSAGES))
        name = secrets.token_hex(12)
        begun = () if self.shared else arrivals.begun()
        corpora = Library([self.library.open(experiment) for experiment in job.experiments])
        errand = Errand(name, job, workers.versions(), self.shared, begun, every)
        packed, references = self.cluster.packed((errand, corpora))
        task = self.ray.remote(
            num_returns="streaming",
            max_retries=0,
            retry_exceptions=False,
            scheduling_strategy="SPREAD",
            _generator_backpressure_num_objects=UNHEARD,
            **taken,
            **self.cluster.constraint(),
        )(workers.train)
        return task.remote(self.ray.put(packed), references, self._bell()), name

    def _bell(self) -> Any:
        """What interrupts all workers at once. It dies with the driver, and that rings it as well."""
        if self.bell is None:
            strategy = clusters.on_node(self.ray.get_runtime_context().get_node_id())
            actor = self.ray.remote(
                num_cpus=0,
                max_restarts=-1,
                max_task_retries=-1,
                max_concurrency=100_000,
                scheduling_strategy=strategy,
            )(clusters.Bell)
            self.bell = actor.remote()
        return self.bell

    def _lonely(self, taken: dict[str, float]) -> Iterator[Report]:
        """No node can train: others may come."""
        now = time.monotonic()
        self._lonely_since = self._lonely_since or now
        if now - self._lonely_since > LONELY:
            what = f"{taken['num_cpus']:g} processors" + (" and a GPU" if taken["num_gpus"] else "")
            yield from self._once("", f"No node of the cluster has {what} for a fleet. The sweep waits for one.")

    # --- hearing ----------------------------------------------------------------------------------------------------

    def heard(self, seconds: float = LOOK) -> Iterator[Report]:
        """What the workers say within a moment, and what befell those that say nothing."""
        streams = {attempt.stream: attempt for attempt in self.attempts}
        if not streams:
            time.sleep(seconds)
            return
        ready, _ = self.ray.wait(list(streams), num_returns=1, timeout=seconds)
        if ready and len(streams) > 1:
            ready, _ = self.ray.wait(list(streams), num_returns=len(streams), timeout=0)
        for stream in ready:
            attempt = streams[stream]
            if not attempt.over:
                yield from self._message(attempt)
        yield from self._gone()

    def _message(self, attempt: Attempt) -> Iterator[Report]:
        try:
            message = self.ray.get(next(attempt.stream))
        except StopIteration:  # it ended without saying that it did
            yield from self._lost(attempt, "Its worker ended without a word")
            return
        except self.ray.exceptions.RayError as error:
            yield from self._broke(attempt, error)
            return
        for said in message:
            yield from self._said_by(attempt, said)
            if attempt.over:
                return

    def _said_by(self, attempt: Attempt, said: Any) -> Iterator[Report]:
        job = attempt.job
        if isinstance(said, Arrived):
            attempt.node, attempt.where = said.node, said.where
        elif isinstance(said, Copies):
            try:
                attempt.arrivals.place(said)
            except RunError as error:
                self._end(attempt, cancel=True)
                yield Failed(job.fleet, unended(job), " ".join(error.problems))
            except OSError as error:
                yield from self._lost(attempt, f"What it made did not arrive: {error.strerror or error}", cancel=True)
            else:
                yield from self._notes(attempt)
                yield from self._tracked(attempt, said)
        elif isinstance(said, Done):
            self._end(attempt)
        elif isinstance(said, Stopped):
            yield from self._lost(attempt, f"Its worker was stopped by signal {said.signal}")
        elif isinstance(said, Full):
            if self.shared:
                raise SaveError(said.reason)
            yield from self._lost(attempt, f"{attempt.where or 'Its worker'} has no room: {said.reason}")
        elif isinstance(said, Apart):
            self.shared = None
            self._again(attempt)
            yield from self._once(
                "", "A node does not see the sweep's folder: from now on files travel through the driver."
            )
        elif isinstance(said, Unfit):
            self.cluster.unfit.add(said.node)
            self._again(attempt)
            yield from self._once(
                "", f"The node {said.node[:8]} has other versions ({said.versions}) and trains nothing."
            )
        elif isinstance(said, Noted):
            yield from self._once(job.fleet, said.message)
        else:
            yield said

    def _broke(self, attempt: Attempt, error: Exception) -> Iterator[Report]:
        """Ray says that a worker is gone, or has raised."""
        errors, job = self.ray.exceptions, attempt.job
        if isinstance(error, errors.OutOfMemoryError):
            words = "Ray ended its worker, since its node was out of memory"
            self._end(attempt)
            if len(job.runs) > 1 and attempt.arrivals.progress() == (0, 0):
                yield TooLarge(job.fleet, words)
            else:
                yield Failed(job.fleet, unended(job), too_little(Shortage(MEMORY, words), len(job.runs)))
        elif isinstance(error, errors.RayTaskError) and not isinstance(error, errors.TaskCancelledError):
            self._end(attempt)
            cause = getattr(error, "cause", None) or error
            yield Failed(job.fleet, unended(job), f"{type(cause).__name__}: {cause}", str(error))
        else:
            where = f" ({attempt.where})" if attempt.where else ""
            yield from self._lost(attempt, f"{clusters.in_plain_words(error)}{where}")

    def _gone(self) -> Iterator[Report]:
        """Attempts on nodes that are dead: Ray may take minutes to say so of a worker that holds its connection."""
        alive = self.cluster.alive()
        dead = [attempt for attempt in self.attempts if attempt.node and attempt.node not in alive]
        for attempt in dead:
            yield from self._lost(attempt, f"Its node is gone ({attempt.where})", cancel=True)
        if dead:  # what was on its way there has not arrived, and never will
            for attempt in [attempt for attempt in self.attempts if not attempt.node]:
                self._again(attempt, cancel=True)

    # --- ends -------------------------------------------------------------------------------------------------------

    def _lost(self, attempt: Attempt, reason: str, cancel: bool = False) -> Iterator[Report]:
        """Give an attempt up and try its fleet again, unless that was in vain too often."""
        job, before = attempt.job, self.in_vain[attempt.job.fleet]
        in_vain = 0 if attempt.arrivals.progress() > attempt.begun else before + 1
        left = unended(job)
        self._end(attempt, cancel)
        if not left:
            return
        yield Lost(job.fleet, f"{reason}.")
        if in_vain >= IN_VAIN:
            words = f"{IN_VAIN} workers in a row were lost while they trained them, and none had saved anything new"
            yield Failed(job.fleet, left, f"{words}. The last one: {reason}.")
        else:
            self.waiting.insert(0, Waiting(job, in_vain))

    def _again(self, attempt: Attempt, cancel: bool = False) -> None:
        """Try a fleet again that has not begun."""
        self._end(attempt, cancel)
        self.waiting.insert(0, Waiting(attempt.job, self.in_vain[attempt.job.fleet]))

    def _end(self, attempt: Attempt, cancel: bool = False) -> None:
        """Hear no more of an attempt; its folder leads nowhere from now on."""
        if not attempt.over:
            attempt.over = True
            self.attempts.remove(attempt)
            if cancel:
                clusters.cancel(self.ray, attempt.stream)
            attempt.arrivals.release()
            if self.shared:
                clusters.remove(Path(self.shared.folder) / attempt.name)

    def _notes(self, attempt: Attempt) -> Iterator[Report]:
        notes, attempt.arrivals.notes = attempt.arrivals.notes, []
        yield from (Noted(attempt.job.fleet, note) for note in notes)

    def _tracked(self, attempt: Attempt, copies: Copies) -> Iterator[Report]:
        """Tell the trackers of a run that has ended: the driver alone has its folder. After a fault, no more."""
        if copies.ends and self.tracks and attempt.job.track:
            problems = attempt.arrivals.track(copies.run)
            self.tracks = not problems
            yield from (Noted(attempt.job.fleet, problem) for problem in problems)

    def _once(self, fleet: str, message: str) -> Iterator[Report]:
        if (fleet, message) not in self._said:
            self._said.add((fleet, message))
            yield Noted(fleet, message)

    def interrupt(self) -> None:
        """Let all workers save, and put what they saved where it belongs."""
        self.waiting.clear()
        for attempt in [attempt for attempt in self.attempts if not attempt.node]:
            self._end(attempt, cancel=True)  # nobody has begun with it
        if self.bell is not None and self.attempts:
            self.bell.ring.remote()
        until = time.monotonic() + PATIENCE
        while self.attempts and time.monotonic() < until:
            for _ in self.heard():
                pass
            self.waiting.clear()  # what is lost now is not tried again

    def leave(self) -> None:
        """Hear nobody any more."""
        self.waiting.clear()
        for attempt in list(self.attempts):
            self._end(attempt, cancel=True)
