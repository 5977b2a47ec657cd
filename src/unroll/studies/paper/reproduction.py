"""Reproduce the paper: from figures to records, through a plan; resumable at any moment, killed or not.

OUT/records/FIGURE.json    what came out; alone enough to know what is finished
OUT/reproduce.json         the scale and the precision, which all records of a folder share
OUT/sweep.json, plan.json  what is being trained, and in which fleets
OUT/runs/NAME/             run folders, until their curves are in the records; with `keep_weights`, for ever

Nothing is deleted before it is on disk elsewhere: a fleet's runs end, then their curves are written to the records,
then their folders go. The same command repairs what a kill leaves behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unroll.base.errors import ConfigurationError, Interrupted, RunError
from unroll.base.version import VERSION
from unroll.corpus.corpus import Corpus
from unroll.corpus.open_corpora import Library
from unroll.engines import devices
from unroll.experiment.experiment import Experiment
from unroll.experiment.grids import MOST
from unroll.studies.paper import planning, records, timing
from unroll.studies.paper.curve_of_run import curve_of_run
from unroll.studies.paper.experiments import Scale, Wanted, open_all, series_by_identity, wanted
from unroll.studies.paper.figures import FIGURES, Series, training
from unroll.studies.paper.folder import ReproductionFolder
from unroll.studies.paper.records import Curve, Record, Time
from unroll.sweep import launchers, sweep
from unroll.sweep.deduplicate import Training
from unroll.sweep.launchers import Noted, Report, RunEnded
from unroll.sweep.plan import Plan
from unroll.training.signals import Pressed, Watch


@dataclass(frozen=True)
class Status:
    """How many curves of a figure are wanted, finished and stopped."""

    curves: int
    finished: int
    stopped: int


class Reproduction:
    """Figures of the paper with a number of seeds each, trained into one folder."""

    def __init__(
        self,
        figures: Sequence[str],
        data: str | Path,
        out: str | Path,
        seeds: int = 1,
        scale: float = 1.0,
        precision: str = "float32",
        most: int | None = None,
        keep_weights: bool = False,
    ) -> None:
        wrong = [] if 1 <= seeds <= MOST else [f"seeds must be between 1 and {MOST:,}. Got {seeds}."]
        if most is not None and most < 1:
            wrong.append(f"most must be at least 1. Got {most}. Leave --most out to have it chosen.")
        if wrong:
            raise ConfigurationError(*wrong)
        self.scale = Scale(scale)
        self.precision = precision
        self.most = most
        self.keep = keep_weights
        self.figures = tuple(name for name in FIGURES if name in figures)
        self.folder = ReproductionFolder(out)
        self.folder.refuse_occupied()
        self.corpora: dict[str, Corpus] = open_all(Path(data))
        self.library = Library(self.corpora.values())
        self.records = records.read(self.folder.path)
        self._refuse_another()
        # A figure never loses seeds that it has.
        seeds_had = {name: len(record.seeds) for name, record in self.records.items()}
        self.seeds = {name: max(seeds if name in figures else 0, seeds_had.get(name, 0)) for name in FIGURES}
        self.wanted = wanted(self.figures, self.seeds, self.scale, precision, self.corpora)
        self.known: dict[str, Curve] = {c.identity: c for r in self.records.values() for c in r.curves}

    def _refuse_another(self) -> None:
        """Refuse a folder of another scale, precision or text: all its records share these."""
        facts = self.folder.facts or {}
        scales = {r.scale for r in self.records.values()} | ({facts["scale"]} if facts else set())
        precisions = {c.precision for r in self.records.values() for c in r.curves}
        precisions |= {t.precision for r in self.records.values() for t in r.times}
        precisions |= {facts["precision"]} if facts else set()
        texts = {(c.corpus, c.sha256) for r in self.records.values() for c in r.curves}
        texts -= {(name, corpus.sha256) for name, corpus in self.corpora.items()}
        wrong = [f"another {name}.txt" for name, _ in sorted(texts)]
        wrong += [f"scale {value}" for value in sorted(scales - {self.scale.scale})]
        wrong += [f"precision {value}" for value in sorted(precisions - {self.precision})]
        if wrong:
            raise RunError(
                f"{self.folder.path} holds a reproduction with {', '.join(wrong)}: it cannot go on with scale "
                f"{self.scale.scale}, precision {self.precision} and this data. Choose another folder with --out."
            )
        self.keep = self.keep or bool(facts.get("keep"))

    @property
    def left(self) -> list[Wanted]:
        """The trainings that figures ask for and no record holds."""
        return [one for identity, one in self.wanted.items() if identity not in self.known]

    def plan(self, between: Callable[[], None] = lambda: None) -> tuple[Plan, list[Training]]:
        """The standing plan with what it lacks, and all trainings that it may hold. This writes nothing."""
        standing, trainings = (self.folder.plan, self.folder.trainings) if self.folder.is_sweep() else (None, [])
        standing = standing or Plan(())
        done = {t.name for t in trainings if t.experiment.identity in self.known}
        unended = tuple(fleet for fleet in standing.fleets if not done >= set(fleet.runs))
        standing = replace(standing, fleets=unended, refused={})
        placed = {name for fleet in standing.fleets for name in fleet.runs}
        new = [one for one in self.left if one.training.name not in placed]
        together = {t.name: t for t in (*trainings, *(one.training for one in new))}
        whole = planning.joined(standing, planning.make(new, self.corpora, self.scale, self.most, between))
        return whole, [t for name, t in together.items() if name in set(whole.names)]

    # --- the work ---------------------------------------------------------------------------------------------------

    def run(self, timed: Callable[[Time], None], save_every: int | None = None) -> Iterator[Report]:
        """Do what is left; yield what happens to fleets, and give times to `timed`."""
        self.folder.make()
        with self.folder.locked() as left_over, Watch() as watch:
            try:
                if left_over:
                    yield Noted("", left_over)
                self.folder.require_own_kind()
                self.folder.clear_partials()
                self.folder.facts = {"scale": self.scale.scale, "precision": self.precision, "keep": self.keep}
                self._write()
                self._clear()
                self._time(timed, watch)
                yield from self._train(save_every, watch)
            except Pressed as pressed:
                raise Interrupted(pressed.number) from None

    def _time(self, timed: Callable[[Time], None], watch: Watch) -> None:
        if "timing" not in self.figures:
            return
        record = self.records["timing"]
        english = self.corpora["english"]
        how = (self.scale, self.precision, english, self.most)
        asked = timing.missing(record, lambda one: timing.side_by_side(one, *how))
        for times, table in timing.measure(asked, *how, watch.check):
            if table:
                record = replace(record, times=timing.order((*record.times, *times)))
            else:
                record = replace(record, k1_times=timing.order((*record.k1_times, *times)))
            self.records["timing"] = record
            records.write(self.folder.path, record)
            for one in times:
                timed(one)

    def _train(self, save_every: int | None, watch: Watch) -> Iterator[Report]:
        if not self.left:
            return
        plan, trainings = self.plan(watch.check)
        sweep.refuse_full_disk(self.folder, plan, trainings, self.library)
        # The request is written first, and the plan next: between the two, the old plan still stands.
        before = self.folder.trainings if self.folder.is_sweep() else []
        self.folder.trainings = list({t.name: t for t in (*before, *trainings)}.values())
        self.folder.plan = plan
        self.folder.trainings = trainings
        names = {t.experiment.identity: t.name for t in trainings}
        fleets: dict[str, set[str]] = {}

        def over() -> dict[str, str]:
            return {names[i]: curve.state for i, curve in self.known.items() if i in names}

        wanted_now = {one.training.name for one in self.left}
        ended: dict[str, str] = {}
        for report in sweep.carry_out(
            self.folder,
            trainings,
            self.library,
            save_every,
            launchers.chosen(self._launcher(plan)),
            watch,
            over,
            wanted_now,
        ):
            if isinstance(report, sweep.Planned):
                fleets = {fleet.name: set(fleet.runs) for fleet in report.plan.fleets}
                ended = dict(report.ended)
            # A fleet is over once another reports: then nobody holds its folders.
            self._harvest(trainings, [r for name, r in fleets.items() if name != report.fleet and r <= ended.keys()])
            if isinstance(report, RunEnded):
                ended[report.run] = report.status["state"]
            yield report

    def _launcher(self, plan: Plan) -> str:
        """Small models on a CPU train one fleet per core, where processes can be started."""
        one_fleet_a_core = not self.scale.whole and all(devices.is_host(fleet.device) for fleet in plan.fleets)
        return "processes" if one_fleet_a_core and not launchers.problem("processes") else "local"

    def _harvest(self, trainings: Sequence[Training], fleets: Sequence[set[str]]) -> None:
        """Put the curves of finished fleets into the records; then their folders may go."""
        over = {name for runs in fleets for name in runs}
        new = [t for t in trainings if t.name in over and t.experiment.identity not in self.known]
        if not new:
            return
        for one in new:
            experiment = one.experiment
            series = self._series(experiment)
            corpus = self.corpora[series.corpus]
            self.known[experiment.identity] = curve_of_run(experiment, series, corpus, self.folder.run(one.name))
        self._write()
        self._clear()

    def _series(self, experiment: Experiment) -> Series:
        """A training's point in the grid; one of an earlier request may not be wanted now."""
        if experiment.identity in self.wanted:
            return self.wanted[experiment.identity].series
        return series_by_identity(experiment.seed, self.scale, self.precision, self.corpora)[experiment.identity]

    # --- files ------------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        """Write the records that have changed.

        A fleet that an earlier request began may hold runs of a figure that is not asked for now. Their curves need a
        figure as well.
        """
        for figure in self.figures:
            self._write_one(figure, self.seeds[figure])
        stored = {curve.identity for record in self.records.values() for curve in record.curves}
        for curve in [curve for identity, curve in self.known.items() if identity not in stored]:
            series = training(curve.series)
            figure = next(name for name, curves in FIGURES.items() if series in map(training, curves))
            self._write_one(figure, max(self.seeds[figure], curve.seed + 1))

    def _write_one(self, figure: str, seeds: int) -> None:
        self.seeds[figure] = seeds
        by_series = {(training(curve.series), curve.seed): curve for curve in self.known.values()}
        curves = tuple(
            replace(curve, scheme=series.scheme, sample=series.sample)
            for series in FIGURES[figure]
            for seed in range(seeds)
            if (curve := by_series.get((training(series), seed)))
        )
        before = self.records.get(figure) or Record(figure, self.scale.scale, (), VERSION)
        record = replace(before, seeds=tuple(range(seeds)), curves=curves)
        if record != self.records.get(figure):
            records.write(self.folder.path, record)
            self.records[figure] = record

    def _clear(self) -> None:
        """Drop the folders of runs whose curves are in the records, and at the end the plan."""
        if not self.folder.is_sweep():
            return
        trainings = self.folder.trainings
        done = [one for one in trainings if one.experiment.identity in self.known]
        for one in done:
            if not self.keep:
                self.folder.run(one.name).remove()
        if len(done) == len(trainings):
            self.folder.forget()

    def status(self) -> dict[str, Status]:
        """How each figure stands."""
        statuses = {}
        for figure in self.figures:
            states = [c.state for c in self.records[figure].curves] if figure in self.records else []
            total = len(FIGURES[figure]) * self.seeds[figure]
            statuses[figure] = Status(total, states.count("finished"), states.count("stopped"))
        return statuses

    def seconds(self) -> tuple[float, float]:
        """Seconds of training and of evaluation behind the figures' curves, each training once."""
        by_identity = {
            c.identity: c for name in self.figures if name in self.records for c in self.records[name].curves
        }
        trained = sum((c.points["seconds"] or [0.0])[-1] or 0.0 for c in by_identity.values())
        return trained, sum(c.evaluating / c.fleet for c in by_identity.values())
