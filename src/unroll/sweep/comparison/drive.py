"""The drive of a comparison: from what is asked to the answer in its folder, resumable at any moment.

A generator of what happens, as a sweep's is; a stage that begins is a report as well. The clock by which a budget is
kept is the caller's: it began when the command did.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from unroll.base.durations import duration
from unroll.base.errors import CorpusError, InputError, Interrupted, RunError
from unroll.corpus.open_corpora import Library
from unroll.sweep import launchers
from unroll.sweep.comparison import answer, measures
from unroll.sweep.comparison.asked import Asked, with_validation
from unroll.sweep.comparison.folder import ComparisonFolder
from unroll.sweep.deduplicate import distinct
from unroll.sweep.launchers import Chosen, Noted, Report
from unroll.sweep.paced.clock import Clock
from unroll.sweep.paced.folder import Progress
from unroll.sweep.paced.paced import Paced
from unroll.sweep.sweep import Stage, describe, planned, refuse_full_disk, require_devices, results
from unroll.training.preflight import refuse_hopeless
from unroll.training.signals import Pressed, Watch

TOO_LATE = 1.1  # times the budget
MEASURING = "Sampling from a run of each scheme, and measuring."
RESERVE = (1.0, 1.0)  # what measuring is taken to need at the end: so many times what it took first, and seconds more


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
        self.launcher, self.watch, self.most = launcher, watch, most
        self.progress = folder.progress if folder.is_comparison() else Progress(asked.budget, asked.batches)
        self.clock.before = self.progress.spent
        self.paced = Paced(
            folder, library, clock, self.progress, launcher, watch, save_every, chooses_tokens=asked.chooses_tokens
        )

    def reports(self) -> Generator[Report, None, None]:
        """All of it."""
        folder, progress, paced = self.folder, self.progress, self.paced
        if folder.is_sweep():
            folder.require_own_kind()
            folder.clear_partials()
        if progress.budget != self.asked.budget:  # there is more time than before
            progress.budget, progress.cut = self.asked.budget, False
            folder.forget_answer()
        elif folder.answer is not None:
            return
        try:
            paced.note()
            if not folder.is_sweep():
                folder.trainings = distinct(self.asked.experiments)
            if folder.plan is None:
                folder.plan = planned(folder.trainings, self.library, self.most, self.launcher, self.watch)
            refuse_full_disk(folder, paced.plan, folder.trainings, self.library)
            if progress.budget is None:
                yield from paced.to(self.asked.batches or 1)
            else:
                yield from paced.within(progress.budget, self._reserved)
            yield Stage("", MEASURING)
            found = self._measured()
            if progress.budget and self.clock.spent > TOO_LATE * progress.budget:
                yield Noted("", self._too_small(progress.budget))
            folder.write_table(results(folder))
            folder.answer = answer.make(folder, self.asked, progress, self.clock.spent, found)
        except Pressed as pressed:
            raise Interrupted(pressed.number) from None
        finally:
            paced.note()

    def _reserved(self) -> Generator[Report, None, None]:
        """What is measured at the end is measured now, to know how long that takes."""
        yield Stage("", MEASURING)
        began = self.clock.now()
        self._measured()
        self.progress.reserve = RESERVE[0] * (self.clock.now() - began) + RESERVE[1]

    def _too_small(self, budget: float) -> str:
        runs = len(self.folder.trainings)
        return (
            f"The budget of {duration(budget)} was too small for {runs:,} runs of this size: it took "
            f"{duration(self.clock.spent)}. Give more time, fewer schemes, k1 or --seeds, or a smaller model."
        )

    def _measured(self) -> dict[str, measures.Measured]:
        runs = answer.chosen(self.folder, self.asked)
        corpus = self.library.open(self.asked.experiments[0])
        try:
            return measures.measure(runs, corpus, self.watch.check)
        except InputError as error:  # nothing of it decides: the answer stands without
            return {name: replace(measures.NOTHING, why_not=str(error)) for name in runs}
