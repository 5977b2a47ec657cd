"""The loop: train M runs side by side, evaluate them on a logarithmic grid, save them, and go on exactly where they stopped.

`train` trains one run and returns it. `train_fleet` is the loop itself, a generator of what happened, so that whoever
watches (the command line, a notebook, a test) decides what to show.
"""

from __future__ import annotations

import shutil
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from unroll import devices, fleet
from unroll.corpus import Corpus
from unroll.errors import ConfigurationError, CorpusError, Interrupted, RunError
from unroll.evaluation import model_perplexity
from unroll.experiment import Experiment
from unroll.learner import Learner
from unroll.run import Checkpoint, RunFolder
from unroll.signals import Pressed, Watch
from unroll.trained import Run, load
from unroll.version import VERSION

PROCEDURES = ("windowed", "progressive")
SAVE_SECONDS = 10.0
SAVE_COST = 50.0  # a save every 50 times its own duration costs 2 %
LOOK = 100  # batches between two looks at the flags on the device


@dataclass(frozen=True)
class Event:
    """Something happened after `batch` batches."""

    learner: Learner
    seconds: float  # of training so far, a run
    evaluating: float  # seconds spent on evaluation so far


@dataclass(frozen=True)
class Stepped(Event):
    """One batch was trained on."""


@dataclass(frozen=True)
class Evaluated(Event):
    """A line was added to a run's metrics."""

    run: int
    metrics: dict[str, Any]


@dataclass(frozen=True)
class Ended(Event):
    """A run finished or stopped."""

    run: int
    status: dict[str, Any]


@dataclass(frozen=True)
class Warned(Event):
    """Something that the user should know."""

    message: str


def train(experiment: Experiment, out: str | Path, corpus: Corpus | None = None) -> Run:
    """Train one run into the folder `out` and return it.

    >>> import tempfile, unroll
    >>> text = unroll.Corpus.from_text("to be or not to be, that is the question. " * 100)
    >>> tiny = unroll.Experiment(scheme=unroll.Scheme(k1=5, k2=10), hidden=8, dense=16, rows=4, batches=5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = unroll.train(tiny, out=f"{folder}/tiny", corpus=text)
    >>> run.status["state"], [line["batch"] for line in run.metrics]
    ('finished', [1, 2, 3, 4, 5])
    """
    corpus = corpus or open_corpus(experiment)
    for _ in train_fleet([experiment], [corpus], [out]):
        pass
    return load(out, device=experiment.device)


def open_corpus(experiment: Experiment) -> Corpus:
    """The corpus that an experiment names, checked against its hash where it has one."""
    if not experiment.corpus:
        raise ConfigurationError("This experiment names no corpus: give one, as a path or a name.")
    corpus = Corpus.open(experiment.corpus, experiment.kind, experiment.encoding, experiment.min_count)
    if experiment.sha256 and corpus.sha256 != experiment.sha256:
        raise RunError(
            f"{experiment.corpus} is not the corpus that this run was trained on: "
            f"it has SHA-256 {corpus.sha256[:16]}…, {corpus.tokens:,} tokens and {corpus.unique} symbols, where the run had "
            f"{experiment.sha256[:16]}…, {experiment.tokens:,} and {experiment.unique}. Bring that text back."
        )
    return corpus


@cache
def evaluation_points(batches: int) -> tuple[int, ...]:
    """The paper's logarithmic grid, which does not depend on a run's length, up to and with the last batch.

    >>> evaluation_points(12)
    (1, 2, 3, 4, 5, 6, 7, 9, 11, 12)
    """
    points, i = set(), 0
    while (point := round(12800 ** (i / 39))) < batches:
        points.add(point)
        i += 1
    return (*sorted(points), batches)


