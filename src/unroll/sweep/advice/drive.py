"""The drive of a pilot: from what is asked to the advice in its folder, resumable at any moment.

A generator of what happens, as a sweep's is. Each stage is a folder of runs that are trained within its share of the
budget; what is left over goes to the next one.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace

from unroll.base.durations import duration
from unroll.base.errors import CorpusError, Interrupted, RunError, counted
from unroll.corpus.corpus import Corpus
from unroll.corpus.open_corpora import Library
from unroll.engines import devices
from unroll.experiment.experiment import PRESETS, Experiment
from unroll.sweep import launchers
from unroll.sweep.advice import answer, candidates, pilot, scoring, verdict
from unroll.sweep.advice.asked import Asked, require_text, with_validation
from unroll.sweep.advice.folder import STAGES, AdviceFolder, State
from unroll.sweep.advice.measures import Measures, measured
from unroll.sweep.advice.verdict import Verdict
from unroll.sweep.deduplicate import distinct
from unroll.sweep.launchers import Chosen, Noted, Report
from unroll.sweep.paced.clock import Clock
from unroll.sweep.paced.folder import PacedFolder, Progress
from unroll.sweep.paced.paced import NOTED_EVERY, Paced
from unroll.sweep.paced.rounds import MOST_BATCHES
from unroll.sweep.sweep import Stage, planned, refuse_full_disk, require_devices, results
from unroll.training.preflight import refuse_hopeless
from unroll.training.signals import Pressed, Watch

SHARES = {"alone": 0.2, "together": 0.25, "seeds": 0.55}  # of the budget
SCORED = 0.06  # of a stage's share, for the scores at its end
POINTS = {"alone": 3, "together": 4, "seeds": 10}  # evaluations of a run
FIRST = 0.5  # of a stage's time: the round that measures what training takes
WORTH = 1.15  # a round of a stage that makes runs no longer than this is left out
TOO_LATE = 1.1  # times the budget
WORDS = {
    "alone": "Each setting alone: {}.",
    "together": "The best of them together: {}.",
    "seeds": "The last ones, with several seeds: {}.",
}
MEASURING = "Scoring what is left on the whole test set, and sampling from it."
FEWEST = {"alone": 200, "together": 200, "seeds": 500}  # tokens that are scored at an evaluation
FULL = int(PRESETS["small"]["batches"])
LEAST_TRIED, SECONDS_EACH = 6, 12.0  # settings that are tried alone, and seconds of the budget for one more
SECONDS_A_FINALIST = 60.0  # of the budget
RESERVE = (1.0, 1.0)  # what measuring is taken to need at the end: times what it took first, and seconds more


def drive(
    folder: AdviceFolder,
    library: Library,
    asked: Asked,
    clock: Clock,
    most: int | None = None,
    save_every: int | None = None,
    launcher: str = "local",
) -> Generator[Report, None, None]:
    """Find advice, or go on finding it; ends with the answer written. What is there already is not done again."""
    chosen = launchers.chosen(launcher)
    launchers.require_reach(chosen, [asked.base])
    corpus = library.open(asked.base)
    asked = with_validation(asked.described(corpus), corpus).described(corpus)
    require_text(asked, corpus)
    folder.refuse_occupied()
    require_same(folder, asked)
    if not folder.is_advice():
        chosen.call(require_devices, [asked.base])  # what is lacking is said before there is a folder
    folder.make()
    with folder.locked() as left_over, Watch() as watch:
        if left_over:
            yield Noted("", left_over)
        folder.require_own_kind()
        yield from _Drive(folder, library, corpus, asked, clock, most, save_every, chosen, watch).reports()


def identity(asked: Asked) -> dict[str, object]:
    """What decides which runs a pilot has: not the budget, nor what counts most."""
    return {"base": asked.base.identity, "said": sorted(asked.said), "batches": asked.batches}


def require_same(folder: AdviceFolder, asked: Asked) -> None:
    """Refuse a folder with the pilot of another question."""
    if not folder.is_advice():
        return
    state = folder.state
    if state.asked != identity(asked):
        raise RunError(f"{folder.path} holds advice on another text or for other settings. Choose another with --out.")
    if asked.budget < state.budget:
        raise RunError(
            f"{folder.path} holds advice of a larger budget, {duration(state.budget)}. Ask with that, or with --out."
        )


@dataclass
class _Drive:
    """One process's part of a pilot."""

    folder: AdviceFolder
    library: Library
    corpus: Corpus
    asked: Asked
    clock: Clock
    most: int | None
    save_every: int | None
    launcher: Chosen
    watch: Watch

    def reports(self) -> Generator[Report, None, None]:
        """All of it."""
        folder, asked = self.folder, self.asked
        self.state = folder.state if folder.is_advice() else State(identity(asked), asked.budget)
        self.clock.before = self.state.spent
        if asked.budget > self.state.budget:  # there is more time than before: the last stage goes on
            self.state.budget, self.state.answer = asked.budget, None
            self.state.scores.pop(STAGES[-1], None)
        elif self.state.answer and self.state.answer.get("need") == asked.need:
            return
        folder.require_stages(self.state.scores)
        self.asked = self._as_begun()
        # Another need is answered by the same runs: the budget was for these.
        self.again = self.state.answer is not None and all(name in self.state.scores for name in STAGES)
        try:
            self._note()
            for name in STAGES:
                if name not in self.state.scores:
                    yield from self._stage(name)
            yield Stage("", MEASURING)
            self._answer()
            if self._spent > TOO_LATE * asked.budget:
                yield Noted("", self._too_small())
        except Pressed as pressed:
            raise Interrupted(pressed.number) from None
        finally:
            self._note()

    def _as_begun(self) -> Asked:
        """The question as the pilot began with it: now its text may lie elsewhere, or it may be given more threads."""
        stage = self.folder.stage(STAGES[0])
        if not stage.is_sweep():
            return self.asked
        begun = [candidates.setting(experiment) for training in stage.trainings for experiment in training.asked]
        base = next((each for each in begun if each.identity == self.asked.base.identity), None)
        if base is None:
            raise RunError(f"{stage.path} holds the runs of another pilot. Choose another folder with --out.")
        return replace(self.asked, base=base)

    def _note(self) -> None:
        self.state.spent = self._spent
        self.folder.state = self.state

    @property
    def _spent(self) -> float:
        """What of the budget is spent, in seconds."""
        return self.state.spent if self.again else self.clock.spent

    @property
    def _full(self) -> int:
        """How many batches the full run is to have, before the pilot says that it has come as far itself."""
        return self.asked.batches or FULL

    def _stage(self, name: str) -> Generator[Report, None, None]:
        """Train the runs of a stage within its time, and score them."""
        rung = self.folder.stage(name)
        if not rung.is_sweep():
            made = self._made(name)
            rung.make()
            rung.trainings = distinct(self._runs(name, made))
        yield Stage("", WORDS[name].format(counted(len(rung.trainings), "run")))
        with rung.locked() as left_over:
            if left_over:
                yield Noted("", left_over)
            rung.require_own_kind()
            rung.clear_partials()
            yield from self._trained(name, rung)
            rung.write_table(results(rung))
        self.state.scores[name] = self._scored(rung, SCORED * SHARES[name] * self.asked.budget)
        self._note()

    def _scored(self, rung: PacedFolder, seconds: float) -> dict[str, float | None]:
        experiments = {training.name: training.experiment for training in rung.trainings}
        folders = {name: rung.run(name) for name in experiments}
        found = scoring.scores(folders, experiments, self.corpus, self.watch.check, seconds)
        return {name: value if math.isfinite(value) else None for name, value in found.items()}

    def _trained(self, name: str, rung: PacedFolder) -> Generator[Report, None, None]:
        last = name == STAGES[-1]
        progress = rung.progress if rung.is_paced() else Progress(self._share(name), None)
        if last and rung.is_paced():  # what is left of the budget now, which may be a larger one
            progress.budget, progress.cut = self._share(name) + progress.spent, False
        clock = Clock(self.clock.now, self.clock.now(), progress.spent)
        paced = Paced(
            rung,
            self.library,
            clock,
            progress,
            self.launcher,
            self.watch,
            self.save_every,
            most=self.asked.batches or MOST_BATCHES,  # what lies beyond the full run says nothing of it
            first=FIRST,
            worth=WORTH,
            fewest=FEWEST[name],
        )

        def after_first() -> Generator[Report, None, None]:
            """What is measured at the end is measured after the first round, to know how long that takes."""
            yield Stage("", MEASURING)
            began = self.clock.now()
            scores = self._scored(rung, SCORED * SHARES[name] * self.asked.budget)
            self._measured({**self.state.scores, name: scores})
            progress.reserve = RESERVE[0] * (self.clock.now() - began) + RESERVE[1]

        try:
            paced.note()
            if rung.plan is None:
                rung.plan = planned(rung.trainings, self.library, self._side_by_side, self.launcher, self.watch)
            refuse_full_disk(rung, paced.plan, rung.trainings, self.library)
            assert progress.budget is not None
            for report in paced.within(progress.budget, after_first if last else None):
                yield report
                if self.clock.spent - self.state.spent > NOTED_EVERY:
                    self._note()
        finally:
            paced.note()

    @property
    def _side_by_side(self) -> int | None:
        """How many runs train side by side: on a CPU that brings little, and trying it takes time that runs need."""
        if self.most or not self.launcher.measures_here:
            return self.most
        place = devices.places(self.asked.base.device)[0]
        return 1 if devices.is_host(devices.find(place)) else None

    def _share(self, name: str) -> float:
        """The seconds that training gets in a stage, of what is left."""
        left = max(self.asked.budget - self.clock.spent, 1.0)
        share = left * SHARES[name] / sum(SHARES[each] for each in STAGES[STAGES.index(name) :])
        return share if name == STAGES[-1] else share * (1 - SCORED)

    def _made(self, name: str) -> list[Experiment]:
        """The settings that a stage tries."""
        if name == "alone":
            made = candidates.alone(self.asked, self._full)[: self._affordable()]
        else:
            before = STAGES[STAGES.index(name) - 1]
            tried = pilot.results(self.folder.stage(before), self.state.scores[before])
            made = (
                candidates.together(self.asked, tried, self._full)
                if name == "together"
                else candidates.finalists(self.asked, tried, self._finalists())
            )
        possible = [experiment for experiment in made if self._possible(experiment)]
        if not possible:
            raise CorpusError("The text is too short for every setting that a pilot tries. Bring a longer one.")
        return possible

    def _affordable(self) -> int:
        """How many settings are tried alone: each is to get a few batches."""
        return max(LEAST_TRIED, int(self.asked.budget / SECONDS_EACH))

    def _finalists(self) -> int:
        """How many settings get several seeds: fewer where there is little time."""
        return max(2, min(candidates.FINALISTS, int(self.asked.budget / SECONDS_A_FINALIST)))

    def _possible(self, experiment: Experiment) -> bool:
        try:
            refuse_hopeless([experiment], [self.corpus])
        except CorpusError:
            return False
        return True

    def _runs(self, name: str, settings: Sequence[Experiment]) -> list[Experiment]:
        seeds = range(candidates.SEEDS if name == "seeds" else 1)
        return [
            replace(e, seed=seed, keep_optimiser=True, evaluations=POINTS[name]) for e in settings for seed in seeds
        ]

    def _measured(self, scores: Mapping[str, Mapping[str, float | None]]) -> tuple[Verdict, Measures]:
        """Which setting to take, and what is measured of its runs."""
        rung = self.folder.stage(STAGES[-1])
        decided = verdict.decide(pilot.finalists(rung, scores[STAGES[-1]], self.asked.batches, FULL), self.asked.need)
        runs = [rung.run(name) for name in decided.taken.runs]
        return decided, measured(decided.taken.experiment, runs, self.corpus, self.watch.check)

    def _answer(self) -> None:
        decided, found = self._measured(self.state.scores)
        tried = {name: pilot.results(self.folder.stage(name), self.state.scores[name]) for name in STAGES[:-1]}
        self.state.answer = answer.make(self.asked, decided, found, tried, self._spent)

    def _too_small(self) -> str:
        return (
            f"The budget of {duration(self.asked.budget)} was too small for this text and model: it took "
            f"{duration(self._spent)}. Give more time, or a smaller model: --hidden 64."
        )
