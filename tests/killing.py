"""Training that is killed: small runs of every procedure, and processes that die or are signalled at a chosen moment.

A process is forked from a server that has imported torch and has never trained, so a kill and a resume cost a fraction
of a second. It reports the batch it starts at, and the moment it dies at just before it does.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch

from unroll import Corpus, Experiment, Scheme
from unroll.base import atomic_files
from unroll.base.errors import UnrollError
from unroll.engines.cpu import replay
from unroll.engines.cpu.compiled_update import CompiledUpdate
from unroll.engines.judged_update import JudgedUpdate
from unroll.runs.folder import RunFolder
from unroll.training import bookkeeping
from unroll.training.bookkeeping import Bookkeeping
from unroll.training.events import Ended, Evaluating, Event, Resumed, Stepped, Warned
from unroll.training.learner import Learner
from unroll.training.loop import train_fleet

BATCHES, SAVE_EVERY = 40, 3
PATIENCE = 60  # seconds without a word from a process
CARRIED = {"state": "carried", "sample": "progressive"}


def _experiment(seed: int = 5, batches: int = BATCHES, **settings: Any) -> Experiment:
    model = {"hidden": 6, "dense": 8, "rows": 3, "dropout": 0.3, "learning_rate": 0.01}
    model |= {name: settings.pop(name) for name in list(settings) if name in Experiment.__dataclass_fields__}
    scheme = Scheme(**{"k1": 4, "k2": 6, **settings})
    return Experiment(scheme=scheme, seed=seed, batches=batches, device="cpu", threads=1, **model)


# The train set of 171 tokens makes an epoch of 13 batches where k1 = 4.
PROCEDURES: dict[str, list[Experiment]] = {
    "multi-loss": [_experiment()],
    "single-loss": [_experiment(loss="last")],
    "conditional": [_experiment(**CARRIED)],
    "conditional, k1 > k2": [_experiment(**CARRIED, k1=9)],
    "conditional, never reset": [_experiment(**CARRIED, reset="never", rotation="continue")],
    "conditional, reset at random": [_experiment(**CARRIED, reset=0.3)],
    "shuffle": [_experiment(shuffle=True)],
    "GRU": [_experiment(**CARRIED, cell="gru")],
    "two layers": [_experiment(**CARRIED, layers=2, evaluate="both")],
    "decay": [_experiment(loss="exponential", k3=4, normalise=True)],
    "no dense layer": [_experiment(**CARRIED, dense=0)],
    "RMSprop": [_experiment(**CARRIED, optimiser="rmsprop", cell="rnn", precision="float64")],
    "best before the end": [_experiment(learning_rate=0.3)],
    "validation": [_experiment(**CARRIED, learning_rate=0.1, validation=30)],
    "patience": [_experiment(seed=12, **CARRIED, patience=7)],
    "fleet that ends early": [
        _experiment(seed=12, **CARRIED, patience=7),
        _experiment(seed=6, k1=3, dropout=0.5),
        _experiment(seed=7, target=5.1, loss="linear", k1=9),
    ],
    "fleet of three": [
        _experiment(**CARRIED),
        _experiment(seed=6, k1=3, shuffle=True, dropout=0.5, learning_rate=0.02),
        _experiment(seed=7, batches=25, loss="linear", k1=9),
    ],
    "schedules by count": [
        _experiment(warm_up=12, weight_decay=0.1),
        _experiment(seed=6, schedule="step,every=7", clip_norm=0.3),
        _experiment(seed=7, schedule="exponential"),
    ],
    "schedules by shape": [
        _experiment(seed=8, schedule="linear", weight_decay=0.01, clip_norm=0.5),
        _experiment(seed=9, schedule="cosine,final=0.1", warm_up=5),
        _experiment(seed=10, schedule="plateau,patience=1", learning_rate=0.1),
    ],
    "plateau": [
        _experiment(**CARRIED, schedule="plateau,patience=1,by=0.7", learning_rate=0.1, optimiser="sgd,momentum=0.9")
    ],
}


@cache
def corpora(procedure: str) -> list[Corpus]:
    """190 tokens for every run; the runs of a fleet read different texts with different vocabularies."""
    letters = ["abcdefgh ", "abcdefghijkl ", "abcd "]
    drawn = random.Random(0)
    return [Corpus.from_text(symbols + "".join(drawn.choices(symbols, k=190 - len(symbols)))) for symbols in letters][
        : len(PROCEDURES[procedure])
    ]


@dataclass(frozen=True)
class Job:
    """One process's life: what it trains, and what befalls it."""

    procedure: str
    folder: str
    resume: bool = False
    moment: str = ""  # see `moments`
    at: int = 0  # after how many batches, for "step" and "evaluation"; else at which occurrence of the moment, from 1
    signals: tuple[int, ...] = (signal.SIGKILL,)

    @property
    def outs(self) -> list[Path]:
        return outs(self.folder, self.procedure)


