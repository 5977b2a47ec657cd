"""The answer of a comparison as plain data: what compare.json holds, and what a terminal, a notebook and a page show.

Schemes are ranked by their best perplexity, each at the k1 whose mean is lowest. The best of a run is chosen on the
validation set where there is one, and scored on the test set. What clocks say stands under `clocks` and nowhere else,
so that equal comparisons are equal without it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from unroll.experiment.experiment import Experiment
from unroll.runs import selection
from unroll.sweep.answers import Interval
from unroll.sweep.comparison import findings, paired, readings, words
from unroll.sweep.comparison.asked import Asked, in_full, label
from unroll.sweep.comparison.folder import ComparisonFolder
from unroll.sweep.comparison.measures import Measured
from unroll.sweep.comparison.paired import Placed
from unroll.sweep.comparison.readings import Reading
from unroll.sweep.paced.folder import Progress

Setting = tuple[str, int]  # a scheme's label, and k1
Settings = dict[Setting, list[Reading]]


def make(
    folder: ComparisonFolder, asked: Asked, progress: Progress, spent: float, measured: Mapping[str, Measured]
) -> dict[str, Any]:
    """The answer, from the folder of a comparison whose training is over."""
    settings, common = _settings(folder)
    experiment = next(iter(settings.values()))[0].experiment
    every = [reading for group in settings.values() for reading in group]
    ranked = _ranked(settings)
    schemes = [
        _scheme(one, settings, measured.get(one.name), first=ranked[0], final=_final(settings, _chosen(settings)))
        for one in ranked
    ]
    seconds = readings.equal_seconds(every)
    facts: dict[str, Any] = {
        "corpus": experiment.title or experiment.corpus or "text",
        "asked": {"budget": progress.budget, "batches": progress.batches},
        "tokens": experiment.tokens,
        "scored": _scored(experiment),
        "chosen_on": selection.chosen_on(experiment),
        "batches": common,
        "rounds": list(progress.rounds),
        "cut": progress.cut,
        "sequences": common * experiment.rows,
        "seeds": len({reading.experiment.seed for reading in every}),
        "runs": len({reading.run for reading in every}),
        "method": paired.METHOD,
        "schemes": schemes,
        "settings": [_setting(name, group, seconds) for name, group in settings.items()],
        "sure": schemes[1]["sure"] if len(schemes) > 1 else None,
        "winner": paired.has_winner(ranked),
        "failures": {reading.run: reading.reason for reading in every if not reading.is_whole},
        "clocks": {"spent": spent, "equal_seconds": seconds},
    }
    facts["notes"] = findings.notes(facts, experiment)
    facts["command"] = words.command(facts, _first(settings, ranked), asked.corpus)
    facts["sentences"] = words.sentences(facts)
    return facts


def chosen(folder: ComparisonFolder, asked: Asked) -> dict[str, tuple[str, str]]:
    """The run of each scheme that is sampled and measured: of its chosen k1, the first seed that is whole."""
    settings, _ = _settings(folder)
    found = {}
    for scheme, k1 in _chosen(settings).items():
        group = sorted(settings[scheme, k1], key=lambda reading: reading.experiment.seed)
        reading = next((reading for reading in group if reading.is_whole), None)
        if reading is not None:
            found[scheme] = (str(folder.run(reading.run).path), reading.experiment.scheme.sample)
    return found


def _settings(folder: ComparisonFolder) -> tuple[Settings, int]:
    """The readings of each scheme and k1, in the order of schemes; and the batch up to which they go."""
    trainings = folder.trainings
    failures = {name: str(failure["reason"]) for name, failure in folder.failures.items()}
    found, common = readings.read(trainings, {t.name: folder.run(t.name) for t in trainings}, failures)
    found.sort(key=lambda r: (r.experiment.scheme.number or 9, label(r.experiment.scheme), r.experiment.scheme.k1))
    settings: Settings = {}
    for reading in found:
        settings.setdefault((label(reading.experiment.scheme), reading.experiment.scheme.k1), []).append(reading)
    return settings, common


def _chosen(settings: Settings) -> dict[str, int]:
    """The k1 of each scheme with the lowest mean of the perplexity that chooses."""
    k1: dict[str, int] = {}
    lowest: dict[str, tuple[int, float]] = {}
    for (scheme, each), group in settings.items():
        points = [point for reading in group if (point := reading.best) is not None]
        score = (len(group) - len(points), paired.geometric(point.chosen for point in points))
        if scheme not in lowest or score < lowest[scheme]:
            k1[scheme], lowest[scheme] = each, score
    return k1


def _ranked(settings: Settings) -> list[Placed[str]]:
    """The schemes, or the k1 of the only one, by their best perplexities."""
    return paired.ranked({s: _by_seed(settings[s, k1], best=True) for s, k1 in _chosen(settings).items()})


def _final(settings: Settings, chosen: Mapping[str, int]) -> dict[str, Placed[str]]:
    placed = paired.ranked({s: _by_seed(settings[s, k1], best=False) for s, k1 in chosen.items()})
    return {one.name: one for one in placed}


def _by_seed(group: Sequence[Reading], best: bool) -> dict[int, float]:
    """The test set's perplexity by seed: at the best evaluation, or at the end."""
    scores = {}
    for reading in group:
        point = reading.best if best else None
        scores[reading.experiment.seed] = (point.test if point else math.inf) if best else reading.final
    return scores


