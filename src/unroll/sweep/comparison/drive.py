"""The drive of a comparison: from what is asked to the answer in its folder, resumable at any moment.

A generator of what happens, as a sweep's is; a stage that begins is a report as well. The clock by which a budget is
kept is the caller's: it began when the command did.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

from unroll.base.durations import duration
from unroll.base.errors import CorpusError, InputError, Interrupted, RunError
from unroll.corpus.open_corpora import Library
from unroll.experiment.experiment import Experiment
from unroll.runs.status_file import ENDED
from unroll.sweep import journal, launchers
from unroll.sweep.comparison import answer, measures, rounds
from unroll.sweep.comparison.asked import Asked, with_validation
from unroll.sweep.comparison.folder import ComparisonFolder, Progress
from unroll.sweep.comparison.rounds import Cost, Rounds
from unroll.sweep.comparison.trial import tried
from unroll.sweep.deduplicate import Training, distinct
from unroll.sweep.launchers import Begun, Chosen, Noted, Report
from unroll.sweep.launchers.processes import cores
from unroll.sweep.plan import Plan
from unroll.sweep.sweep import Planned, Stage, carry_out, describe, planned, refuse_full_disk, require_devices, results
from unroll.training.bookkeeping import evaluation_points
from unroll.training.preflight import refuse_hopeless
from unroll.training.signals import Pressed, Watch

NOTED_EVERY = 5.0  # seconds between two records of what is spent
TRAINING, SCORING = 0.8, 0.3  # of the budget: what training gets, and what evaluation may take of that
TOO_LATE = 1.1  # times the budget
FEWEST = 500  # tokens that are scored, where there are so many
MEASURING = "Sampling from a run of each scheme, and measuring."
RESERVE = (1.0, 1.0)  # what measuring is taken to need at the end: so many times what it took first, and seconds more


@dataclass
class Clock:
    """Seconds that this process spent, and those before it."""

    now: Callable[[], float]
    began: float
    before: float = 0.0

    @property
    def spent(self) -> float:
        """All of it."""
        return self.before + self.now() - self.began


def complete(asked: Asked, library: Library) -> Asked:
    """What is asked, with the corpus's facts and its validation set; refused where a run cannot be trained on it."""
    corpus = library.open(asked.experiments[0])
    asked = with_validation(asked, corpus)
    asked = replace(asked, experiments=tuple(describe(asked.experiments, library)))
    wrong: list[str] = []
    for experiment in asked.experiments:
        try:
            refuse_hopeless([experiment], [corpus])
        except CorpusError as error:
            wrong += error.problems
    if wrong:
        raise CorpusError(*dict.fromkeys(wrong))
    return asked


def drive(
    folder: ComparisonFolder,
    library: Library,
    asked: Asked,
    clock: Clock,
    most: int | None = None,
    save_every: int | None = None,
    launcher: str = "local",
) -> Generator[Report, None, None]:
    """Compare, or go on comparing; ends with the answer written. What is there already is not done again."""
    chosen = launchers.chosen(launcher)
    launchers.require_reach(chosen, asked.experiments)
    asked = complete(asked, library)
    require_same(folder, asked)
    if not folder.is_sweep():
        chosen.call(require_devices, asked.experiments)  # what is lacking is said before there is a folder
    folder.make()
    with folder.locked() as left_over, Watch() as watch:
        if left_over:
            yield Noted("", left_over)
        yield from _Drive(folder, library, asked, clock, save_every, chosen, watch, most).reports()


