"""What strangers send: a finished run, one that was stopped on its way, a sweep, a cache. Small and real."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from lived import SMALL_CACHE, Command, Ended, Worker

from unroll import Corpus, Experiment, Scheme, grid, load, memorised
from unroll.base.wording import shell_words
from unroll.corpus import encoding
from unroll.corpus.open_corpora import Library
from unroll.corpus.synthetic import Markov
from unroll.runs import memorisation
from unroll.runs.folder import RunFolder
from unroll.sweep.folder import SweepFolder
from unroll.sweep.launchers import Progressed, RunEnded
from unroll.sweep.sweep import describe, sweep
from unroll.training.loop import train, train_fleet

BATCHES, STOPPED_AT = 8, 6
MODEL = {"hidden": 8, "dense": 16, "rows": 4, "batches": BATCHES, "test_tokens": 60, "threads": 1, "device": "cpu"}
SCHEME = {"k1": 4, "k2": 8}
TRAINING = "--hidden 8 --dense 16 --rows 4 --test-tokens 60 --threads 1 --k1 4 --k2 8 --batches 3 --quiet"


@dataclass(frozen=True)
class World:
    """Where everything lies. `mine` is somebody's own folder, which no command may touch."""

    path: Path
    corpus: Path  # stays where it is, since runs name it

    @property
    def given(self) -> Path:
        return self.path / "given"

    @property
    def mine(self) -> Path:
        return self.path / "mine"

    def copied(self, to: Path) -> World:
        """Another like it; what is given is copied. The corpus stays where it is, and is found beside the copy too."""
        shutil.copytree(self.given, to / "given", symlinks=True)
        shutil.copytree(self.mine, to / "mine")
        (to / self.corpus.name).symlink_to(self.corpus)
        return World(to, self.corpus)

    def run(self, worker: Worker, words: str) -> Ended:
        """A command line in which {given} stands for the folder."""
        split = tuple(word.format(given=self.given, corpus=self.corpus, out=self.path) for word in words.split())
        return worker.run(Command(split, self.given / "cache", self.path / "printed"))


def make(path: Path) -> World:
    """Everything, trained."""
    world = World(path, path / "corpus.txt")
    world.given.mkdir(parents=True)
    world.mine.mkdir()
    for name in ("diary.txt", "batch-000000001.safetensors", "letters/one.txt"):
        (world.mine / name).parent.mkdir(exist_ok=True)
        (world.mine / name).write_text(f"precious: {name}")
    world.corpus.write_text(Markov().text(3000))
    experiment = Experiment(corpus=str(world.corpus), scheme=Scheme(**SCHEME), **MODEL)
    corpus = Corpus.named(experiment)
    train(experiment, world.given / "run", corpus)
    half = world.given / "half"
    for event in (events := train_fleet([experiment], [corpus], [half], save_every=2, track="tensorboard")):
        if event.learner.count == STOPPED_AT + 1:
            break
    events.close()
    RunFolder(half).tracking_key()  # as a tracker elsewhere asks for it
    with shell_words():  # as the command line makes it, so that reasons on record are in its words
        _sweep(world)
    before, os.environ["UNROLL_CACHE"] = os.environ.get("UNROLL_CACHE"), str(world.given / "cache")
    large = encoding.CACHED_FROM, memorisation.CACHED_FROM
    encoding.CACHED_FROM = memorisation.CACHED_FROM = SMALL_CACHE
    try:
        Corpus.open(str(world.corpus))
        memorised(load(world.given / "run"), ["abc"])
    finally:
        encoding.CACHED_FROM, memorisation.CACHED_FROM = large
        del os.environ["UNROLL_CACHE"]
        if before is not None:
            os.environ["UNROLL_CACHE"] = before
    return world


def _sweep(world: World) -> None:
    """Two runs, one after the other; stopped while the second trains, with a third that cannot be trained."""
    asked = grid(corpus=str(world.corpus), k1=4, k2=[8, 9, 2000], **MODEL)
    folder, library = SweepFolder(world.given / "sweep"), Library()
    events = sweep(folder, library, describe(asked, library), most=1, save_every=2)
    ended = 0
    for report in events:
        ended += isinstance(report, RunEnded)
        if ended == 1 and isinstance(report, Progressed) and report.batch == STOPPED_AT + 1:
            break
    events.close()
    assert (folder.path / "failures.json").exists()


def fingerprint(path: Path) -> dict[str, str]:
    """All that is in a folder, down to its bytes and the time of their last change."""
    found = {}
    for place, folders, files in os.walk(path):
        for name in (*folders, *files):
            one = Path(place, name)
            facts = os.lstat(one)
            content = hashlib.sha256(one.read_bytes()).hexdigest() if stat.S_ISREG(facts.st_mode) else ""
            found[str(one.relative_to(path))] = f"{facts.st_mode} {facts.st_size} {facts.st_mtime_ns} {content}"
    return found


def results(folder: Path) -> dict[str, object]:
    """What a run came to, without clocks."""
    run = RunFolder(folder)
    tensors, _ = run.weights()
    weights = {name: hashlib.sha256(tensor.numpy().tobytes()).hexdigest() for name, tensor in tensors.items()}
    clocks = ("seconds", "evaluating", "fleet")
    lines = [{name: value for name, value in line.items() if name not in clocks} for line in run.metrics]
    return {"weights": weights, "metrics": lines, "state": run.status["state"]}


def as_json(ended: Ended, world: World) -> object:
    """What a command printed for a program, without where and how fast."""
    content = json.loads(ended.out.replace(str(world.path), ""))
    for name in ("seconds", "evaluating", "run"):
        content.pop(name, None)
    return content