@dataclass
class Outcome:
    """What the process reported before it ended."""

    code: int | None = None
    start: int | None = None
    moment: tuple[str, int] | None = None  # its name, and the batches done
    raised: tuple[str, str, int] | None = None
    warnings: list[str] = field(default_factory=list)
    begun: list[tuple[str, int]] = field(default_factory=list)  # of a sweep: fleets, and the batches they began at

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


def outs(folder: str | Path, procedure: str) -> list[Path]:
    return [Path(folder, f"run{m}") for m in range(len(PROCEDURES[procedure]))]


def follow(procedure: str, folder: str | Path, resume: bool = False, **changes: Any) -> Iterator[Event]:
    """Train a procedure's runs into a folder; what a run's learner holds at its last batch is kept beside it."""
    experiments = [replace(e, **changes) for e in PROCEDURES[procedure]]
    places = outs(folder, procedure)
    for event in train_fleet(experiments, corpora(procedure), places, resume, save_every=SAVE_EVERY):
        # Before anything of its end is on the disk: a kill after that must not cost the snapshot.
        for m, experiment in enumerate(experiments if isinstance(event, Stepped) else ()):
            # A run that had ended before is not restored when its fleet goes on: its slot holds something else.
            if event.learner.count == experiment.batches and RunFolder(places[m]).status["state"] != "finished":
                atomic_files.write(snapshot(places[m]), atomic_files.seal(event.learner.snapshot(m), {}))
        yield event


def train(procedure: str, folder: str | Path, resume: bool = False, **changes: Any) -> list[Event]:
    """The same, in this process and to the end."""
    return list(follow(procedure, folder, resume, **changes))


def train_until(procedure: str, folder: str | Path, batch: int) -> None:
    """The same, abandoned after a batch as if the machine had gone."""
    for event in (events := follow(procedure, folder)):
        if event.learner.count == batch and not isinstance(event, Warned | Ended | Evaluating | Resumed):
            while isinstance(next(events), Evaluating):  # the save that follows a step, and an evaluation
                pass
            break
    lose(events)


def lose(events: Iterator[Event]) -> None:
    """End training as if the machine had gone: nothing more is saved."""
    with patch.object(Bookkeeping, "save"):
        events.close()  # type: ignore[attr-defined]


def snapshot(out: Path) -> Path:
    return out.with_suffix(".snapshot.safetensors")


def result(out: Path) -> dict[str, Any]:
    """All that must not depend on kills: weights, optimiser and states as bytes, metrics and status but for clocks."""
    tensors = {}
    # A run that ends early has no snapshot: nobody knows its last batch before it is there.
    for path in filter(Path.exists, (out / "weights.safetensors", out / "best.safetensors", snapshot(out))):
        for name, tensor in atomic_files.unseal(path)[0].items():
            tensors[f"{path.name} {name}"] = (str(tensor.dtype), tuple(tensor.shape), tensor.numpy().tobytes())
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    status = json.loads((out / "status.json").read_text())
    best = out / "best.safetensors"
    tensors["best facts"] = atomic_files.unseal(best)[1] if best.exists() else None  # no clock stands in them
    return {
        **tensors,
        "metrics": [{k: v for k, v in line.items() if k != "seconds"} for line in lines],
        "status": {k: v for k, v in status.items() if k not in ("seconds", "evaluating", "clocks")},
        "weights.safetensors": (out / "weights.safetensors").read_bytes(),
        "files": sorted(p.name for p in out.iterdir()),
    }


def results(folder: str | Path, procedure: str) -> list[dict[str, Any]]:
    return [result(out) for out in outs(folder, procedure)]


@cache
def uninterrupted(procedure: str) -> list[dict[str, Any]]:
    """The results of a procedure's runs when nothing happens to them."""
    with TemporaryDirectory() as folder:
        train(procedure, folder)
        return results(folder, procedure)


# --- processes ---------------------------------------------------------------------------------------------------


def run(job: Job, kill_after: float | None = None) -> Outcome:
    """Live a job in a process of its own; kill it from outside after some seconds, if asked."""
    return lived(_live, job, kill_after)


