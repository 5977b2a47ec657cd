"""The advice as plain data: what advice.json holds, and what a terminal, a notebook and Python show.

What clocks say stands under `clocks` and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from unroll.experiment.experiment import Experiment
from unroll.runs import selection
from unroll.sweep.advice import candidates, extrapolation, findings, verdict, words
from unroll.sweep.advice.asked import Asked
from unroll.sweep.advice.candidates import Result
from unroll.sweep.advice.extrapolation import Expectation
from unroll.sweep.advice.measures import Measures
from unroll.sweep.advice.pilot import Finalist
from unroll.sweep.advice.verdict import Verdict
from unroll.sweep.comparison import paired
from unroll.sweep.comparison.asked import in_full
from unroll.training import preflight

METHOD = (
    "Perplexities of the pilot are those of the {chosen_on}, at each run's best evaluation, all on the same tokens. "
    "Those after a full run are expected: the curves of the pilot, drawn on as a power law. How sure: paired by seed, "
    "1 less the chance with which equal settings differ as much. How far curves may be drawn on wrongly is no part of "
    "that: the interval of the expected test perplexity has it."
)


def make(
    asked: Asked, decided: Verdict, measured: Measures, tried: Mapping[str, Sequence[Result]], spent: float
) -> dict[str, Any]:
    """The advice, from a pilot that is over."""
    taken = decided.taken
    experiment = taken.experiment
    expected = _expected(taken, measured, decided.full)
    chosen_on = selection.chosen_on(experiment)
    length = _length(taken, expected, decided.full)
    facts: dict[str, Any] = {
        "corpus": experiment.title or experiment.corpus or "text",
        "asked": {"budget": asked.budget, "batches": asked.batches, "said": sorted(asked.said)},
        "need": asked.need,
        "tokens": experiment.tokens,
        "chosen_on": chosen_on,
        "batches": taken.batches,
        "full": length,
        "epochs": candidates.epochs(experiment, length),
        "read": candidates.epochs(experiment, taken.batches),
        "seeds": len(taken.runs),
        "taken": decided.position,
        "settings": [_setting(n, decided, asked.base) for n in range(len(decided.finalists))],
        "expected": None if expected is None else _finite(asdict(expected)),
        "reached": _reached(taken, measured),
        "other": None if measured.other is None else paired.exp(measured.other),
        "tried": {name: _tried(results, asked.base) for name, results in tried.items()},
        "choices": {need: decided.finalists.index(one) for need, one in verdict.choices(decided).items()},
        "clocks": {
            "spent": spent,
            "microseconds": measured.microseconds,
            "batch_ms": measured.batch_ms,
            "training": None if measured.training is None else measured.training * length / decided.full,
            "evaluating": measured.evaluating,
        },
        "bytes": {
            "training": measured.bytes,
            "weights": preflight.weights_bytes(experiment, experiment.unique or 1) // 2,
        },
        "method": METHOD.format(chosen_on=chosen_on),
    }
    facts["notes"] = findings.notes(facts)
    facts["command"] = words.command(facts, experiment, asked) if expected else []
    facts["sentences"] = words.sentences(facts)
    return facts


def _expected(taken: Finalist, measured: Measures, full: int) -> Expectation | None:
    """What a full run is expected to reach on the whole test set: the curves of its parts, moved to where that lies."""
    # A run that failed may have left weights of an earlier batch: what they reach stands beside no curve.
    shifts = [
        nats - here
        for nats, curve in zip(measured.nats, taken.curves, strict=True)
        if nats is not None and (here := _best_test(curve)) is not None
    ]
    if not shifts:
        return None
    shift = math.exp(paired.mean(shifts))
    moved = [
        replace(curve, test=tuple((batch, perplexity * shift) for batch, perplexity in curve.test))
        for curve in taken.curves
    ]
    return extrapolation.expected(moved, full)


def _best_test(curve: extrapolation.Curve) -> float | None:
    """The log perplexity of the test set where the set that chooses was lowest; None where nothing is finite."""
    test = {batch: perplexity for batch, perplexity in curve.test if math.isfinite(perplexity)}
    chosen = [(p, batch) for batch, p in curve.validation or curve.test if batch in test and math.isfinite(p)]
    return math.log(test[min(chosen)[1]]) if chosen else None


def _length(taken: Finalist, expected: Expectation | None, full: int) -> int:
    """How many batches the full run gets: where the pilot turned, a few more than up to its best."""
    turned = expected.turned if expected else taken.turned
    return min(full, max(2 * taken.best_batch, 1)) if turned and taken.best_batch else full


def _finite(numbers: dict[str, Any]) -> dict[str, Any]:
    """The same as advice.json has it, where no number is infinite."""
    return {name: None if value == math.inf else value for name, value in numbers.items()}


def _reached(taken: Finalist, measured: Measures) -> float | None:
    whole = [n for n, curve in zip(measured.nats, taken.curves, strict=True) if n is not None and curve.test]
    return paired.exp(paired.mean(whole)) if whole else None


def _setting(position: int, decided: Verdict, base: Experiment) -> dict[str, Any]:
    """A setting of the last stage, in its place."""
    one, place = decided.finalists[position], decided.placed[position]
    e = one.experiment
    pilot = [nats for nats in one.nats.values() if math.isfinite(nats)]
    trained, sampled, *_ = candidates.cost(e)
    return {
        "words": words.setting(e),
        "in_full": in_full(e.scheme),
        "training": e.scheme.training,
        "sample": e.scheme.sample,
        "carries": e.scheme.carries,
        "k1": e.scheme.k1,
        "k2": e.scheme.k2,
        "rows": e.rows,
        "hidden": e.hidden,
        "learning_rate": e.learning_rate,
        "dropout": e.dropout,
        "seeds": len(pilot),
        "missing": len(one.nats) - len(pilot),
        "pilot": paired.exp(paired.mean(pilot)) if pilot else None,
        "expected": None if place.perplexity is None else asdict(place.perplexity),
        "ratio": None if place.ratio is None else asdict(place.ratio),
        "sure": place.sure,
        "apart": place.is_apart if position else None,
        "best_batch": one.best_batch,
        "turned": one.turned,
        "numbers": verdict.weights(one),
        "work": {"trained": trained, "sampled": sampled},
    }


def _tried(results: Sequence[Result], base: Experiment) -> list[dict[str, Any]]:
    ranked = sorted(results, key=lambda result: result.nats)
    return [
        {
            "words": words.setting(result.experiment),
            "perplexity": None if result.nats == math.inf else paired.exp(result.nats),
            "turned": result.turned,
            "same": result.experiment == candidates.setting(base),
        }
        for result in ranked
    ]