def train_fleet(
    experiments: Sequence[Experiment],
    corpora: Sequence[Corpus],
    outs: Sequence[str | Path],
    resume: bool = False,
    save_every: int | None = None,
) -> Iterator[Event]:
    """Train runs side by side, each into its own folder; with `resume`, from the newest batch that all of them hold.

    Checkpoints are made by the clock, or every `save_every` batches.
    """
    experiments = [
        devices.resolve(corpus.described_in(e)) for e, corpus in zip(experiments, corpora, strict=True)
    ]
    _refuse_hopeless(experiments, corpora)
    torch.set_num_threads(experiments[0].threads or 1)
    folders = _folders(experiments, corpora, outs, resume)
    device = devices.find(experiments[0].device)
    with ExitStack() as held:
        for folder in folders:
            held.enter_context(folder.locked())
        watch = held.enter_context(Watch())
        learner = Learner(experiments, corpora, device, experiments[0].kernel)
        loop = _Loop(learner, corpora, folders, watch, save_every)
        yield from loop.start(resume)
        try:
            while not loop.ended:
                yield from loop.evaluate_due()
                if loop.ended:
                    break
                watch.check()
                loop.step()
                yield loop.event(Stepped)
                loop.save_if_due()
        except Pressed as pressed:
            loop.save("interrupted")
            raise Interrupted(pressed.number) from None