def lived(target: Callable[[Any, Connection], None], job: Any, kill_after: float | None = None) -> Outcome:
    """The same for any kind of job: `target` lives it, and reports."""
    receiving, sending = multiprocessing.Pipe(duplex=False)
    process = _server().Process(target=target, args=(job, sending))
    process.start()
    sending.close()
    if kill_after is not None:
        time.sleep(kill_after)
        process.kill()
    outcome = Outcome()
    try:
        while True:
            if not receiving.poll(PATIENCE):
                process.kill()
                raise AssertionError(f"{job} was silent for {PATIENCE} s")
            name, value = receiving.recv()
            if name in ("warnings", "begun"):
                getattr(outcome, name).append(value)
            else:
                setattr(outcome, name, value)
    except (EOFError, OSError):  # it is gone, perhaps in the middle of a message
        process.join()
    receiving.close()
    outcome.code = process.exitcode
    process.close()
    return outcome


@cache
def _server() -> multiprocessing.context.ForkServerContext:
    here = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["killing", "precompiled"])
    return context


def _live(job: Job, report: Connection) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    torch.set_num_threads(1)
    begin = Bookkeeping.evaluate_due

    def begun(books: Bookkeeping) -> Iterator[Event]:
        Bookkeeping.evaluate_due = begin  # type: ignore[method-assign]
        report.send(("start", books.learner.count))
        return begin(books)

    Bookkeeping.evaluate_due = begun  # type: ignore[method-assign]
    times = 0

    def at(moment: str, batch: int) -> None:
        nonlocal times
        if job.moment not in (moment, "any"):
            return
        times += 1
        if job.at == (batch if job.moment in ("step", "evaluation") else times):
            report.send(("moment", (moment, batch)))
            for number in job.signals:
                os.kill(os.getpid(), number)

    with moments(at):
        try:
            for event in follow(job.procedure, job.folder, job.resume):
                if isinstance(event, Warned):
                    report.send(("warnings", event.message))
        except (UnrollError, KeyboardInterrupt) as error:
            report.send(("raised", (type(error).__name__, str(error), getattr(error, "exit_code", 1))))


BOUNDARIES = ("written", "synced", "renamed", "folder synced", "metrics appended", "checkpoint, no status")


@contextmanager
def moments(at: Callable[[str, int], None]) -> Iterator[None]:
    """Call `at` with the name of each moment and the batches done.

    The boundaries of a checkpoint's save and of a metrics line have names; other moments on disk are named after the
    call and its file. "step" is inside a step, gradients known and weights not updated; "evaluation" inside
    an evaluation.
    """
    learners: list[Learner] = []
    originals = os.fsync, os.replace, os.unlink, JudgedUpdate.judged, bookkeeping.token_nll, Learner.__init__
    fsync, rename, unlink, judge, perplexity, init = originals

    def batch() -> int:
        return learners[-1].count if learners else 0

    def synced(handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        checkpoint = path.parent.name == "checkpoints"
        if path.name.startswith("status.json") and last == ["folder synced"]:
            at("checkpoint, no status", batch())
        last.clear()
        at("written" if checkpoint else f"fsync {path.name}", batch())
        fsync(handle)
        after = {"checkpoints": "folder synced", "metrics.jsonl": "metrics appended"}.get(
            path.name, f"synced {path.name}"
        )
        at(name := "synced" if checkpoint else after, batch())
        last.append(name)

    def renamed(source: Path, target: Path) -> None:
        rename(source, target)
        at("renamed" if target.parent.name == "checkpoints" else f"renamed {target.name}", batch())

    def unlinked(path: Path, **options: Any) -> None:
        at(f"unlink {path}", batch())
        unlink(path, **options)
        at(f"unlinked {path}", batch())

    def judged(update: JudgedUpdate, nll_MKB: Any) -> Any:
        alive_and_gradients = judge(update, nll_MKB)
        if isinstance(update, CompiledUpdate):
            replay.done(lambda: at("step", batch()))  # in every step, but not while it is recorded
        else:
            at("step", batch())
        return alive_and_gradients

    def evaluated(*arguments: Any, **options: Any) -> Any:
        at("evaluation", batch())
        return perplexity(*arguments, **options)

    def made(learner: Learner, *arguments: Any) -> None:
        init(learner, *arguments)
        learners.append(learner)

    def put(fsync: Any, rename: Any, unlink: Any, judge: Any, perplexity: Any, init: Any) -> None:
        os.fsync, os.replace, os.unlink = fsync, rename, unlink
        JudgedUpdate.judged, Learner.__init__ = judge, init  # type: ignore[method-assign]
        bookkeeping.token_nll = perplexity

    last: list[str] = []
    put(synced, renamed, unlinked, judged, evaluated, made)
    try:
        yield
    finally:
        put(*originals)
