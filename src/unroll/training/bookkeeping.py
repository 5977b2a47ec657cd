"""What the loop keeps beside the weights: clocks, evaluation points, folders, and which runs have ended."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, TypeVar

import numpy as np
import torch

from unroll.base.errors import RunError
from unroll.base.version import VERSION
from unroll.corpus.corpus import Corpus
from unroll.engines import devices
from unroll.experiment import provenance
from unroll.experiment.experiment import Experiment, write_toml
from unroll.model.conditioning import PROCEDURES
from unroll.model.model import Model
from unroll.model.network import States
from unroll.runs import corpus_place, metric_lines
from unroll.runs.checkpoints import Checkpoint
from unroll.runs.folder import RunFolder, changed_since
from unroll.runs.perplexities import Perplexity, middle, perplexities, token_nll
from unroll.training.events import Ended, Evaluated, Event, Resumed, Warned
from unroll.training.learner import Learner
from unroll.training.signals import Watch

SAVE_SECONDS = 10.0
SAVE_COST = 50.0  # a save every 50 times its own duration costs 2 %
BATCHES_BETWEEN_LOOKS = 100  # at the flags on the device

# A short text from a model of one run, as a line of samples.jsonl without its batch; None where it writes none.
Draw = Callable[[Model, Experiment, Corpus], dict[str, Any] | None]
Happening = TypeVar("Happening", bound=Event)


@cache
def evaluation_points(batches: int, count: int | None = None) -> tuple[int, ...]:
    """The paper's logarithmic grid, which does not depend on a run's length, up to and with the last batch.

    With a `count`, at most that many points instead, spread in the same way from the first batch to the last.

    >>> evaluation_points(12)
    (1, 2, 3, 4, 5, 7, 9, 11, 12)
    >>> evaluation_points(64, 8)
    (1, 2, 3, 6, 11, 20, 35, 64)
    """
    if count is not None:
        return tuple(sorted({round(batches ** (i / (count - 1))) for i in range(count)}))
    points, i = set(), 0
    while (point := round(12800 ** (i / 39))) < batches:
        points.add(point)
        i += 1
    return (*sorted(points), batches)


def seldom(batches: int, count: int | None = None) -> tuple[int, ...]:
    """The evaluation points at which a further power of 4 is reached, and the last.

    >>> seldom(12800)
    (1, 4, 18, 79, 264, 1133, 4852, 12800)
    """
    points = evaluation_points(batches, count)
    powers = [(point.bit_length() - 1) // 2 for point in points]
    first = [point for n, point in enumerate(points) if n == 0 or powers[n] > powers[n - 1]]
    return tuple(sorted({*first, batches}))


class Bookkeeping:
    """Clocks, evaluations, saving and ending of runs."""

    def __init__(
        self,
        learner: Learner,
        corpora: Sequence[Corpus],
        folders: Sequence[RunFolder],
        watch: Watch,
        save_every: int | None,
        draw: Draw | None = None,
    ) -> None:
        self.learner, self.folders, self.watch, self.save_every = learner, folders, watch, save_every
        self.draw, self.corpora = draw, corpora
        self.experiments = learner.experiments
        # The runs that are evaluated at each point of the grid.
        self.grid: dict[int, list[int]] = {}
        for m, experiment in enumerate(self.experiments):
            for point in evaluation_points(experiment.batches, experiment.evaluations):
                self.grid.setdefault(point, []).append(m)
        self.evaluated = [0] * len(folders)  # the last batch with a line in metrics.jsonl
        self.done = [False] * len(folders)
        self.unknown = list(dict.fromkeys(w for e in self.experiments for w in learner.engine.unknown(e)))
        self.seconds = self.evaluating = 0.0
        self.seen = learner.look()  # at the last look
        self.saved_at, self.save_cost, self.saved_batch = time.perf_counter(), 0.0, 0
        self.vocabularies = [corpus.vocabulary.digest for corpus in corpora]
        self.tests = [_test_ids(e, c, learner.model.device) for e, c in zip(self.experiments, corpora, strict=True)]

    @property
    def ended(self) -> bool:
        """Whether every run has finished or stopped."""
        return all(self.done)

    def event(self, kind: type[Happening], **facts: Any) -> Happening:
        """An event that carries the clocks."""
        return kind(self.learner, self.seconds, self.evaluating, self.seen.loss(0), **facts)

    def start(self, resume: bool) -> Iterator[Event]:
        """Say what should be known; with `resume`, put every run back to where it was."""
        for experiment in self.experiments:
            for message in experiment.warnings:
                yield self.event(Warned, message=message)
        if self.unknown:
            words = f"the fast engine here does not know {', '.join(self.unknown)}: computed plainly, which is slower."
            yield self.event(Warned, message=words)
        if resume:
            messages: list[str] = []
            self._resume(messages)
            self.seen = self.learner.look()
            for message in messages:
                yield self.event(Warned, message=message)
            if self.learner.count:
                yield self.event(Resumed)
        self._report("training")
        if not self.ended:
            self.learner.prepare()  # before the clock runs: what is made once is no training

    def _resume(self, messages: list[str]) -> None:
        """From the newest batch of which every run that goes on holds a whole checkpoint."""
        held: list[dict[int, Checkpoint]] = []
        for m, folder in enumerate(self.folders):
            self.done[m] = folder.status["state"] in ("finished", "stopped")
            if self.done[m]:
                folder.require_weights()
                folder.drop_checkpoints()  # it may have been killed before it could
            held.append({c.batch: c for c in folder.good_checkpoints(messages)})
        going = [m for m, done in enumerate(self.done) if not done]
        common = set.intersection(*(set(held[m]) for m in going)) if going else set()
        if not common:
            # To begin again would cut away what was trained: only where nothing was ever saved for all of them.
            if going and self._were_saved(going):
                names = ", ".join(str(self.folders[m].path) for m in going)
                raise RunError(
                    *messages,
                    f"No whole checkpoint of one batch is left to go on from in {names}. Bring back what is missing.",
                )
            if any(self.folders[m].status["state"] != "new" for m in going):
                messages.append("There is no checkpoint yet: training starts from the beginning.")
            for m in going:
                self.folders[m].require_identity(self.experiments[m])
                self.folders[m].rewind(Checkpoint(0, {}, {"metrics_bytes": "0"}))
            return
        batch = max(common)
        self.learner.count = self.saved_batch = batch
        for m in going:
            checkpoint = held[m][batch]
            self._require_fit(m, checkpoint)
            if "run" in checkpoint.facts:
                messages += provenance.changes(checkpoint.facts["run"], self.experiments[m])
        for m in going:
            checkpoint = held[m][batch]
            self.learner.restore(m, checkpoint.tensors)
            self.folders[m].rewind(checkpoint)
            self.seconds = float(checkpoint.facts["seconds"])
            self.evaluating = float(checkpoint.facts["evaluating"])
            lines = self.folders[m].metrics
            self.evaluated[m] = lines[-1]["batch"] if lines else 0

    def _were_saved(self, going: Sequence[int]) -> bool:
        """Whether these runs once held checkpoints of one batch, by what status.json or file names say."""
        files = set.intersection(*(set(self.folders[m].checkpoints()) for m in going))
        return bool(files) or any(self.folders[m].status["batch"] > 0 for m in going)

    def _require_fit(self, m: int, checkpoint: Checkpoint) -> None:
        """A whole checkpoint may still be that of another run."""
        path = self.folders[m].path
        self.folders[m].require_vocabulary(checkpoint.facts)
        if changes := changed_since(checkpoint.facts, self.experiments[m]):
            raise RunError(
                f"{path / 'run.toml'} was changed since batch {checkpoint.batch:,}: {'; '.join(changes)}. "
                "A run goes on as it began: put it back, or start a new run."
            )
        expected = {name: (t.shape, t.dtype) for name, t in self.learner.snapshot(m).items()}
        if expected != {name: (t.shape, t.dtype) for name, t in checkpoint.tensors.items()}:
            raise RunError(f"The checkpoint of batch {checkpoint.batch:,} in {path} is another model's.")

    def step(self) -> None:
        """One batch, on the clock."""
        began = time.perf_counter()
        self.learner.step()
        self.seconds += (time.perf_counter() - began) / len(self.folders)
        if self._looks():
            self._settle()

    def _looks(self) -> bool:
        """Whether to look at what is on the device: always where that costs nothing, else now and then."""
        count = self.learner.count
        return count % BATCHES_BETWEEN_LOOKS == 0 or count in self.grid or self.learner.engine.looks_cost_nothing

    def _settle(self) -> None:
        """Let the device finish what it was given, on the clock: queued training is training."""
        began = time.perf_counter()
        self.learner.engine.wait()
        self.seen = self.learner.look()
        self.seconds += (time.perf_counter() - began) / len(self.folders)

    @property
    def is_to_evaluate(self) -> bool:
        """Whether a run has reached a point of the grid at which it was not yet evaluated."""
        count = self.learner.count
        return any(not self.done[m] and self.evaluated[m] < count for m in self.grid.get(count, []))

    def evaluate_due(self) -> Iterator[Event]:
        """Evaluate the runs that have reached a point of the grid; end those that diverged or are through."""
        if not self._looks():
            return
        count, stopped = self.learner.count, {int(m) for m in np.flatnonzero(self.seen.stopped_M)}
        due = [
            m for m in self.grid.get(count, []) if not self.done[m] and m not in stopped and self.evaluated[m] < count
        ]
        lines = self._evaluate(due) if due else {}
        for m in sorted(stopped.union(due)):
            if self.done[m]:
                continue
            if m in stopped:
                yield self._end(m, self.seen.stopped(m))
                continue
            self.folders[m].record(lines[m])
            self.evaluated[m] = count
            sample = self._sample(m)
            yield self.event(Evaluated, run=m, metrics=metric_lines.flat(lines[m]), sample=sample)
            own = lines[m]["perplexity"][self.experiments[m].scheme.sample]
            if not math.isfinite(own):
                self.learner.fleet.last_M[m] = count  # its slot is computed no more
                yield self._end(m, (count + 1, None))
            elif count == self.experiments[m].batches:
                yield self._end(m, None)

    def _evaluate(self, due: Sequence[int]) -> dict[int, dict[str, Any]]:
        """A line of metrics for each of these runs."""
        began = time.perf_counter()
        needed = dict.fromkeys(procedure for m in due for procedure in self._procedures(m))
        scores = {procedure: self._scores(procedure) for procedure in needed}
        carried = self._carried_scores() if any(self.experiments[m].evaluate_carried for m in due) else {}
        self.evaluating += time.perf_counter() - began
        return {
            m: {
                "batch": self.learner.count,
                "sequences": self.learner.count * self.experiments[m].rows,
                "loss": loss,
                "perplexity": {procedure: scores[procedure][m] for procedure in self._procedures(m)},
                **({"carried": carried[m]} if m in carried else {}),
                "seconds": round(self.seconds, 6),
                "fleet": len(self.folders),
            }
            for m, loss in zip(due, self.learner.take_losses(due), strict=True)
        }

    def _sample(self, m: int) -> dict[str, Any] | None:
        """A short text of the run as it is now, kept in its folder, where somebody gave what draws one."""
        if self.draw is None or not self._draws(m):
            return None
        began = time.perf_counter()
        drawn = self.draw(self.learner.model.runs([m]), self.experiments[m], self.corpora[m])
        line = {"batch": self.learner.count, **drawn} if drawn is not None else None
        if line is not None:
            self.folders[m].keep_sample(line)
        self.evaluating += time.perf_counter() - began
        return line

    def _draws(self, m: int) -> bool:
        """Whether a text is drawn now: at each evaluation; where the host waits for a device, at few of them."""
        experiment, count = self.experiments[m], self.learner.count
        return self.learner.engine.looks_cost_nothing or count in seldom(experiment.batches, experiment.evaluations)

    def _procedures(self, m: int) -> tuple[str, ...]:
        """What a run is scored under now: the scheme's own procedure; both at the last point, or when asked."""
        experiment = self.experiments[m]
        first, is_last = experiment.scheme.sample, self.learner.count == experiment.batches
        both = is_last or experiment.evaluate == "both"
        return (first, *(p for p in PROCEDURES if p != first)) if both else (first,)

    def _scores(self, procedure: str) -> dict[int, float]:
        """The perplexity of every run scored under this procedure now, all in one pass.

        Runs that have ended keep their places in it, so that who is scored beside whom, and with it the last bits of
        every score, depends on the plan alone and not on when a training was interrupted.
        """
        together = [m for m in self.grid[self.learner.count] if procedure in self._procedures(m)]
        return {m: rows[0].perplexity for m, rows in self._together(together, procedure).items()}

    def _carried_scores(self) -> dict[int, float]:
        """Progressive from the states that the rows carry now: the median over rows."""
        together = [m for m in self.grid[self.learner.count] if self.experiments[m].evaluate_carried]
        slots = torch.tensor(together, device=self.learner.model.device)
        first = tuple(tuple(s[slots] for s in state) for state in self.learner.carried)
        return {m: middle(rows).perplexity for m, rows in self._together(together, "progressive", first).items()}

    def _together(
        self, runs: Sequence[int], procedure: str, first: States | None = None
    ) -> dict[int, list[Perplexity]]:
        """The perplexities of these runs, one for each row of `first`."""
        whole = self.learner.model
        model = whole if len(runs) == len(self.folders) else whole.runs(runs)
        texts, k2 = [self.tests[m] for m in runs], self.experiments[0].scheme.k2
        nll = token_nll(model, texts, k2, procedure, first=first, between=self.watch.check)
        return {m: perplexities(nll_NR) for m, nll_NR in zip(runs, nll, strict=True)}

    def _end(self, m: int, stopped: tuple[int, str | None] | None) -> Event:
        """Store the run's weights: its last good ones, where a batch could not be taken; else those it has."""
        self.done[m] = True
        status = self._status(m, "stopped" if stopped else "finished")
        if stopped:
            bad, words = stopped
            reason = f"At batch {bad} {words}" if words else f"After batch {bad - 1} the perplexity was not finite"
            status |= {"batch": bad - 1, "reason": f"{reason}."}
        status = self.folders[m].finish(self.learner.weights(m), self._facts(m), status)
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
        self._settle()
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
            "kernel": self.learner.engine.kernel,
            "threads": experiment.threads,
            "torch": torch.__version__,
            "unroll": VERSION,
            **({"plain": unknown} if (unknown := self.learner.engine.unknown(experiment)) else {}),
        }

    def _facts(self, m: int) -> dict[str, str]:
        experiment = self.experiments[m]
        return {
            "identity": experiment.identity,
            "run": write_toml(corpus_place.nameless(experiment)),
            "vocabulary": self.vocabularies[m],
            "seconds": repr(self.seconds),
            "evaluating": repr(self.evaluating),
        }


def _test_ids(experiment: Experiment, corpus: Corpus, device: torch.device) -> torch.Tensor:
    ids = corpus.test_ids(experiment.split_seed)[: experiment.test_tokens]
    return torch.from_numpy(ids.astype("int64")).to(device)