class _Loop:
    """What the loop keeps beside the learner: clocks, folders, and which runs have ended."""

    def __init__(
        self,
        learner: Learner,
        corpora: Sequence[Corpus],
        folders: Sequence[RunFolder],
        watch: Watch,
        save_every: int | None,
    ) -> None:
        self.learner, self.folders, self.watch, self.save_every = learner, folders, watch, save_every
        self.experiments = learner.experiments
        self.points = [evaluation_points(e.batches) for e in self.experiments]
        self.evaluated = [0] * len(folders)  # the last batch with a line in metrics.jsonl
        self.done = [False] * len(folders)
        self.seconds = self.evaluating = 0.0
        self.saved_at, self.save_cost, self.saved_batch = time.perf_counter(), 0.0, 0
        self.tests = [
            _test_ids(e, c, learner.model.device) for e, c in zip(self.experiments, corpora, strict=True)
        ]

    @property
    def ended(self) -> bool:
        """Whether every run has finished or stopped."""
        return all(self.done)

    def event(self, kind: type[Event], **facts: Any) -> Any:
        """An event that carries the clocks."""
        return kind(self.learner, self.seconds, self.evaluating, **facts)

    def start(self, resume: bool) -> Iterator[Event]:
        """Say what should be known; with `resume`, put every run back to where it was."""
        for experiment in self.experiments:
            for message in experiment.warnings:
                yield self.event(Warned, message=message)
        if resume:
            messages: list[str] = []
            self._resume(messages)
            for message in messages:
                yield self.event(Warned, message=message)
        self._report("training")

    def _resume(self, messages: list[str]) -> None:
        """From the newest batch of which every run that goes on holds a whole checkpoint."""
        held: list[dict[int, Checkpoint]] = []
        for m, folder in enumerate(self.folders):
            self.done[m] = folder.status["state"] in ("finished", "stopped")
            held.append({c.batch: c for c in folder.good_checkpoints(messages)})
        going = [m for m, done in enumerate(self.done) if not done]
        common = set.intersection(*(set(held[m]) for m in going)) if going else set()
        if not common:
            if going:
                messages.append("There is no checkpoint yet: training starts from the beginning.")
            for m in going:
                self.folders[m].rewind(Checkpoint(0, {}, {"metrics_bytes": "0"}))
            return
        batch = max(common)
        self.learner.count = self.saved_batch = batch
        for m in going:
            checkpoint = held[m][batch]
            self.learner.restore(m, checkpoint.tensors)
            self.folders[m].rewind(checkpoint)
            self.seconds = float(checkpoint.facts["seconds"])
            self.evaluating = float(checkpoint.facts["evaluating"])
            lines = self.folders[m].metrics
            self.evaluated[m] = lines[-1]["batch"] if lines else 0

    def step(self) -> None:
        """One batch, on the clock."""
        began = time.perf_counter()
        self.learner.step()
        if self.learner.count % LOOK == 0 or self.learner.model.device.type == "cpu":
            devices.wait(self.learner.model.device)
        self.seconds += (time.perf_counter() - began) / len(self.folders)

    def evaluate_due(self) -> Iterator[Event]:
        """Evaluate the runs that have reached a point of the grid; end those that diverged or are through."""
        count = self.learner.count
        look = count % LOOK == 0 or self.learner.model.device.type == "cpu"
        for m in range(len(self.folders)):
            if self.done[m]:
                continue
            points = self.points[m]
            due = (
                points[bisect_left(points, self.evaluated[m] + 1)] if self.evaluated[m] < points[-1] else None
            )
            if count == due or look:
                stopped = self.learner.stopped(m)
                if stopped:
                    yield self._end(m, stopped)
                    continue
            if count == due:
                yield self._evaluate(m, last=count == points[-1])
                if count == points[-1]:
                    yield self._end(m, None)

    def _evaluate(self, m: int, last: bool) -> Event:
        """Score the scheme's own procedure; both at the last point, or when asked."""
        experiment, began = self.experiments[m], time.perf_counter()
        own = experiment.scheme.sample
        chosen = (
            (own, *(p for p in PROCEDURES if p != own)) if last or experiment.evaluate == "both" else (own,)
        )
        model = self.learner.model.run(m)
        scores = {
            procedure: model_perplexity(
                model, self.tests[m], experiment.scheme.k2, procedure, between=self.watch.check
            )
            for procedure in chosen
        }
        self.evaluating += time.perf_counter() - began
        metrics = {
            "batch": self.learner.count,
            "sequences": self.learner.count * experiment.rows,
            "loss": self.learner.take_loss(m),
            "perplexity": {procedure: score[0].perplexity for procedure, score in scores.items()},
            "seconds": round(self.seconds, 6),
            "fleet": len(self.folders),
        }
        self.folders[m].record(metrics)
        self.evaluated[m] = self.learner.count
        return self.event(Evaluated, run=m, metrics=metrics)

    def _end(self, m: int, stopped: tuple[int, str] | None) -> Event:
        """Store the run's weights: its last good ones, where it diverged."""
        self.done[m] = True
        status = self._status(m, "stopped" if stopped else "finished")
        if stopped:
            status |= {"batch": stopped[0] - 1, "reason": f"At batch {stopped[0]} {stopped[1]}."}
        self.folders[m].finish(self.learner.weights(m), self._facts(m), status)
        return self.event(Ended, run=m, status=status)

    def save_if_due(self) -> None:
        """Save by the clock, so rarely that it costs under 2 %; or by the count of batches."""
        if self.save_every:
            due = self.learner.count - self.saved_batch >= self.save_every
        else:
            due = time.perf_counter() - self.saved_at > max(SAVE_SECONDS, SAVE_COST * self.save_cost)
        if due:
            self.save("training")

    def save(self, state: str) -> None:
        """A checkpoint of every run that goes on."""
        devices.wait(self.learner.model.device)
        began = time.perf_counter()
        for m, folder in enumerate(self.folders):
            if not self.done[m]:
                folder.save(self.learner.count, self.learner.snapshot(m), self._facts(m))
        self._report(state)
        self.saved_at, self.saved_batch = time.perf_counter(), self.learner.count
        self.save_cost = self.saved_at - began

    def _report(self, state: str) -> None:
        for m, folder in enumerate(self.folders):
            if not self.done[m]:
                folder.status = self._status(m, state)

    def _status(self, m: int, state: str) -> dict[str, Any]:
        experiment, device = self.experiments[m], self.learner.model.device
        return {
            "state": state,
            "batch": self.learner.count,
            "batches": experiment.batches,
            "seconds": round(self.seconds, 3),
            "evaluating": round(self.evaluating, 3),
            "fleet": len(self.folders),
            "identity": experiment.identity,
            "device": devices.describe(device),
            "kernel": self.learner.model.kernel_name,
            "threads": experiment.threads,
            "torch": torch.__version__,
            "unroll": VERSION,
        }

    def _facts(self, m: int) -> dict[str, str]:
        identity = self.experiments[m].identity
        return {"identity": identity, "seconds": repr(self.seconds), "evaluating": repr(self.evaluating)}


