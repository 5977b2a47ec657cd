"""The answer in three sentences and a command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unroll.experiment.experiment import PRESETS, Experiment
from unroll.experiment.scheme import Scheme
from unroll.experiment.settings import options_of
from unroll.sweep.comparison.asked import OURS, PRESET
from unroll.sweep.comparison.numbers import between, number, percent
from unroll.sweep.comparison.readings import Reading

TURNED = 0.01  # above its best at the end: then a longer training would not help
PATIENCE = 4  # evaluations, each about a quarter more batches than the one before
CLAIMED = 0.95  # from which on a difference is claimed
MUCH = 1.2  # so many times as fast is worth a word
NEAR = 0.02  # of perplexity, within which what costs less is worth a word
NOT_SAID = (*OURS, "test_tokens", "k2", "device", "kernel", "threads", "validation")

Facts = Mapping[str, Any]


def sentences(facts: Facts) -> list[str]:
    """What to take, why, and what it costs or what speaks against it."""
    first, *others = facts["schemes"]
    if first["best"] is None:
        return ["No scheme has a run that ended with a finite perplexity: there is nothing to take."]
    return [_take(facts, first), _why(facts, first, others), _cost(facts, first, others)]


def _take(facts: Facts, first: Facts) -> str:
    if facts["batches"] and _turned(first):
        length = f"and stop at about batch {first['best_batch']:,}, where it was best"
    else:
        length = f"and train on: after {facts['batches']:,} batches it was still getting better"
    return f"Take {first['in_full']} with k1 = {first['k1']}, {length}."


def _why(facts: Facts, first: Facts, others: list[Facts]) -> str:
    best = f"Its best perplexity is {number(first['best']['mean'])}{between(first['best'])}"
    if not others or others[0]["ratio"] is None:
        return f"{best}, and there is nothing to compare it with."
    second, *_ = others
    behind = f"that of {second['scheme']} is {percent(second['ratio']['mean'] - 1)} higher"
    if second["sure"] is None:
        return f"{best}, {behind}, and one seed does not tell them apart."
    claim = f"that {first['scheme']} is better is {sureness(second['sure'])}"
    tied = [other["scheme"] for other in others if not other["apart"]]
    beaten = [other["scheme"] for other in others if other["apart"]]
    if not tied:
        return f"{best}, {behind}; {claim}, and the seeds tell it from all others as well."
    if not beaten:
        return f"{best}, {behind}; {claim}: the seeds do not tell it from {listed(tied)}."
    return f"{best}, {behind}; {claim}: the seeds tell it from {listed(beaten)}, but not from {listed(tied)}."


def _cost(facts: Facts, first: Facts, others: list[Facts]) -> str:
    micro = own_microseconds(first)
    batch = first["clocks"]["batch_ms"]
    costs = [f"{batch:.3g} ms a batch"] if batch else []
    costs += [f"{micro:.0f} µs a sampled token"] if micro else []
    said = f"Here it costs {' and '.join(costs)}" if costs else "Its costs could not be measured"
    # Models of one shape that are sampled in one way cost the same: a difference between their clocks is an accident.
    near = [
        one
        for one in others
        if one["sample"] != first["sample"] and one["ratio"] and (not one["apart"] or one["ratio"]["mean"] < 1 + NEAR)
    ]
    faster = [(micro / theirs, one) for one in near if micro and (theirs := own_microseconds(one))]
    times, one = max(faster, key=lambda pair: pair[0], default=(1.0, first))
    if times >= MUCH:
        return f"{said}; where sampling must be fast, {one['scheme']} draws a token in {1 / times:.0%} of that time."
    if first["carries"] and (first["zero_over_carried"] or 1) > 1.05:
        return f"{said}; give it a long prompt, since from an empty state it predicts worse."
    return f"{said}, and none of the others that come near is sampled in much less time."


def command(facts: Facts, reading: Reading, corpus: str) -> list[str]:
    """The words of `unroll train` that train what is recommended."""
    experiment, first = reading.experiment, facts["schemes"][0]
    scheme = experiment.scheme
    base = replace(Experiment(**{**PRESETS[PRESET], "batches": 1}), scheme=Scheme())
    near = _differences(experiment, base) < _differences(experiment, Experiment(batches=1))
    said = ["unroll", "train", corpus or experiment.corpus or "CORPUS"]
    said += ["--preset", PRESET] if near else []
    said += ["--scheme", str(scheme.number)] if scheme.number else ["--train", scheme.training]
    said += [] if scheme.number else ["--sample", scheme.sample]
    said += ["--k1", str(scheme.k1), "--k2", str(scheme.k2)]
    said += options_said(experiment, base if near else Experiment(batches=1))
    turned = _turned(first)
    longest = PRESETS[PRESET]["batches"] if near else Experiment().batches
    batches = facts["batches"] if turned else max(longest, 2 * facts["batches"])
    said += ["--batches", str(max(batches, 1))]
    if experiment.validation:
        said += ["--validation", str(experiment.validation)]
    if experiment.validation or experiment.validation_file:
        said += ["--patience", str(PATIENCE)]  # the validation set says when to stop
    elif turned and first["best_batch"]:
        said[-1] = str(first["best_batch"])
    return [*said, "--out", f"runs/{folder_name(facts['corpus'])}"]


def _differences(one: Experiment, other: Experiment) -> int:
    return len(options_said(one, other))


def options_said(experiment: Experiment, base: Experiment) -> list[str]:
    """What is said beside the scheme: the settings that differ from those that hold anyway."""
    said: list[str] = []
    for each, _ in options_of(Experiment):
        value = getattr(experiment, each.name)
        if each.name in NOT_SAID or value == getattr(base, each.name) or value is None:
            continue
        option = f"--{each.name.replace('_', '-')}"
        if value is True:
            said.append(option)
        elif isinstance(value, tuple):
            said += [word for item in value for word in (option, item)]
        elif value is not False:
            said += [option, str(value)]
    return said


def folder_name(corpus: str) -> str:
    kept = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-_") else "-" for letter in corpus)
    return kept.removesuffix("-txt").strip("-")[:60] or "text"


def _turned(one: Facts) -> bool:
    return bool(one["final"] and one["best"] and one["final"]["mean"] > (1 + TURNED) * one["best"]["mean"])


def own_microseconds(one: Facts) -> float | None:
    """A token under the scheme's own sampling procedure."""
    value = one["clocks"]["microseconds"].get(one["sample"])
    return float(value) if value else None


def sureness(sure: float) -> str:
    """How sure something is, in words and as a number."""
    if sure >= 0.99:
        return f"nearly certain ({min(sure, 0.999):.1%})"
    grade = "sure" if sure >= CLAIMED else "likely, but not shown" if sure >= 0.8 else "not shown"
    return f"{grade} ({sure:.0%} sure)"


def listed(names: list[str]) -> str:
    """a, b and c."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