def _scheme(
    one: Placed[str],
    settings: Settings,
    measured: Measured | None,
    first: Placed[str],
    final: Mapping[str, Placed[str]],
) -> dict[str, Any]:
    """A scheme in its place."""
    k1 = _chosen(settings)[one.name]
    of_scheme = {each: group for (scheme, each), group in settings.items() if scheme == one.name}
    group, scheme = of_scheme[k1], of_scheme[k1][0].experiment.scheme
    by_k1 = paired.ranked({each: _by_seed(of, best=True) for each, of in of_scheme.items()})
    points = [point for reading in group if (point := reading.best) is not None]
    starts = [ratio for reading in group if (ratio := reading.zero_over_carried) is not None]
    facts: dict[str, Any] = {
        "scheme": one.name,
        "in_full": in_full(scheme),
        "number": scheme.number,
        "training": scheme.training,
        "sample": scheme.sample,
        "carries": scheme.carries,
        "reset": scheme.reset if scheme.carries else None,
        "k1": k1,
        "k2": scheme.k2,
        "seeds": one.seeds,
        "missing": one.missing,
        "best": _interval(one.perplexity),
        "best_batch": round(statistics.median(point.batch for point in points)) if points else None,
        "final": _interval(final[one.name].perplexity),
        "ratio": _interval(one.ratio),
        "sure": one.sure,
        "apart": one.is_apart if one.name != first.name else None,
        "rise": max((reading.rise for of in of_scheme.values() for reading in of), default=0.0),
        "zero_over_carried": paired.geometric(starts) if starts else None,
        "k1_spread": _spread(by_k1),
        "k1_sure": by_k1[1].sure if len(by_k1) > 1 else None,
        "k1_best": by_k1[0].name,
        "copied": measured and {key: getattr(measured, key) for key in ("tokens", "longest", "held_out", "why_not")},
        "drift": measured and {key: getattr(measured, key) for key in ("drift", "drift_low", "drift_high", "age")},
    }
    facts["clocks"] = {"microseconds": measured.microseconds if measured else {}, "batch_ms": _milliseconds(group)}
    return facts


def _spread(by_k1: Sequence[Placed[int]]) -> float | None:
    """How far the means of the k1 lie apart: 0.1 is a tenth."""
    means = [one.perplexity.mean for one in by_k1 if one.perplexity is not None]
    return max(means) / min(means) - 1 if len(means) > 1 else None


def _setting(name: Setting, group: Sequence[Reading], seconds: float) -> dict[str, Any]:
    """A scheme with one k1."""
    scheme, k1 = name
    finals, bests = (list(_by_seed(group, best=best).values()) for best in (False, True))
    points = [point for reading in group if (point := reading.best) is not None]
    return {
        "scheme": scheme,
        "k1": k1,
        "seeds": sum(reading.is_whole for reading in group),
        "missing": sum(not reading.is_whole for reading in group),
        "final": _interval(_over_seeds(finals)),
        "best": _interval(_over_seeds(bests)),
        "best_batch": round(statistics.median(point.batch for point in points)) if points else None,
        "rise": max((reading.rise for reading in group), default=0.0),
        "clocks": {
            "at_seconds": _interval(_over_seeds([reading.at(seconds) for reading in group])),
            "batch_ms": _milliseconds(group),
        },
    }


def _over_seeds(values: Sequence[float]) -> Interval | None:
    logs = [math.log(value) for value in values if 0 < value < math.inf]
    return paired.interval(logs) if logs else None


def _milliseconds(group: Sequence[Reading]) -> float | None:
    """A batch of one run, its share of its fleet."""
    taken = [1000 * r.points[-1].seconds / r.points[-1].batch for r in group if r.points]
    return statistics.median(taken) if taken else None


def _first(settings: Settings, ranked: Sequence[Placed[str]]) -> Reading:
    return settings[ranked[0].name, _chosen(settings)[ranked[0].name]][0]


def _scored(experiment: Experiment) -> int | None:
    """How many tokens of each set were scored; None for all of them."""
    return experiment.test_tokens and experiment.test_tokens - experiment.scheme.k2


def _interval(interval: Interval | None) -> dict[str, Any] | None:
    return None if interval is None else asdict(interval)
