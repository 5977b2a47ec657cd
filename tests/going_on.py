"""Runs that begin from others, and runs that get longer: small ones, whose processes can be killed at any moment."""

from __future__ import annotations

import json
import os
import random
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import killing
import torch
from killing import Outcome, lived

from unroll import Corpus, Experiment, Run, Scheme, resume, train, train_from
from unroll.base import atomic_files
from unroll.base.errors import UnrollError

CARRIED = {"state": "carried", "sample": "progressive"}
LETTERS, OTHERS = "abcdefgh ", "efghijkl \n"
SAVE_EVERY = 3


def text(symbols: str, tokens: int = 400) -> str:
    drawn = random.Random(symbols)
    return symbols + "".join(drawn.choices(symbols, k=tokens - len(symbols)))


def corpus(symbols: str = LETTERS, tokens: int = 400) -> Corpus:
    return Corpus.from_text(text(symbols, tokens), "letters")


def experiment(batches: int = 12, **settings: Any) -> Experiment:
    model = {"hidden": 6, "dense": 8, "rows": 3, "dropout": 0.3, "learning_rate": 0.01, "seed": 5, "threads": 1}
    model |= {name: settings.pop(name) for name in list(settings) if name in Experiment.__dataclass_fields__}
    return Experiment(scheme=Scheme(**{"k1": 4, "k2": 6, **settings}), batches=batches, device="cpu", **model)


def tensors(run: Run) -> dict[str, torch.Tensor]:
    return run.folder.weights()[0]


def result(folder: Path) -> dict[str, Any]:
    """All that must not depend on kills, or on the way to a length: tensors, metrics and status but for clocks."""
    held: dict[str, Any] = {}
    for name in ("weights.safetensors", "best.safetensors", "optimiser.safetensors"):
        if (folder / name).exists():
            for tensor, value in atomic_files.unseal(folder / name)[0].items():
                held[f"{name} {tensor}"] = (str(value.dtype), tuple(value.shape), value.numpy().tobytes())
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    status = json.loads((folder / "status.json").read_text())
    return {
        **held,
        "metrics": [{k: v for k, v in line.items() if k != "seconds"} for line in lines],
        "status": {k: v for k, v in status.items() if k not in ("seconds", "evaluating", "clocks")},
        "run": re.sub('source = ".*"', "source = …", (folder / "run.toml").read_text()),
        "vocabulary": (folder / "vocabulary.json").read_text(),
        "files": sorted(path.name for path in folder.iterdir()),
    }


@dataclass(frozen=True)
class Life:
    """One process's life: what it does with the runs of a folder, and at which of its moments it is killed."""

    what: str  # a name in LIVES
    folder: str
    at: int = 0  # 0: never


def begin(folder: Path) -> None:
    """A child: from the run in `parent`, on the text in `other.txt`."""
    train_from(
        folder / "parent", folder / "other.txt", folder / "run", batches=14, new_symbols="add",
        optimiser_state="keep", save_every=SAVE_EVERY,
    )  # fmt: skip


def go_on(folder: Path) -> None:
    resume(folder / "run", save_every=SAVE_EVERY)


def extend(folder: Path) -> None:
    resume(folder / "run", 25, save_every=SAVE_EVERY)


LIVES: dict[str, Callable[[Path], None]] = {"begin": begin, "go on": go_on, "extend": extend}


def live(life: Life, report: Connection) -> None:
    torch.set_num_threads(1)
    count = 0

    def at(moment: str, batch: int) -> None:
        nonlocal count
        count += 1
        if count == life.at:
            report.send(("moment", (moment, batch)))
            os.kill(os.getpid(), signal.SIGKILL)

    with killing.moments(at):
        try:
            LIVES[life.what](Path(life.folder))
        except UnrollError as error:
            report.send(("raised", (type(error).__name__, str(error), error.exit_code)))


def run(what: str, folder: Path, at: int = 0) -> Outcome:
    """Live it in a process of its own."""
    return lived(live, Life(what, str(folder), at))


def moments_of(what: str, folder: Path) -> list[str]:
    """The moments of a life that nothing befalls."""
    seen: list[str] = []
    with killing.moments(lambda moment, batch: seen.append(moment)):
        LIVES[what](folder)
    return seen


def parent_in(folder: Path, **settings: Any) -> Run:
    """A parent that keeps its optimiser, and another text beside it."""
    (folder / "text.txt").write_text(text(LETTERS))
    (folder / "other.txt").write_text(text(OTHERS))
    chosen = experiment(**settings, corpus=str(folder / "text.txt"), keep_optimiser=True)
    return train(chosen, folder / "parent")
