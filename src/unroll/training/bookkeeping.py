"""What the loop keeps beside the weights: clocks, evaluation points, folders, and which runs have ended."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import numpy as np
import torch

from unroll.base.errors import RunError
from unroll.base.version import VERSION
from unroll.corpus.corpus import Corpus
from unroll.engines import devices
from unroll.experiment import corpus_place, provenance
from unroll.experiment.experiment import Experiment, write_toml
from unroll.model.conditioning import PROCEDURES
from unroll.model.model import Model
from unroll.model.network import States
from unroll.runs import metric_lines, selection
from unroll.runs.checkpoints import BEST_BATCH, BEST_PREFIX, Checkpoint
from unroll.runs.folder import RunFolder, changed_since
from unroll.runs.perplexities import Perplexity, middle, perplexities, token_nll
from unroll.training import orphans, stopping
from unroll.training.best_weights import BestWeights
from unroll.training.events import Ended, Evaluated, Event, Resumed, Warned
from unroll.training.following import Trackers
from unroll.training.learner import LARGEST, Learner
from unroll.training.signals import Watch
from unroll.training.stopping import Ending

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
        told: Trackers | None = None,
    ) -> None:
        self.learner, self.folders, self.watch, self.save_every = learner, folders, watch, save_every
        self.draw, self.corpora, self.told = draw, corpora, told or Trackers((), ())
        self.experiments = learner.experiments
        # The runs that are evaluated at each point of the grid.
        self.grid: dict[int, list[int]] = {}
        for m, experiment in enumerate(self.experiments):
            for point in evaluation_points(experiment.batches, experiment.evaluations):
                self.grid.setdefault(point, []).append(m)
        self.evaluated = [0] * len(folders)  # the last batch with a line in metrics.jsonl
        self.done = [False] * len(folders)
        # Each run's evaluations so far, by which its weights are chosen; on resume they come from metrics.jsonl.
        self.history: list[list[selection.Point]] = [[] for _ in folders]
        self.best = [BestWeights() for _ in folders]
        self.unknown = list(dict.fromkeys(w for e in self.experiments for w in learner.engine.unknown(e)))
        self.seconds = self.evaluating = 0.0
        self.seen = learner.look()  # at the last look
        self.saved_at, self.save_cost, self.saved_batch = time.perf_counter(), 0.0, 0
        self.vocabularies = [corpus.vocabulary.digest for corpus in corpora]
        # The texts that runs are scored on; only some runs have a validation set.
        held = [_held_out(e, c, learner.model.device) for e, c in zip(self.experiments, corpora, strict=True)]
        self.tests = {m: ids for m, (ids, _) in enumerate(held)}
        self.validations = {m: ids for m, (_, ids) in enumerate(held) if ids is not None}

    @property
    def ended(self) -> bool:
        """Whether every run has finished or stopped."""
        return all(self.done)

    def event(self, kind: type[Happening], **facts: Any) -> Happening:
        """An event that carries the clocks."""
        return kind(self.learner, self.seconds, self.evaluating, self.seen.loss(0), **facts)

    def warned(self, messages: Iterable[str]) -> Iterator[Event]:
        """Events that say these."""
        for message in messages:
            yield self.event(Warned, message=message)

    def start(self, resume: bool) -> Iterator[Event]:
        """Say what should be known; with `resume`, put every run back to where it was."""
        for m, experiment in enumerate(self.experiments):
            for message in experiment.warnings:
                yield self.event(Warned, message=message)
            if self.learner.rates.watches(m) and m not in self.validations:
                words = f"the schedule {experiment.schedule} watches the test set: its perplexity decides the training."
                yield self.event(Warned, message=words)
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
        if not resume and any(experiment.parent for experiment in self.experiments):
            self.save("training")  # from here on the run needs its parent no more
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
                self.learner.end(m, folder.status["batch"])
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
            orphans.refuse([self.folders[m] for m in going])
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
            self.learner.restore(m, checkpoint.last)
            self.folders[m].rewind(checkpoint)
            self.seconds = float(checkpoint.facts["seconds"])
            self.evaluating = float(checkpoint.facts["evaluating"])
            lines = self.folders[m].metrics
            self.evaluated[m] = lines[-1]["batch"] if lines else 0
            # A run that has been made longer has evaluations that its grid no longer knows.
            self.learner.rates.note(m, (line for line in lines if m in self.grid.get(line["batch"], ())))
            self.history[m] = selection.history(lines, self.experiments[m])
            self.best[m].restore(checkpoint, self.history[m])

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
        if BEST_BATCH in checkpoint.facts or checkpoint.best:
            of_best = self.learner.weights(m).items()
            expected |= {BEST_PREFIX + name: (t.shape, t.dtype) for name, t in of_best}
        if LARGEST not in checkpoint.tensors:  # an older version's
            del expected[LARGEST]
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
        """Evaluate the runs that have reached a point of the grid or the end of their time; end those that are through,
        diverged, or meet a condition of `training/stopping.py`.
        """
        if not self._looks():
            return
        count = self.learner.count
        diverged = {int(m): self.seen.stopped(int(m)) for m in np.flatnonzero(self.seen.stopped_M)}
        waiting = [
            m for m, done in enumerate(self.done) if not done and m not in diverged and self.evaluated[m] < count
        ]
        on_grid = self.grid.get(count, [])
        due = [m for m in waiting if m in on_grid or stopping.out_of_time(self.experiments[m], self.seconds)]
        self._keep_ends(due)
        lines, reasons = self._evaluate(due) if due else ({}, {})
        for m in sorted({*diverged, *due}):
            if self.done[m]:
                continue
            if stopped := diverged.get(m):
                batch, what = stopped
                yield self._end(m, Ending(stopping.STOPPED, batch - 1, f"At batch {batch} {what}."))
                continue
            self.folders[m].record(lines[m])
            self.told.add(m, lines[m])
            self.evaluated[m] = count
            self.learner.rates.note(m, [lines[m]])
            self.history[m].append(selection.point_of(lines[m], self.experiments[m]))
            self.best[m].note(self.history[m], lambda m=m: self.learner.weights(m))  # type: ignore[misc]
            sample = self._sample(m)
            yield self.event(Evaluated, run=m, metrics=metric_lines.flat(lines[m]), sample=sample)
            if not math.isfinite(lines[m]["perplexity"][self.experiments[m].scheme.sample]):
                reason = f"After batch {count} the perplexity was not finite."
                yield self._end(m, Ending(stopping.STOPPED, count, reason))
            elif count == self.experiments[m].batches or reasons[m]:
                yield self._end(m, Ending(stopping.FINISHED, count, reasons[m]))

    def _keep_ends(self, due: Sequence[int]) -> None:
        """Keep what a longer run needs, of the runs that end here: as it is before the last evaluation."""
        for m in due:
            if self.experiments[m].keep_optimiser and self.learner.count == self.experiments[m].batches:
                self.folders[m].keep(self.learner.count, *self._held(m))

    def _evaluate(self, due: Sequence[int]) -> tuple[dict[int, dict[str, Any]], dict[int, str | None]]:
        """A line of metrics for each of these runs, and the reason where it ends here before its last batch."""
        began = time.perf_counter()
        lines: dict[int, dict[str, Any]] = {
            m: {"batch": self.learner.count, "sequences": self.learner.count * self.experiments[m].rows, "loss": None}
            for m in due
        }
        grid = self.grid.get(self.learner.count, [])
        together = [m for m in due if m in grid]
        self._score(lines, together, beside=grid)
        # What the grid does not ask for is scored run by run, so that who else ends here changes no last bit.
        for m in due:
            self._score(lines, [m], beside=[m])
        reasons = {}
        for m in due:
            point = selection.point_of(lines[m], self.experiments[m])
            reasons[m] = stopping.why(self.experiments[m], [*self.history[m], point], self.seconds)
            self._score(lines, [m], beside=[m], last=reasons[m] is not None)
            own_first = self._procedures(m, last=reasons[m] is not None)
            for part in {"perplexity", "validation"} & lines[m].keys():
                lines[m][part] = {procedure: lines[m][part][procedure] for procedure in own_first}
        self.evaluating += time.perf_counter() - began
        # Nothing after this can be interrupted: the means begin anew.
        for m, since in zip(due, self.learner.take(due), strict=True):
            rate = self.learner.rates.recorded(m, self.learner.count)
            lines[m] |= {**since._asdict(), **rate, "seconds": round(self.seconds, 6), "fleet": len(self.folders)}
        return lines, reasons

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

    def _score(
        self, lines: Mapping[int, dict[str, Any]], due: Sequence[int], beside: Sequence[int], last: bool = False
    ) -> None:
        """Add to lines what they lack of perplexities; runs are scored together with those that are `beside` them.

        Runs that have ended keep their places in it, so that who is scored beside whom, and with it the last bits of
        every score, depends on the plan alone and not on when a training was interrupted.
        """
        for part, texts in (("perplexity", self.tests), ("validation", self.validations)):
            for procedure in dict.fromkeys(p for m in due for p in self._procedures(m, last)):
                wanting = [m for m in due if procedure in self._procedures(m, last) and m in texts]
                wanting = [m for m in wanting if procedure not in lines[m].get(part, {})]
                if not wanting:
                    continue
                together = [m for m in beside if procedure in self._procedures(m, last) and m in texts]
                scores = self._together(together, procedure, texts)
                for m in wanting:
                    lines[m].setdefault(part, {})[procedure] = scores[m][0].perplexity
        wanting = [m for m in due if self.experiments[m].evaluate_carried and "carried" not in lines[m]]
        carried = self._carried_scores(beside) if wanting else {}
        for m in wanting:
            lines[m]["carried"] = carried[m]

    def _procedures(self, m: int, last: bool = False) -> tuple[str, ...]:
        """What a run is scored under now: the scheme's own procedure; both at its last point, or when asked."""
        experiment = self.experiments[m]
        first, is_last = experiment.scheme.sample, last or self.learner.count == experiment.batches
        both = is_last or experiment.evaluate == "both"
        return (first, *(p for p in PROCEDURES if p != first)) if both else (first,)

    def _carried_scores(self, beside: Sequence[int]) -> dict[int, float]:
        """Progressive from the states that the rows carry now: the median over rows."""
        together = [m for m in beside if self.experiments[m].evaluate_carried]
        slots = torch.tensor(together, device=self.learner.model.device)
        first = tuple(tuple(s[slots] for s in state) for state in self.learner.carried)
        return {
            m: middle(rows).perplexity for m, rows in self._together(together, "progressive", self.tests, first).items()
        }

    def _together(
        self, runs: Sequence[int], procedure: str, texts: Mapping[int, torch.Tensor], first: States | None = None
    ) -> dict[int, list[Perplexity]]:
        """The perplexities of these runs, one for each row of `first`."""
        whole = self.learner.model
        model = whole if len(runs) == len(self.folders) else whole.runs(runs)
        read, k2 = [texts[m] for m in runs], self.experiments[0].scheme.k2
        nll = token_nll(model, read, k2, procedure, first=first, between=self.watch.check)
        return {m: perplexities(nll_NR) for m, nll_NR in zip(runs, nll, strict=True)}

    def _end(self, m: int, ending: Ending) -> Event:
        """Store the run's weights: its last good ones, where it diverged."""
        self.done[m] = True
        self.learner.end(m)
        status = self._status(m, ending.state) | {"batch": ending.batch}
        status |= {"reason": ending.reason} if ending.reason else {}
        if self.experiments[m].keep_optimiser and ending.state == stopping.FINISHED and ending.reason:
            self.folders[m].keep(self.learner.count, *self._held(m))  # for runs that begin from this one
        if self.best[m].batch is not None:
            self.folders[m].keep_best(self.best[m].tensors, self._facts(m) | {"batch": str(self.best[m].batch)})
        status = self.folders[m].finish(self.learner.weights(m), self._facts(m), status)
        self.told.end(m, ending.state)
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
                folder.save(self.learner.count, *self._held(m))
        self._report(state)
        self.saved_at, self.saved_batch = time.perf_counter(), self.learner.count
        self.save_cost = self.saved_at - began

    def _held(self, m: int) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
        """What a checkpoint of a run holds, and what it says."""
        return self.learner.snapshot(m) | self.best[m].saved(), self._facts(m) | self.best[m].facts()

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


def _held_out(experiment: Experiment, corpus: Corpus, device: torch.device) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The test set, and the validation set where there is one."""
    test = corpus.test_ids(experiment.split_seed)
    validation = corpus.validation_ids(experiment.split_seed, experiment.validation)
    on_device = (
        torch.from_numpy(ids[: experiment.test_tokens].astype("int64")).to(device) for ids in (test, validation)
    )
    first, second = on_device
    return first, second if len(validation) else None
