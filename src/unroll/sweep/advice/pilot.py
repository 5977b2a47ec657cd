"""What a pilot's runs came to: settings with one seed, and the last ones with several, extrapolated to a full run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from unroll.experiment.experiment import Experiment
from unroll.sweep.advice import extrapolation
from unroll.sweep.advice.candidates import Result, setting
from unroll.sweep.advice.extrapolation import Curve
from unroll.sweep.comparison import readings
from unroll.sweep.comparison.readings import Reading
from unroll.sweep.paced.folder import PacedFolder

Scores = Mapping[str, float | None]
TURNED = 0.01  # above its best at the end
FAILED = Curve(())


@dataclass(frozen=True)
class Finalist:
    """A setting of the last stage; numbers are by seed."""

    experiment: Experiment
    runs: tuple[str, ...]  # in the order of their seeds
    nats: Mapping[int, float]  # of the set that chooses, at each run's best evaluation so far
    expected: Mapping[int, float]  # the same at the end of a full run
    curves: tuple[Curve, ...]  # in the order of the seeds; empty where a seed's run failed
    batches: int  # so far
    best_batch: int  # where the set that chooses was lowest, the middle of the seeds
    turned: bool


def read(rung: PacedFolder) -> list[Reading]:
    """The curves of a stage, all up to one batch."""
    trainings = rung.trainings
    failures = {name: str(failure["reason"]) for name, failure in rung.failures.items()}
    found, _ = readings.read(trainings, {t.name: rung.run(t.name) for t in trainings}, failures)
    return found


def results(rung: PacedFolder, scores: Scores) -> list[Result]:
    """What each setting came to, in the order of the settings' names; one seed stands for it."""
    found = []
    for reading in read(rung):
        score = scores.get(reading.run)
        nats = math.inf if score is None or not reading.is_whole else score
        found.append(Result(setting(reading.experiment), nats, turned(reading)))
    return found


def finalists(rung: PacedFolder, scores: Scores, batches: int | None, full: int) -> tuple[list[Finalist], int]:
    """The settings of the last stage, and how many batches a full run is to have.

    That is what was asked for, or `full`; where the pilot has come that far itself, twice as many as it trained.
    """
    groups: dict[Experiment, list[Reading]] = {}
    for reading in read(rung):
        groups.setdefault(setting(reading.experiment), []).append(reading)
    so_far = max((r.points[-1].batch for group in groups.values() for r in group if r.points), default=1)
    full = batches or max(full, 2 * so_far)
    return [_finalist(experiment, group, scores, full) for experiment, group in groups.items()], full


def _finalist(experiment: Experiment, group: list[Reading], scores: Scores, full: int) -> Finalist:
    group = sorted(group, key=lambda reading: reading.experiment.seed)
    nats: dict[int, float] = {}
    for reading in group:
        score = scores.get(reading.run)
        nats[reading.experiment.seed] = math.inf if score is None or not reading.is_whole else score
    whole = [reading for reading in group if math.isfinite(nats[reading.experiment.seed])]
    curves = tuple(curve(reading) if reading in whole else FAILED for reading in group)
    known = extrapolation.parts(curves, full)
    gain = known.gain if known else 0.0
    best = sorted(point.batch for reading in whole if (point := reading.best) is not None)
    return Finalist(
        experiment=replace(experiment, batches=full),
        runs=tuple(reading.run for reading in group),
        nats=nats,
        expected={seed: max(value - gain, 0.0) for seed, value in nats.items()},
        curves=curves,
        batches=max((r.points[-1].batch for r in whole), default=0),
        best_batch=best[len(best) // 2] if best else 0,
        turned=bool(whole) and all(map(turned, whole)),
    )


def curve(reading: Reading, shift: float = 0.0) -> Curve:
    """A run's evaluations; test perplexities moved by a shift of their logarithms."""
    times = math.exp(shift)
    test = tuple((point.batch, point.test * times) for point in reading.points)
    return Curve(test, tuple((point.batch, point.chosen) for point in reading.points))


def turned(reading: Reading) -> bool:
    """Whether the set that chooses rose at the end: more training would not help."""
    best = reading.best
    return best is not None and reading.points[-1].chosen > (1 + TURNED) * best.chosen
