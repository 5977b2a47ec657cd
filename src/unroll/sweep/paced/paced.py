"""Rounds of training within a budget of time; what a killed process has done is not done again.

A generator of what happens, as a sweep's is; a stage that begins is a report as well.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import replace
from functools import partial

from unroll.base.durations import duration
from unroll.base.errors import RunError
from unroll.corpus.open_corpora import Library
from unroll.experiment.experiment import Experiment
from unroll.runs.status_file import ENDED
from unroll.sweep import journal
from unroll.sweep.deduplicate import Training
from unroll.sweep.launchers import Begun, Chosen, Report
from unroll.sweep.launchers.processes import cores
from unroll.sweep.paced import rounds
from unroll.sweep.paced.clock import Clock
from unroll.sweep.paced.folder import PacedFolder, Progress
from unroll.sweep.paced.rounds import Cost, Rounds
from unroll.sweep.paced.trial import tried
from unroll.sweep.plan import Plan
from unroll.sweep.sweep import Planned, Stage, carry_out
from unroll.training.bookkeeping import evaluation_points
from unroll.training.signals import Watch

NOTED_EVERY = 5.0  # seconds between two records of what is spent
TRAINING, SCORING = 0.8, 0.3  # of the budget: what training gets, and what evaluation may take of that
FEWEST = 500  # tokens that are scored, where there are so many


class Paced:
    """One process's part of the rounds of one folder, whose plan stands."""

    def __init__(
        self,
        folder: PacedFolder,
        library: Library,
        clock: Clock,
        progress: Progress,
        launcher: Chosen,
        watch: Watch,
        save_every: int | None = None,
        chooses_tokens: bool = True,
        most: int = rounds.MOST_BATCHES,
        first: float = rounds.FIRST,
        worth: float = rounds.WORTH,
        fewest: int = FEWEST,
    ) -> None:
        self.folder, self.library, self.clock, self.progress = folder, library, clock, progress
        self.launcher, self.watch, self.save_every = launcher, watch, save_every
        self.chooses_tokens, self.most, self.first = chooses_tokens, most, first
        self.worth, self.fewest = worth, fewest
        self.noted = 0.0

    @property
    def plan(self) -> Plan:
        """The folder's plan."""
        plan = self.folder.plan
        assert plan is not None
        return plan

    def note(self) -> None:
        """Write down what is spent. A killed process loses what it spent since."""
        self.progress.spent = self.clock.spent
        self.folder.progress = self.progress
        self.noted = self.clock.now()

    def within(
        self, budget: float, after_first: Callable[[], Generator[Report, None, None]] | None = None
    ) -> Generator[Report, None, None]:
        """Rounds until the time for training is over; what is done after the first one may set a reserve."""
        progress, known = self.progress, Rounds(budget, most=self.most, first=self.first, worth=self.worth)
        if progress.rounds:  # the last round has begun; it may have ended
            batches: int | None = progress.rounds[-1]
            known.done = max((each for each in progress.rounds if each < progress.rounds[-1]), default=0)
        else:
            known.latest = self._tried(budget)
            batches = known.next(budget - self.clock.spent) or rounds.LEAST_BATCHES
        while batches:
            began, clocks = self.clock.now(), self._clocks()
            yield from self.to(batches)
            wall, after = self.clock.now() - began, self._clocks()
            trained, evaluated = after[0] - clocks[0], after[1] - clocks[1]
            if trained > 0:
                cost = rounds.measured(known.done, batches, wall, trained, evaluated, self._spread)
            else:  # nothing was left of this round: what it took stands in its runs
                cost = rounds.measured(0, batches, sum(after), *after, self._spread)
            if progress.cut or not self._goes_on(batches):
                return
            if not progress.reserve and after_first is not None:
                yield from after_first()
                self.note()
            known.ended(batches, cost)
            batches = known.next(budget - progress.reserve - self.clock.spent)

    def to(self, batches: int) -> Generator[Report, None, None]:
        """Train every run to this batch; cut short where a budget's time is over long before."""
        progress, folder = self.progress, self.folder
        if not progress.rounds or progress.rounds[-1] != batches:
            progress.rounds.append(batches)
            self.note()
        self._set_length(batches)
        trainings = folder.trainings
        yield Stage("", self._in_words(batches))
        latest = None if progress.budget is None else rounds.LATE * progress.budget - progress.reserve
        trained = carry_out(folder, trainings, self.library, self.save_every, self.launcher, self.watch)
        reports = journal.kept(folder, trained)
        with closing(trained), closing(reports):  # type: ignore[type-var]
            for report in reports:
                yield report
                if self.clock.now() - self.noted > NOTED_EVERY:
                    self.note()
                late = latest is not None and self.clock.spent > latest and not isinstance(report, Planned | Begun)
                if late and len(progress.rounds) > 1:
                    progress.cut = True
                    break
        self.note()

    def _tried(self, budget: float) -> Cost:
        """What training will take, by a trial; and no more of the test set is scored than leaves time for training."""
        folder = self.folder
        cost = tried(self.plan, {training.name: training.experiment for training in folder.trainings}, self.library)
        at_once = max(self.launcher.at_once(fleet.device) for fleet in self.plan.fleets)
        if self.launcher.name == "processes":
            at_once = max(at_once, cores())
        side = max(1, min(at_once, len(self.plan.fleets)))
        experiment = folder.trainings[0].experiment
        batch, sets, whole = max(cost.batch / side, 1e-9), self._sets(), self._whole()
        tokens = min(experiment.test_tokens or whole, whole)
        if self.chooses_tokens:
            batches = max(1, min(int(TRAINING * (1 - SCORING) * budget / batch), self.most))
            points = len(evaluation_points(batches, self._spread))
            each = SCORING * TRAINING * budget * side / points / sets  # scoring of one set
            tokens = max(self.fewest, int((each - cost.score) / max(cost.token, 1e-12)) // 100 * 100)
            if tokens < whole:
                change = partial(replace, test_tokens=tokens + experiment.scheme.k2)
                folder.trainings = [changed(training, change) for training in folder.trainings]
            tokens = min(tokens, whole)
        return Cost(batch, sets * (cost.score + tokens * cost.token) / side, spread=self._spread)

    @property
    def _spread(self) -> int | None:
        """How many evaluations are spread over a run; None where they are the paper's."""
        return self.folder.trainings[0].experiment.evaluations

    def _sets(self) -> int:
        e = self.folder.trainings[0].experiment
        return 2 if e.validation or e.validation_file else 1

    def _whole(self) -> int:
        """How many tokens of the test set can be scored."""
        e = self.folder.trainings[0].experiment
        return self.library.open(e).split(e.split_seed, e.validation).test - e.scheme.k2

    def _set_length(self, batches: int) -> None:
        trainings = [changed(training, partial(replace, batches=batches)) for training in self.folder.trainings]
        if [t.experiment for t in trainings] != [t.experiment for t in self.folder.trainings]:
            self.folder.trainings = trainings

    def _in_words(self, batches: int) -> str:
        """A round, in words."""
        progress = self.progress
        if progress.budget is None:
            return f"Every run to batch {batches:,}."
        left = max(progress.budget - self.clock.spent, 0.0)
        of = f"{duration(left)} of {duration(progress.budget)} left"
        return f"Round {len(progress.rounds)}: every run to batch {batches:,}; {of}."

    def _clocks(self) -> tuple[float, float]:
        """The seconds of training and of evaluation of all runs so far."""
        training = evaluating = 0.0
        for each in self.folder.trainings:
            try:
                status = self.folder.run(each.name).status
            except RunError:
                continue
            training += float(status.get("seconds") or 0.0)
            evaluating += float(status.get("evaluating") or 0.0) / max(int(status.get("fleet") or 1), 1)
        return training, evaluating

    def _goes_on(self, batches: int) -> bool:
        """Whether a run is left that can get longer."""
        for each in self.folder.trainings:
            try:
                status = self.folder.run(each.name).status
            except RunError:
                continue
            if status["state"] in ENDED and status["batch"] == batches and status["state"] != "stopped":
                return True
        return False


def changed(training: Training, change: Callable[[Experiment], Experiment]) -> Training:
    """The training of changed experiments, under its name."""
    return Training(training.name, change(training.experiment), tuple(change(e) for e in training.asked))
