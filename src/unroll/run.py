"""A run's folder: what is written when, what is checked when it is read.

    run.toml               the whole configuration, resolved
    status.json            training, interrupted, finished or stopped; the batch; what it ran on
    vocabulary.json        kind, and symbols in id order
    metrics.jsonl          one line an evaluation
    weights.safetensors    when it has ended
    checkpoints/           until then: the last two, from which it resumes exactly
    perplexity.png         the curve, where `unroll train` trained it: a sweep draws none

Order matters: a metrics line is on disk before the checkpoint that counts it, and a checkpoint records how long
metrics.jsonl was. On resume the file is cut back to that, and training says those lines again.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unroll import durable, locking
from unroll.errors import RunError, SaveError
from unroll.experiment import Experiment, differences, read_toml, write_toml
from unroll.tokens import Vocabulary

if TYPE_CHECKING:
    from torch import Tensor

KEPT = 2  # checkpoints
# What `create` has written when it has not yet written run.toml, which is the last.
UNFINISHED = {"vocabulary.json", "vocabulary.json" + durable.PARTIAL, "run.toml" + durable.PARTIAL}


@dataclass(frozen=True)
class Checkpoint:
    """A run at one batch."""

    batch: int
    tensors: dict[str, Tensor]
    facts: dict[str, str]


def changed_since(facts: Mapping[str, str], experiment: Experiment) -> list[str]:
    """What an experiment says otherwise than it did when weights with these facts were saved, in words."""
    return differences(read_toml(facts["run"], "the saved run.toml"), experiment) if "run" in facts else []


class RunFolder:
    """The files of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @classmethod
    def create(cls, path: str | Path, experiment: Experiment, vocabulary: Vocabulary) -> RunFolder:
        """A new folder, refused where one with anything in it exists."""
        folder = cls(path)
        folder.refuse_occupied()
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"Cannot make the folder {path}: {error.strerror}. Choose another with --out.") from None
        durable.write(folder.path / "vocabulary.json", vocabulary.to_json().encode())
        durable.write(folder.path / "run.toml", write_toml(experiment).encode())
        return folder

    def begin(self, experiment: Experiment, vocabulary: Vocabulary) -> None:
        """Create the folder unless it is a run already; what a crash left of an earlier attempt is cleared away."""
        if self.is_run():
            return
        found = list(self.path.iterdir()) if self.path.is_dir() else []
        if all(path.name in UNFINISHED and path.is_file() and not path.is_symlink() for path in found):
            for path in found:
                path.unlink()
        RunFolder.create(self.path, experiment, vocabulary)

    def has_saved(self) -> bool:
        """Whether there is anything that training anew would lose."""
        return bool(self.checkpoints()) or self.has_ended()

    def has_ended(self) -> bool:
        """Whether it finished or stopped: it is never trained again."""
        return self.is_run() and self.status["state"] in ("finished", "stopped")

    def refuse_occupied(self) -> None:
        """Nothing that exists is ever written over."""
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            goes_on = False
            with suppress(RunError):  # what is wrong with it is said where it is gone on with
                goes_on = self.is_run() and not self.has_ended()
            advice = f"Go on with it: unroll train --resume {self.path}. Or choose" if goes_on else "Choose"
            raise RunError(f"{self.path} exists and is not empty. {advice} another folder with --out.")

    def is_run(self) -> bool:
        """Whether this looks like a run at all."""
        return (self.path / "run.toml").is_file()

    @property
    def experiment(self) -> Experiment:
        """run.toml, read and checked."""
        return read_toml(self._text("run.toml"), str(self.path / "run.toml"))

    @experiment.setter
    def experiment(self, experiment: Experiment) -> None:
        durable.write(self.path / "run.toml", write_toml(experiment).encode())

    @property
    def vocabulary(self) -> Vocabulary:
        """vocabulary.json, read and checked."""
        return Vocabulary.from_json(self._text("vocabulary.json"), str(self.path / "vocabulary.json"))

    @property
    def status(self) -> dict[str, Any]:
        """status.json; {"state": "new"} where training has not begun."""
        # It is written before anything that training makes: beside any of that, its absence means a half-copied folder.
        begun = any((self.path / name).exists() for name in ("metrics.jsonl", "checkpoints", "weights.safetensors"))
        if not begun and not (self.path / "status.json").exists():
            return {"state": "new", "batch": 0}
        try:
            content = json.loads(self._text("status.json"))
            if not isinstance(content["state"], str) or not isinstance(content["batch"], int):
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise RunError(
                f"{self.path / 'status.json'} is damaged: it must be a JSON object with a state and a batch."
            ) from None
        return dict(content)

    @status.setter
    def status(self, status: Mapping[str, Any]) -> None:
        durable.write(self.path / "status.json", (json.dumps(status, indent=1) + "\n").encode())

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The evaluations so far; a last line cut off by a crash is left out."""
        path = self.path / "metrics.jsonl"
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        try:
            content = [dict(json.loads(line)) for line in lines]
            last = int(content[-1]["batch"]) if content else 0
        except (ValueError, TypeError, KeyError):
            raise RunError(f"{path} is damaged: each line must be a JSON object with a batch.") from None
        status = self.status
        if status["state"] == "finished" and last != status["batch"]:
            raise RunError(
                f"{path} ends at batch {last:,}, but the run finished after {status['batch']:,}. Copy the whole folder."
            )
        return content

    def record(self, metrics: Mapping[str, Any]) -> None:
        """Add an evaluation."""
        durable.append(self.path / "metrics.jsonl", json.dumps(durable.finite(dict(metrics))))

    def save(self, batch: int, tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> None:
        """Write a checkpoint and drop all but the last two."""
        folder = self.path / "checkpoints"
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise SaveError(f"Could not make {folder}: {error.strerror}.") from None
        metrics = self.path / "metrics.jsonl"
        size = metrics.stat().st_size if metrics.exists() else 0
        known = {**facts, "batch": str(batch), "metrics_bytes": str(size)}
        durable.write(folder / f"batch-{batch:09d}.safetensors", durable.seal(tensors, known))
        for old in self.checkpoints()[:-KEPT]:
            self._checkpoint(old).unlink(missing_ok=True)

    def checkpoints(self) -> list[int]:
        """The batches at which there is a checkpoint, good or bad, in order."""
        names = (re.fullmatch(r"batch-(\d+)\.safetensors", p.name) for p in (self.path / "checkpoints").glob("*"))
        return sorted(int(name[1]) for name in names if name)

    def checkpoint(self, batch: int) -> Checkpoint:
        """A checkpoint, or a RunError that says what is wrong with it."""
        path = self._checkpoint(batch)
        tensors, facts = durable.unseal(path)
        try:
            stated, _, _ = int(facts["batch"]), int(facts["metrics_bytes"]), float(facts["seconds"])
        except (KeyError, ValueError):
            raise RunError(f"{path} is no checkpoint: its batch, metrics_bytes or seconds are missing.") from None
        if stated != batch:
            raise RunError(f"{path} is the checkpoint of batch {stated:,}, whatever its name says.")
        return Checkpoint(batch, tensors, facts)

    def _require_metrics(self, checkpoint: Checkpoint) -> None:
        """To go on from a checkpoint, the lines that it counts must be there."""
        metrics, counted = self.path / "metrics.jsonl", int(checkpoint.facts["metrics_bytes"])
        size = metrics.stat().st_size if metrics.exists() else 0
        if size < counted:
            name = self._checkpoint(checkpoint.batch).name
            raise RunError(f"{metrics} has {size:,} bytes, fewer than the {counted:,} that {name} counts.")

    def good_checkpoints(self, warnings: list[str], goes_on: bool = True) -> Iterator[Checkpoint]:
        """Whole checkpoints, newest first, from which a run `goes_on`; others are told and passed over."""
        for batch in reversed(self.checkpoints()):
            try:
                found = self.checkpoint(batch)
                if goes_on:
                    self._require_metrics(found)
                yield found
            except RunError as error:
                warnings.append(f"{error} It is passed over.")

    def rewind(self, checkpoint: Checkpoint) -> None:
        """Cut metrics.jsonl back to what a checkpoint counts, and drop the checkpoints after it."""
        metrics = self.path / "metrics.jsonl"
        if metrics.exists():
            with open(metrics, "r+b") as file:
                file.truncate(int(checkpoint.facts["metrics_bytes"]))
                os.fsync(file.fileno())
        for batch in self.checkpoints():
            if batch > checkpoint.batch:
                self._checkpoint(batch).unlink(missing_ok=True)

    def finish(self, weights: Mapping[str, Tensor], facts: Mapping[str, str], status: Mapping[str, Any]) -> None:
        """Store the weights, say so, and only then drop the checkpoints."""
        durable.write(self.path / "weights.safetensors", durable.seal(weights, facts))
        self.status = status
        self.drop_checkpoints()

    def drop_checkpoints(self) -> None:
        """A run that has ended needs none."""
        folder = self.path / "checkpoints"
        for path in folder.glob("*") if folder.exists() else ():
            path.unlink()
        with suppress(OSError):
            folder.rmdir()

    def locked(self) -> AbstractContextManager[None]:
        """Hold the folder: two processes cannot train one run."""
        return locking.hold(
            self.path,
            missing=f"{self.path} is no run folder. Give the folder that `unroll train --out` made.",
            busy=f"Another process is training {self.path}. Wait for it, or choose another folder.",
        )

    def _checkpoint(self, batch: int) -> Path:
        return self.path / "checkpoints" / f"batch-{batch:09d}.safetensors"

    def _text(self, name: str) -> str:
        path = self.path / name
        if not self.path.is_dir():
            kind = (
                "a pickle, which can run code when it is opened; it is not loaded"
                if self._pickle()
                else "no run folder"
            )
            raise RunError(f"{self.path} is {kind}. Give the folder that `unroll train --out` made.")
        try:
            return path.read_text("utf-8")
        except FileNotFoundError:
            if (self.path / "sweep.json").is_file():
                raise RunError(
                    f"{self.path} is a sweep: its runs are in {self.path / 'runs'}. Give one of them; "
                    f"the sweep itself goes on with: unroll sweep --resume {self.path}"
                ) from None
            raise RunError(f"{path} is missing: a run folder holds one. Copy the whole folder.") from None
        except (OSError, UnicodeDecodeError) as error:
            raise RunError(f"{path} cannot be read: {error}.") from None

    def _pickle(self) -> bool:
        return self.path.suffix in durable.PICKLES
