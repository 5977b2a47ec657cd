"""A run's folder: what is written when, what is checked when it is read.

    run.toml               the whole configuration, resolved; the corpus as it lies seen from this folder
    status.json            training, interrupted, finished or stopped; the batch; what it ran on
    vocabulary.json        kind, and symbols in id order
    metrics.jsonl          one line an evaluation
    samples.jsonl          a short text of the model at each evaluation, where `unroll train` trained it; not sealed
    weights.safetensors    when it has ended
    best.safetensors       then: the weights of its best evaluation; until then they are in the checkpoints
    checkpoints/           until then: the last two, from which it resumes exactly
    optimiser.safetensors  where that was asked for: the state after its last batch, from which it can be made longer
    tensorboard/           event files, where TensorBoard was told (`runs/tracker_files.py`)
    tracking.json          where another tracker was told: the secret by which it knows this run again
    .lock                  while a process trains it (`base/locks.py`)
    perplexity.png         the curve, where `unroll train` trained it: a sweep draws none

Order matters: a metrics line is on disk before the checkpoint that counts it, and a checkpoint records how long
metrics.jsonl was. On resume the file is cut back to that, and training says those lines again.

A folder may come from a stranger, or be damaged. Only regular files are read and written here, never through a link,
and only files under the names above are ever deleted. The weights carry what the other files must agree with: run.toml,
and digests of the vocabulary and of the metrics. No clock is in them, so that equal runs have equal files of weights.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from unroll.base import atomic_files, locks, untrusted
from unroll.base.errors import ConfigurationError, RunError, UnrollError
from unroll.base.untrusted import KILOBYTE, MEGABYTE
from unroll.base.wording import go_on, go_on_with_sweep
from unroll.corpus.tokens import Vocabulary
from unroll.experiment import corpus_place
from unroll.experiment.experiment import Experiment, differences, read_toml, write_toml
from unroll.runs import metric_lines, selection, status_file, tracker_files
from unroll.runs.checkpoints import Checkpoint, Checkpoints, read_checkpoint
from unroll.runs.tracker_files import EVENTS, MOST, SECRET, EventFiles

if TYPE_CHECKING:
    from torch import Tensor

Meaning = TypeVar("Meaning")

CHECKPOINTS = "checkpoints"
KEPT = "optimiser.safetensors"
# The files of a run, with the most bytes that each is read to have.
SIZES = {
    "run.toml": 64 * KILOBYTE,
    "status.json": 64 * KILOBYTE,
    "vocabulary.json": 48 * MEGABYTE,
    "metrics.jsonl": 16 * MEGABYTE,
    "samples.jsonl": None,  # is never read, and decides nothing
    "weights.safetensors": None,  # follows from the model
    "best.safetensors": None,  # as well
    KEPT: None,
    "perplexity.png": None,  # is never read
    SECRET: MOST,
}
FOLDERS = (CHECKPOINTS, EVENTS)
SPARE = MEGABYTE  # bytes that a tensor file may have beside its tensors
UNFINISHED = {"vocabulary.json"}  # what `create` has written when it has not yet written run.toml, which is the last


def changed_since(facts: Mapping[str, str], experiment: Experiment) -> list[str]:
    """What an experiment says otherwise than it did when weights with these facts were saved, in words."""
    return differences(_saved(facts), experiment) if "run" in facts else []


def _saved(facts: Mapping[str, str]) -> Experiment:
    return read_toml(facts["run"], "the saved run.toml")


class RunFolder:
    """The files of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._checkpoints = Checkpoints(self.path / CHECKPOINTS)
        self._last_line: tuple[int, str] | None = None  # how long metrics.jsonl was, and its last line's digest
        self._parsed: dict[str, tuple[str, Any]] = {}  # of a file: the text that was parsed last, and its meaning

    @classmethod
    def create(cls, path: str | Path, experiment: Experiment, vocabulary: Vocabulary) -> RunFolder:
        """A new folder, refused where one with anything in it exists."""
        folder = cls(path)
        folder.make()
        folder.describe(experiment, vocabulary)
        return folder

    def make(self) -> None:
        """The folder itself, empty."""
        self.refuse_occupied()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(
                f"Cannot make the folder {self.path}: {error.strerror}. Choose another with --out."
            ) from None

    def describe(self, experiment: Experiment, vocabulary: Vocabulary) -> None:
        """Write down what will be trained, into an empty folder."""
        self.refuse_occupied()
        atomic_files.write(self.path / "vocabulary.json", vocabulary.to_json().encode())
        self.experiment = experiment

    def begin(self, experiment: Experiment, vocabulary: Vocabulary) -> None:
        """Create the folder unless it is a run already; what a crash left of an earlier attempt is cleared away."""
        if self.is_run():
            return
        if untrusted.is_folder(self.path):
            atomic_files.clear_partials(self.path, SIZES.__contains__, alone=True)
            paths = list(locks.others(self.path))
            if all(path.name in UNFINISHED and untrusted.is_regular(path) for path in paths):
                for path in paths:
                    path.unlink()
        RunFolder.create(self.path, experiment, vocabulary)

    def require_own_kind(self) -> None:
        """A run's folder holds regular files, and two folders, under our names: a RunError where it does not."""
        wrong = []
        for name in (*SIZES, *FOLDERS):
            path = self.path / name
            try:
                wants_folder = name in FOLDERS
                kind = untrusted.unlike_file(os.lstat(path).st_mode) or "a file"
                if kind != ("a folder" if wants_folder else "a file"):
                    wrong.append(f"{path} must be {'a folder' if wants_folder else 'a regular file'}: it is {kind}.")
            except OSError:
                continue  # what is missing is said where it is needed
        if wrong:
            raise RunError(*wrong)

    def has_saved(self) -> bool:
        """Whether there is anything that training anew would lose."""
        return bool(self.checkpoints()) or self.has_ended()

    def has_ended(self) -> bool:
        """Whether it finished or stopped: it is never trained again."""
        return self.is_run() and self.status["state"] in status_file.ENDED

    def refuse_occupied(self) -> None:
        """Nothing that exists is ever written over."""
        try:
            occupied = untrusted.present(self.path) and (not self.path.is_dir() or any(locks.others(self.path)))
        except (OSError, ValueError) as error:  # a name that is too long, or a folder that may not be looked into
            raise RunError(f"Cannot use the folder {self.path}: {error}. Choose another with --out.") from None
        if occupied:
            goes_on = False
            with suppress(RunError):  # resuming it says what is wrong with it
                goes_on = self.is_run() and not self.has_ended()
            advice = f"Go on with it: {go_on(self.path)}. Or choose" if goes_on else "Choose"
            raise RunError(f"{self.path} exists and is not empty. {advice} another folder with --out.")

    def has_more_than_begun(self) -> bool:
        """Whether there is more than what `create` has written when it has not yet written run.toml."""
        if not untrusted.is_folder(self.path):
            return False
        names = {path.name for path in locks.others(self.path) if not path.name.endswith(atomic_files.PARTIAL)}
        return not names <= UNFINISHED

    def is_run(self) -> bool:
        """Whether this looks like a run at all."""
        return untrusted.is_regular(self.path / "run.toml")

    @property
    def experiment(self) -> Experiment:
        """run.toml, read and checked."""
        where = str(self.path / "run.toml")
        try:
            return self._meaning("run.toml", self._read)
        except ConfigurationError as error:
            # What is out of range is said as for an option, which is in no file.
            raise ConfigurationError(*(p if where in p else f"{p} ({where})" for p in error.problems)) from None

    @experiment.setter
    def experiment(self, experiment: Experiment) -> None:
        atomic_files.write(self.path / "run.toml", write_toml(corpus_place.shared(experiment, self.path)).encode())

    def _read(self, text: str, where: str) -> Experiment:
        return corpus_place.whole(read_toml(text, where), self.path)

    def described(self) -> tuple[Experiment, list[str]]:
        """What was trained, as far as the weights tell, and in words what run.toml says otherwise."""
        experiment = self.experiment
        facts = self.carried_facts()
        if "run" not in facts:
            self.require_identity(experiment)
            return experiment, []
        changes = changed_since(facts, experiment)
        if not changes:
            title = _saved(facts).title
            return experiment, [] if experiment.title == title else [f"title was {title}, is {experiment.title}"]
        return replace(_saved(facts), corpus=experiment.corpus), changes

    def require_identity(self, experiment: Experiment) -> None:
        """An experiment must be the one that status.json knows, where no weights tell more; a run may get longer."""
        status = self.status
        batches = status.get("batches") or experiment.batches
        if status.get("identity") and replace(experiment, batches=int(batches)).identity != status["identity"]:
            raise RunError(
                f"{self.path / 'run.toml'} was changed: it is not what this run was begun with. "
                "Bring it back from a copy."
            )

    @property
    def vocabulary(self) -> Vocabulary:
        """vocabulary.json, read and checked."""
        return self._meaning("vocabulary.json", Vocabulary.from_json)

    @property
    def status(self) -> dict[str, Any]:
        """status.json; {"state": "new"} where training has not begun."""
        # It is written before anything that training makes: beside any of that, its absence means a half-copied folder.
        made = ("status.json", "metrics.jsonl", CHECKPOINTS, "weights.safetensors")
        if not any(untrusted.present(self.path / name) for name in made):
            return {"state": "new", "batch": 0}
        text = self._text("status.json")
        try:
            return status_file.read(text)
        except ValueError as error:
            raise RunError(
                f"{self.path / 'status.json'} is damaged: it must be a JSON object with a state and a batch ({error})."
            ) from None

    @status.setter
    def status(self, status: Mapping[str, Any]) -> None:
        atomic_files.write(self.path / "status.json", status_file.write(status).encode())

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The evaluations so far; a last line cut off by a crash is left out."""
        path = self.path / "metrics.jsonl"
        content = self._metrics_bytes()
        lines, chain = self._lines(content)
        last = lines[-1]["batch"] if lines else 0
        status = self.status
        if status["state"] == "finished" and last != status["batch"]:
            raise RunError(
                f"{path} ends at batch {last:,}, but the run finished after {status['batch']:,}. Copy the whole folder."
            )
        # Killed between its weights and its status, a run goes on from its checkpoint: that is what it must agree with.
        unfinished = self.has_weights() and status["state"] not in status_file.ENDED and self.checkpoints()
        facts = self._checkpoints.newest_facts() if unfinished else self.carried_facts()
        size = int(facts["metrics_bytes"]) if facts.get("metrics_bytes", "").isdecimal() else len(content)
        # Lines may have been cut off at the end: resuming the run warns of that.
        is_whole = _hash(content[:size]) == facts.get("metrics", _hash(content[:size])) or len(content) < size
        if not is_whole or facts.get("chain", chain) != chain:
            raise RunError(f"{path} is damaged: it is not what the weights were stored with.")
        ended = status["state"] in status_file.ENDED
        if ended and not status_file.clocks_are_whole(status, lines):
            raise RunError(f"{path} or {self.path / 'status.json'} is damaged: its clocks were changed.")
        sealed = "metrics" in facts and self.has_weights()
        if status["state"] == "finished" and sealed and not status_file.clocks_agree(status, facts):
            raise RunError(f"{self.path / 'status.json'} is damaged: its clocks are not those that the weights carry.")
        return lines

    def _metrics_bytes(self, size: int | None = None) -> bytes:
        """The content of metrics.jsonl, or its first `size` bytes; nothing where there is none yet."""
        path = self.path / "metrics.jsonl"
        if not untrusted.present(path):
            return b""
        try:
            return untrusted.read(path, SIZES["metrics.jsonl"] or 0)[:size]
        except OSError as error:
            raise RunError(f"{path} cannot be read: {error.strerror or error}.") from None

    def _lines(self, content: bytes) -> tuple[list[dict[str, Any]], str]:
        try:
            return metric_lines.read(content)
        except ValueError as error:
            raise RunError(f"{self.path / 'metrics.jsonl'} is damaged: {error}.") from None

    def carried_facts(self) -> dict[str, str]:
        """What the newest weights say of the run; nothing where there are none, or none that can be read."""
        if self.has_weights():
            with suppress(RunError):
                return atomic_files.header_facts(self.path / "weights.safetensors")
            return {}
        return self._checkpoints.newest_facts()

    def record(self, metrics: Mapping[str, Any]) -> None:
        """Add an evaluation."""
        path, said = self.path / "metrics.jsonl", atomic_files.finite(dict(metrics))
        size = path.stat().st_size if untrusted.is_regular(path) else 0
        if self._last_line is None or self._last_line[0] != size:
            self._last_line = size, self._lines(self._metrics_bytes())[1]
        before = self._last_line[1]
        self._last_line = atomic_files.append(path, metric_lines.write(before, said)), metric_lines.link(before, said)

    def keep_sample(self, sample: Mapping[str, Any]) -> None:
        """Add a short text of the model."""
        atomic_files.append(self.path / "samples.jsonl", json.dumps(sample))

    def save(self, batch: int, tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> None:
        """Write a checkpoint that counts the metrics so far; the last two are kept."""
        self._checkpoints.write(batch, tensors, self._counting(batch, facts))

    def _counting(self, batch: int, facts: Mapping[str, str]) -> dict[str, str]:
        content = self._metrics_bytes()
        samples = self.path / "samples.jsonl"
        size = samples.stat().st_size if untrusted.is_regular(samples) else 0
        counted = {"batch": str(batch), "metrics_bytes": str(len(content)), "samples_bytes": str(size)}
        return {**facts, **counted, "metrics": _hash(content)}

    @property
    def kept_path(self) -> Path:
        """The state after the last batch, where a run keeps it."""
        return self.path / KEPT

    def has_kept(self) -> bool:
        """Whether there is anything under that name."""
        return untrusted.present(self.kept_path)

    def keep(self, batch: int, tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> None:
        """Write the state after the last batch: a checkpoint that stays when the run ends."""
        atomic_files.write(self.kept_path, atomic_files.seal(tensors, self._counting(batch, facts)))

    def kept(self) -> Checkpoint:
        """That state, or a RunError that says what is wrong with it."""
        return read_checkpoint(self.kept_path, self.most_bytes())

    def drop_kept(self) -> None:
        """Delete that state."""
        self.kept_path.unlink(missing_ok=True)

    def reopen(self, end: Checkpoint, status: Mapping[str, Any]) -> None:
        """Make a run that has ended one that stopped at its last batch; killed at any moment, it is one of the two."""
        self._checkpoints.write(end.batch, end.tensors, end.facts)
        self.status = status
        (self.path / "weights.safetensors").unlink(missing_ok=True)
        (self.path / "best.safetensors").unlink(missing_ok=True)

    def checkpoints(self) -> list[int]:
        """The batches at which there is a checkpoint, good or bad, in order."""
        return self._checkpoints.batches()

    def checkpoint(self, batch: int) -> Checkpoint:
        """A checkpoint, or a RunError that says what is wrong with it."""
        return self._checkpoints.read(batch, self.most_bytes())

    def weights(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """The weights at the end and what they carry, or a RunError."""
        return atomic_files.unseal(self.path / "weights.safetensors", self.most_bytes())

    def best_weights(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """The weights of the best evaluation of a run that has ended and what they carry, or a RunError."""
        path = self.path / "best.safetensors"
        if not untrusted.present(path):
            raise RunError(
                f"{path} is missing: the run is of a version that did not keep its best weights, none of its "
                "evaluations was finite, or the file was left behind. Use the last weights, with --weights last."
            )
        tensors, facts = atomic_files.unseal(path, self.most_bytes())
        last = self.carried_facts()
        if facts.get("identity") != last.get("identity", facts.get("identity")):
            raise RunError(f"{path} holds the weights of another run. Bring it back from a copy.")
        best = selection.lowest(selection.history(self.metrics, self.experiment))
        if best is None or facts.get("batch") != str(best.batch):
            raise RunError(f"{path} is not of the batch at which this run was best. Bring it back from a copy.")
        return tensors, facts

    def has_weights(self) -> bool:
        """Whether there is anything under the name of the weights at the end."""
        return untrusted.present(self.path / "weights.safetensors")

    def require_weights(self) -> None:
        """A RunError where the weights of a run that has ended are gone or cut; their hash is not looked at."""
        path = self.path / "weights.safetensors"
        remedy = "Bring the file back from a copy; or delete the run's folder, and the same command trains it again."
        if not self.has_weights():
            raise RunError(f"{path} is missing, though the run has {self.status['state']}. {remedy}")
        try:
            atomic_files.header_facts(path)
        except RunError as error:
            raise RunError(f"{error} {remedy}") from None

    def most_bytes(self) -> int:
        """No tensor file of this run is larger: its parameters, what the optimiser keeps of each, and its states."""
        from unroll.runs.sizes import checkpoint_numbers

        return SPARE + 8 * checkpoint_numbers(self.experiment, len(self.vocabulary))

    def require_vocabulary(self, facts: Mapping[str, str]) -> None:
        """The symbols must be those that weights with these facts were trained with; older weights do not say."""
        if facts.get("vocabulary", self.vocabulary.digest) != self.vocabulary.digest:
            raise RunError(
                f"{self.path / 'vocabulary.json'} is not the vocabulary that the weights were trained with: its "
                "symbols were changed. Bring it back from a copy."
            )

    def _require_metrics(self, checkpoint: Checkpoint) -> None:
        """To go on from a checkpoint, the lines that it counts must be there."""
        metrics, counted = self.path / "metrics.jsonl", int(checkpoint.facts["metrics_bytes"])
        content = self._metrics_bytes()
        name = self._checkpoints.path(checkpoint.batch).name
        if len(content) < counted:
            raise RunError(f"{metrics} has {len(content):,} bytes, fewer than the {counted:,} that {name} counts.")
        self._lines(content[:counted])
        if checkpoint.facts.get("metrics", _hash(content[:counted])) != _hash(content[:counted]):
            raise RunError(f"{metrics} is damaged: its first {counted:,} bytes are not those that {name} counts.")

    def require_goes_on(self, checkpoint: Checkpoint) -> None:
        """The other files must be those that a checkpoint counts, so that the run can go on from it."""
        self._require_metrics(checkpoint)
        self.require_vocabulary(checkpoint.facts)
        if changes := changed_since(checkpoint.facts, self.experiment):
            raise RunError(f"{self.path / 'run.toml'} was changed: {'; '.join(changes)}. Bring it back from a copy.")

    def good_checkpoints(self, warnings: list[str], goes_on: bool = True) -> Iterator[Checkpoint]:
        """Whole checkpoints, newest first, from which a run `goes_on`; the others are passed over with a warning."""
        for batch in reversed(self.checkpoints()):
            try:
                checkpoint = self.checkpoint(batch)
                if goes_on:
                    self._require_metrics(checkpoint)
                yield checkpoint
            except RunError as error:
                warnings.append(f"{error} It is passed over.")

    def rewind(self, checkpoint: Checkpoint) -> None:
        """Cut metrics.jsonl and samples.jsonl to what a checkpoint counts, and drop the checkpoints after it."""
        if untrusted.present(self.path / "metrics.jsonl"):
            atomic_files.cut(self.path / "metrics.jsonl", int(checkpoint.facts["metrics_bytes"]))
        counted, samples = checkpoint.facts.get("samples_bytes", "0"), self.path / "samples.jsonl"
        if untrusted.present(samples):
            size = int(counted) if counted.isdecimal() else 0
            atomic_files.cut(samples, min(size, samples.stat().st_size))  # it may have been deleted, or cut by hand
        self._checkpoints.drop(after=checkpoint.batch)

    def keep_best(self, weights: Mapping[str, Tensor], facts: Mapping[str, str]) -> None:
        """Store the weights of the best evaluation. Equal runs have equal files: no clock stands in it."""
        known = {name: value for name, value in facts.items() if name not in status_file.CLOCKS}
        atomic_files.write(self.path / "best.safetensors", atomic_files.seal(weights, known))

    def finish(
        self, weights: Mapping[str, Tensor], facts: Mapping[str, str], status: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Store the weights, say so, and only then drop the checkpoints; the status as it stands now."""
        known = {name: fact for name, fact in facts.items() if name not in status_file.CLOCKS}
        with suppress(RunError):  # lines that somebody damaged meanwhile cost no weights; reading them says so
            lines, known["chain"] = self._lines(self._metrics_bytes())
            status = status_file.with_clocks(status, lines)
        atomic_files.write(self.path / "weights.safetensors", atomic_files.seal(weights, known))
        self.status = status
        self.drop_checkpoints()
        return dict(status)

    def drop_checkpoints(self) -> None:
        """A run that has ended needs none, once its weights are there."""
        self._checkpoints.remove()

    def clear_partials(self) -> None:
        """Remove what killed processes left half written. Only a process that holds the folder may."""
        atomic_files.clear_partials(self.path, SIZES.__contains__, alone=True)
        self._checkpoints.clear_partials()

    @property
    def event_files(self) -> EventFiles:
        """Its event files for TensorBoard."""
        return EventFiles(self.path / EVENTS)

    def tracking_key(self) -> str:
        """What other trackers know this run by, the same after each resume; or a RunError."""
        return tracker_files.key(self.path / SECRET)

    def remove(self) -> None:
        """Delete the run: its files, and the folder unless it holds something else."""
        self.drop_checkpoints()
        self.event_files.remove()
        self.clear_partials()
        for name in SIZES:
            with suppress(OSError):
                (self.path / name).unlink()
        if untrusted.is_folder(self.path):
            with suppress(OSError):
                (self.path / locks.NAME).unlink(missing_ok=True)  # the lock of the process that deletes the run
                self.path.rmdir()

    def locked(self) -> AbstractContextManager[str | None]:
        """Hold the folder, since two processes cannot train one run; gives a note on a lock that was left over."""
        return locks.hold(
            self.path,
            missing=f"{self.path} is not a run folder. Give the folder that `unroll train --out` made.",
            busy=f"Another process is training {self.path}. Wait for it, or choose another folder.",
        )

    def tidy(self) -> None:
        """Remove what a dead process left in a run that had ended: its lock, half a file, checkpoints."""
        # Another process may hold it, or it can only be read.
        with suppress(OSError, UnrollError):
            left = (locks.NAME, CHECKPOINTS)
            if any(path.name in left or path.name.endswith(atomic_files.PARTIAL) for path in self.path.iterdir()):
                with self.locked():
                    self.require_weights()
                    self.clear_partials()
                    self.drop_checkpoints()

    def _meaning(self, name: str, parse: Callable[[str, str], Meaning]) -> Meaning:
        """What a file says. It is read every time, and parsed only where its text has changed."""
        text = self._text(name)
        if name not in self._parsed or self._parsed[name][0] != text:
            self._parsed[name] = text, parse(text, str(self.path / name))
        meaning: Meaning = self._parsed[name][1]
        return meaning

    def _text(self, name: str) -> str:
        path = self.path / name
        if not os.path.isdir(self.path):
            kind = (
                "a pickle, which can run code when it is opened; it is not loaded"
                if self._pickle()
                else "not a run folder"
            )
            raise RunError(f"{self.path} is {kind}. Give the folder that `unroll train --out` made.")
        try:
            return untrusted.read(path, SIZES[name] or 0).decode()
        except FileNotFoundError:
            if untrusted.is_regular(self.path / "sweep.json"):
                raise RunError(
                    f"{self.path} is a sweep: its runs are in {self.path / 'runs'}. Give one of them; "
                    f"the sweep itself goes on with: {go_on_with_sweep(self.path)}"
                ) from None
            raise RunError(f"{path} is missing: a run folder holds one. Copy the whole folder.") from None
        except UnicodeDecodeError as error:
            raise RunError(f"{path} cannot be read: {error}.") from None
        except OSError as error:
            raise RunError(f"{path} cannot be read: {error.strerror or error}.") from None

    def _pickle(self) -> bool:
        return self.path.suffix in atomic_files.PICKLES


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