def require_same(folder: ComparisonFolder, asked: Asked) -> None:
    """Refuse a folder with anything but this comparison; a larger budget, or more batches, go on with it."""
    folder.refuse_occupied()
    if not folder.is_sweep():
        return
    go = f"{folder.path} holds another {{}}. Choose another folder with --out."
    if not folder.is_comparison():
        raise RunError(go.format("sweep, which is no comparison"))
    before = {asked.same(e) for training in folder.trainings for e in training.asked}
    now = {asked.same(e) for e in asked.experiments}
    if before != now:
        raise RunError(
            go.format(
                f"comparison: {len(now - before)} of the runs asked for are not in it, and {len(before - now)} of its "
                "own are not asked for"
            )
        )
    progress = folder.progress
    if (progress.budget is None) != (asked.budget is None):
        raise RunError(go.format("kind of comparison: one goes by a budget of time, one by a number of batches"))
    if (asked.budget or 0) < (progress.budget or 0) or (asked.batches or 0) != (progress.batches or 0):
        raise RunError(go.format("comparison, of a larger budget or of another number of batches"))


class _Drive:
    """One process's part of a comparison."""

    def __init__(
        self,
        folder: ComparisonFolder,
        library: Library,
        asked: Asked,
        clock: Clock,
        save_every: int | None,
        launcher: Chosen,
        watch: Watch,
        most: int | None,
    ) -> None:
        self.folder, self.library, self.asked, self.clock = folder, library, asked, clock
        self.save_every, self.launcher, self.watch, self.most = save_every, launcher, watch, most
        self.progress = folder.progress if folder.is_comparison() else Progress(asked.budget, asked.batches)
        self.clock.before = self.progress.spent
        self.noted = 0.0

    def reports(self) -> Generator[Report, None, None]:
        """All of it."""
        folder, progress = self.folder, self.progress
        if folder.is_sweep():
            folder.require_own_kind()
            folder.clear_partials()
        if progress.budget != self.asked.budget:  # there is more time than before
            progress.budget, progress.cut = self.asked.budget, False
            folder.forget_answer()
        elif folder.answer is not None:
            return
        try:
            self._note()
            if not folder.is_sweep():
                folder.trainings = distinct(self.asked.experiments)
            if folder.plan is None:
                folder.plan = planned(folder.trainings, self.library, self.most, self.launcher, self.watch)
            refuse_full_disk(folder, self._plan, folder.trainings, self.library)
            if progress.budget is None:
                yield from self._to(self.asked.batches or 1)
            else:
                yield from self._within(progress.budget)
            yield Stage("", MEASURING)
            found = self._measured()
            if progress.budget and self.clock.spent > TOO_LATE * progress.budget:
                yield Noted("", self._too_small(progress.budget))
            folder.write_table(results(folder))
            folder.answer = answer.make(folder, self.asked, progress, self.clock.spent, found)
        except Pressed as pressed:
            raise Interrupted(pressed.number) from None
        finally:
            self._note()

    @property
    def _plan(self) -> Plan:
        plan = self.folder.plan
        assert plan is not None
        return plan

    def _note(self) -> None:
        """Write down what is spent. A killed process loses what it spent since."""
        self.progress.spent = self.clock.spent
        self.folder.progress = self.progress
        self.noted = self.clock.now()

    def _within(self, budget: float) -> Generator[Report, None, None]:
        """Rounds until the time for training is over."""
        progress, known = self.progress, Rounds(budget)
        if progress.rounds:  # the last round has begun; it may have ended
            batches: int | None = progress.rounds[-1]
            known.done = max((each for each in progress.rounds if each < progress.rounds[-1]), default=0)
        else:
            known.latest = self._tried(budget)
            batches = known.next(budget - self.clock.spent) or rounds.LEAST_BATCHES
        while batches:
            began, clocks = self.clock.now(), self._clocks()
            yield from self._to(batches)
            wall, after = self.clock.now() - began, self._clocks()
            trained, evaluated = after[0] - clocks[0], after[1] - clocks[1]
            if trained > 0:
                cost = rounds.measured(known.done, batches, wall, trained, evaluated)
            else:  # nothing was left of this round: what it took stands in its runs
                cost = rounds.measured(0, batches, sum(after), *after)
            if progress.cut or not self._goes_on(batches):
                return
            if not progress.reserve:  # what is measured at the end is measured now, to know how long that takes
                yield Stage("", MEASURING)
                began = self.clock.now()
                self._measured()
                progress.reserve = RESERVE[0] * (self.clock.now() - began) + RESERVE[1]
                self._note()
            known.ended(batches, cost)
            batches = known.next(budget - progress.reserve - self.clock.spent)

    def _tried(self, budget: float) -> Cost:
        """What training will take, by a trial; and no more of the test set is scored than leaves time for training."""
        folder = self.folder
        cost = tried(self._plan, {training.name: training.experiment for training in folder.trainings}, self.library)
        at_once = max(self.launcher.at_once(fleet.device) for fleet in self._plan.fleets)
        if self.launcher.name == "processes":
            at_once = max(at_once, cores())
        side = max(1, min(at_once, len(self._plan.fleets)))
        batch, sets, whole = max(cost.batch / side, 1e-9), self._sets(), self._whole()
        tokens = min(self.asked.experiments[0].test_tokens or whole, whole)
        if self.asked.chooses_tokens:
            batches = max(1, int(TRAINING * (1 - SCORING) * budget / batch))
            each = SCORING * TRAINING * budget * side / len(evaluation_points(batches)) / sets  # scoring of one set
            tokens = max(FEWEST, int((each - cost.score) / max(cost.token, 1e-12)) // 100 * 100)
            if tokens < whole:
                change = partial(replace, test_tokens=tokens + self.asked.experiments[0].scheme.k2)
                folder.trainings = [_changed(training, change) for training in folder.trainings]
            tokens = min(tokens, whole)
        return Cost(batch, sets * (cost.score + tokens * cost.token) / side)

    def _sets(self) -> int:
        e = self.asked.experiments[0]
        return 2 if e.validation or e.validation_file else 1

    def _whole(self) -> int:
        """How many tokens of the test set can be scored."""
        e = self.asked.experiments[0]
        return self.library.open(e).split(e.split_seed, e.validation).test - e.scheme.k2

    def _set_length(self, batches: int) -> None:
        trainings = [_changed(training, partial(replace, batches=batches)) for training in self.folder.trainings]
        if [t.experiment for t in trainings] != [t.experiment for t in self.folder.trainings]:
            self.folder.trainings = trainings

    def _to(self, batches: int) -> Generator[Report, None, None]:
        """Train every run to this batch; cut short where a budget's time is over long before."""
        progress, folder = self.progress, self.folder
        if not progress.rounds or progress.rounds[-1] != batches:
            progress.rounds.append(batches)
            self._note()
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
                    self._note()
                late = latest is not None and self.clock.spent > latest and not isinstance(report, Planned | Begun)
                if late and len(progress.rounds) > 1:
                    progress.cut = True
                    break
        self._note()

    def _in_words(self, batches: int) -> str:
        """A round, in words."""
        progress = self.progress
        if progress.budget is None:
            return f"Every run to batch {batches:,}."
        left = max(progress.budget - self.clock.spent, 0.0)
        of = f"{duration(left)} of {duration(progress.budget)} left"
        return f"Round {len(progress.rounds)}: every run to batch {batches:,}; {of}."

    def _too_small(self, budget: float) -> str:
        runs = len(self.folder.trainings)
        return (
            f"The budget of {duration(budget)} was too small for {runs:,} runs of this size: it took "
            f"{duration(self.clock.spent)}. Give more time, fewer schemes, k1 or --seeds, or a smaller model."
        )

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

    def _measured(self) -> dict[str, measures.Measured]:
        runs = answer.chosen(self.folder, self.asked)
        corpus = self.library.open(self.asked.experiments[0])
        try:
            return measures.measure(runs, corpus, self.watch.check)
        except InputError as error:  # nothing of it decides: the answer stands without
            return {name: replace(measures.NOTHING, why_not=str(error)) for name in runs}


def _changed(training: Training, change: Callable[[Experiment], Experiment]) -> Training:
    return Training(training.name, change(training.experiment), tuple(change(e) for e in training.asked))


def clock(now: Callable[[], float] = time.monotonic, began: float | None = None) -> Clock:
    """A clock that began now, or when the command did."""
    return Clock(now, now() if began is None else began)