def _folders(
    experiments: Sequence[Experiment], corpora: Sequence[Corpus], outs: Sequence[str | Path], resume: bool
) -> list[RunFolder]:
    if resume:
        folders = [RunFolder(out) for out in outs]
        for folder, experiment in zip(folders, experiments, strict=True):
            if folder.experiment != experiment:
                folder.experiment = experiment
        return folders
    for out in outs:
        RunFolder(out).refuse_occupied()
    return [
        RunFolder.create(out, e, c.vocabulary) for out, e, c in zip(outs, experiments, corpora, strict=True)
    ]


def _refuse_hopeless(experiments: Sequence[Experiment], corpora: Sequence[Corpus]) -> None:
    """What cannot work is said before any work is done."""
    fleet.require(experiments, [c.unique for c in corpora])
    wrong = []
    for experiment, corpus in zip(experiments, corpora, strict=True):
        test, k2 = corpus.split(experiment.split_seed).test, experiment.scheme.k2
        if min(test, experiment.test_tokens or test) <= k2:
            wrong.append(
                f"The test set needs more than k2 = {k2} tokens and has {min(test, experiment.test_tokens or test)}: "
                f"a corpus needs at least {10 * (k2 + 1):,} tokens, this one has {corpus.tokens:,}. Lower --k2, raise "
                "--test-tokens, or bring more text."
            )
    if wrong:
        raise CorpusError(*wrong)


def _test_ids(experiment: Experiment, corpus: Corpus, device: torch.device) -> torch.Tensor:
    ids = corpus.test_ids(experiment.split_seed)[: experiment.test_tokens]
    return torch.from_numpy(ids.astype("int64")).to(device)


def resume(
    out: str | Path, batches: int | None = None, device: str | None = None, threads: int | None = None
) -> tuple[Experiment, Corpus, list[str]]:
    """What is needed to go on with a run: its experiment, its corpus, and what the user should know."""
    folder, notes = RunFolder(out), []
    experiment = folder.experiment
    state = folder.status["state"]
    if state in ("finished", "stopped"):
        longer = (
            " Its checkpoints are gone, so it cannot be trained further; start anew with --batches."
            if batches
            else ""
        )
        raise RunError(f"{out} has already {state} after {folder.status['batch']:,} batches.{longer}")
    if batches is not None and batches < experiment.batches:
        raise RunError(
            f"--batches may only be raised on resume: the run has {experiment.batches:,}, got {batches:,}."
        )
    changed = replace(
        experiment,
        batches=batches or experiment.batches,
        device=device or experiment.device,
        threads=threads or experiment.threads,
    )
    if changed.device.startswith("cuda") and not torch.cuda.is_available():
        changed = replace(changed, device="cpu")
    for name in ("device", "threads"):
        before, now = getattr(experiment, name), getattr(changed, name)
        if before != now:
            notes.append(
                f"{name} was {before}, is {now}: the run goes on, but not bit for bit as it would have."
            )
    return changed, open_corpus(experiment), notes


def disk_needed(experiment: Experiment, unique: int) -> int:
    """Bytes that checkpoints of a run may take at their most: three at a time, weights and two moments each."""
    gates = 4 * experiment.hidden
    layers = (unique + experiment.hidden) * gates + (experiment.layers - 1) * 2 * experiment.hidden * gates
    head = experiment.dense * (experiment.hidden + unique)
    return 3 * 3 * 8 * (layers + head)


def refuse_full_disk(out: str | Path, needed: int) -> None:
    """Say so before training, not hours into it."""
    place = Path(out).absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < needed:
        raise RunError(
            f"{place} has {free / 1e6:,.0f} MB free; this run may need {needed / 1e6:,.0f} MB. Choose another --out."
        )
