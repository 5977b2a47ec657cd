"""The study: from parts to records, a fleet at a time.

OUT/records/PART.json    what came out, written as soon as a fleet ends; alone enough to know what is left to do

Run folders are temporary: what is measured of a model that carries states is measured while it trains. A fleet that
is interrupted begins anew; fleets that have ended are never trained again.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from unroll.base import locks, untrusted
from unroll.base.errors import ConfigurationError, RunError
from unroll.corpus.batches import Schedule
from unroll.corpus.corpus import Corpus
from unroll.engines import devices
from unroll.runs.folder import RunFolder
from unroll.studies.beyond import ngrams, records
from unroll.studies.beyond.experiments import FULL, Asked, Size, every
from unroll.studies.beyond.parts import NAMES, NGRAMS, PARTS
from unroll.studies.beyond.positions import ByPosition, by_position, edges
from unroll.studies.beyond.records import Measured, Record
from unroll.studies.paper.experiments import MOST_SMALL, open_all, title
from unroll.studies.paper.records import significant
from unroll.sweep import plan as plans
from unroll.sweep.plan import Fleet
from unroll.training.events import Evaluated, Event
from unroll.training.learner import Learner
from unroll.training.loop import train_fleet

MOST = 36  # runs side by side on a GPU: a part's runs of one shape, in as few fleets as trained well before


@dataclass(frozen=True)
class Progress:
    """Something that is worth a line: a fleet, a count of n-grams, or a whole part."""

    part: str
    what: str
    seconds: float


class Study:
    """Parts of the study, of one size, in one folder."""

    def __init__(
        self,
        parts: Sequence[str],
        data: str | Path,
        out: str | Path,
        size: Size = FULL,
        most: int | None = None,
    ) -> None:
        wrong = [f"{name!r} is no part: {', '.join(NAMES)}." for name in parts if name not in NAMES]
        if most is not None and most < 1:
            wrong.append(f"most must be at least 1. Got {most}.")
        if wrong:
            raise ConfigurationError(*wrong)
        self.parts = tuple(dict.fromkeys(parts))
        self.out, self.size = Path(out), size
        self.most = most or (MOST_SMALL if devices.is_host(devices.best()) else MOST)
        self._refuse_occupied()
        self.corpora: dict[str, Corpus] = open_all(Path(data))
        self.records = records.read(self.out)
        self._refuse_another()

    def _refuse_occupied(self) -> None:
        try:
            names = {path.name for path in locks.others(self.out)} if self.out.is_dir() else set()
            occupied = untrusted.present(self.out) and not self.out.is_dir()
        except (OSError, ValueError) as error:
            raise RunError(f"Cannot use the folder {self.out}: {error}. Choose another with --out.") from None
        if occupied or not names <= {"records"}:
            raise RunError(f"{self.out} exists and holds something else. Choose another folder with --out.")

    def _refuse_another(self) -> None:
        """Refuse records of another size, or of other texts."""
        wrong = []
        for part, record in self.records.items():
            if record.size != self.size:
                wrong.append(f"{records.path(self.out, part)} is of the size {record.size.name}, not {self.size.name}.")
            elif any(run.sha256 != self.corpora[run.corpus].sha256 for run in record.runs):
                wrong.append(f"{records.path(self.out, part)} is of other texts.")
        if wrong:
            raise RunError(*wrong, "Choose another folder with --out.")

    def asked(self, part: str) -> dict[str, Asked]:
        """Every run of a part, by identity."""
        return {one.experiment.identity: one for one in every(PARTS[part], self.size, self.corpora)}

    def left(self, part: str) -> dict[str, Asked]:
        """The runs of a part that its record does not hold."""
        known = {run.identity for run in self.records[part].runs} if part in self.records else set()
        return {identity: one for identity, one in self.asked(part).items() if identity not in known}

    def run(self) -> Iterator[Progress]:
        """Do what is left, and say how long each fleet and each part took."""
        try:
            (self.out / "records").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"Cannot make the folder {self.out}: {error.strerror}. Choose another.") from None
        missing = f"{self.out} cannot be opened. Choose another folder with --out."
        with locks.hold(self.out, missing, f"Another process is at work in {self.out}. Wait for it."):
            for part in self.parts:
                began = time.perf_counter()
                yield from self._count() if part == NGRAMS else self._train(part)
                yield Progress(part, "the whole part", time.perf_counter() - began)

    def _count(self) -> Iterator[Progress]:
        began = time.perf_counter()
        for row in ngrams.count(self.out, self.corpora):
            words = f"{row.corpus}, split {row.split_seed}: {row.order}-gram {row.perplexity}"
            yield Progress(NGRAMS, words, time.perf_counter() - began)
            began = time.perf_counter()

    def _train(self, part: str) -> Iterator[Progress]:
        left = self.left(part)
        if not left:
            return
        experiments = {identity: one.experiment for identity, one in left.items()}
        texts = {identity: self.corpora[one.corpus] for identity, one in left.items()}
        plan = plans.make(experiments, texts, self.most)
        if plan.refused:
            raise RunError(*dict.fromkeys(plan.refused.values()))
        for number, fleet in enumerate(plan.fleets, 1):
            began = time.perf_counter()
            measured = self._fleet(fleet, left)
            seconds = time.perf_counter() - began
            before = self.records.get(part) or Record(part, self.size)
            order = list(self.asked(part))
            runs = sorted((*before.runs, *measured), key=lambda run: order.index(run.identity))
            self.records[part] = replace(before, seconds=round(before.seconds + seconds, 1), runs=tuple(runs))
            records.write(self.out, self.records[part])
            trained = sum((run.points["seconds"] or [0.0])[-1] or 0.0 for run in measured)
            words = (
                f"fleet {number} of {len(plan.fleets)}, {len(fleet.runs)} runs: "
                f"{trained:.0f} s of training, {measured[0].evaluating:.0f} s of evaluation"
            )
            yield Progress(part, words, seconds)

    def _fleet(self, fleet: Fleet, left: Mapping[str, Asked]) -> list[Measured]:
        """Train one fleet in temporary folders, and return what it measured."""
        asked = [left[identity] for identity in fleet.runs]
        experiments = [
            replace(one.experiment, device=fleet.device, kernel=fleet.kernel, threads=fleet.threads) for one in asked
        ]
        corpora = [self.corpora[one.corpus] for one in asked]
        with tempfile.TemporaryDirectory(prefix="unroll-beyond-") as folder:
            outs = [Path(folder) / str(m) for m in range(len(asked))]
            positions = Positions(asked, corpora)
            # No checkpoint is needed, since a fleet begins anew.
            with closing(train_fleet(experiments, corpora, outs, save_every=self.size.batches + 1)) as events:
                for event in events:
                    positions.note(event)
            return [
                measured_run(one, corpus, RunFolder(out), positions.of_runs.get(m, {}))
                for m, (one, corpus, out) in enumerate(zip(asked, corpora, outs, strict=True))
            ]


class Positions:
    """What is measured by position at every evaluation of a fleet, for the runs that carry states."""

    def __init__(self, asked: Sequence[Asked], corpora: Sequence[Corpus]) -> None:
        self._carrying = [m for m, one in enumerate(asked) if one.experiment.scheme.carries]
        self._texts = [
            corpora[m].test_ids(asked[m].experiment.split_seed)[: asked[m].experiment.test_tokens].astype("int64")
            for m in self._carrying
        ]
        self._measured = 0  # the last batch
        self.of_runs: dict[int, dict[int, ByPosition]] = {m: {} for m in self._carrying}

    def note(self, event: Event) -> None:
        """Measure all of them, once a batch at which any is evaluated."""
        if not isinstance(event, Evaluated) or event.batch == self._measured:
            return
        self._measured = event.batch
        learner: Learner = event.learner
        texts = [torch.from_numpy(ids).to(learner.model.device) for ids in self._texts]
        for m, one in by_position(learner, self._carrying, texts).items():
            self.of_runs[m][event.batch] = one


def measured_run(asked: Asked, corpus: Corpus, run: RunFolder, by_batch: Mapping[int, ByPosition]) -> Measured:
    """What a finished run's folder says, and what was measured beside it."""
    e, status, lines = asked.experiment, run.status, run.metrics
    points: dict[str, list[Any]] = {name: [line[name] for line in lines] for name in ("batch", "sequences")}
    for name in ("loss", "largest_loss", "largest_gradient_norm"):
        points[name] = [significant(line[name], 6) for line in lines]
    for procedure in ("windowed", "progressive"):
        points[procedure] = [significant(line["perplexity"].get(procedure), 6) for line in lines]
        scores = [line["validation"].get(procedure) for line in lines]
        points[f"validation_{procedure}"] = [significant(score, 6) for score in scores]
    at = [by_batch.get(line["batch"]) for line in lines]
    points["carried"] = [significant(one.perplexity, 6) if one else None for one in at]
    points["seconds"] = [significant(line["seconds"], 4) for line in lines]
    bins: dict[str, list[Any]] | None = None
    if e.scheme.carries:
        tokens = len(corpus.test_ids(e.split_seed)[: e.test_tokens])
        ends = edges(tokens, e.scheme.k2)
        bins = {"from": ends[:-1], "tokens": [b - a for a, b in pairwise(ends)]}
        for name in ("zero", "carried"):
            rows = [getattr(one, name) if one else () for one in at]
            bins[name] = [[significant(value, 5) for value in row] for row in rows]
    return Measured(
        setting=asked.setting.name,
        train=asked.setting.train,
        sample=e.scheme.sample,
        corpus=asked.corpus,
        title=title(asked.corpus, corpus),
        sha256=e.sha256,
        k1=e.scheme.k1,
        k2=e.scheme.k2,
        hidden=e.hidden,
        seed=e.seed,
        split_seed=e.split_seed,
        batches=e.batches,
        identity=e.identity,
        state=status["state"],
        reason=status.get("reason"),
        epoch=Schedule(e, corpus.split(e.split_seed, e.validation).train).batches_an_epoch,
        fleet=status["fleet"],
        kernel=status["kernel"],
        precision=e.precision,
        device=status["device"],
        evaluating=significant(status["evaluating"], 4) or 0.0,
        points=points,
        by_position=bins,
    )
