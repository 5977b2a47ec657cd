"""The advice in plain sentences, and the command that follows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unroll.base.durations import duration
from unroll.experiment.experiment import PRESETS, Experiment
from unroll.experiment.scheme import Scheme
from unroll.sweep.advice.asked import PRESET, Asked
from unroll.sweep.comparison.numbers import number, percent
from unroll.sweep.comparison.words import PATIENCE, folder_name, listed, options_said, sureness

Facts = Mapping[str, Any]
NEEDS = {"speed": "training and sampling must be cheap", "memory": "the model must be small"}
NEAR = 1.02  # of perplexity


def setting(e: Experiment) -> str:
    """A setting in a few words.

    >>> setting(Experiment(hidden=128, learning_rate=0.008))
    'multi-loss, windowed, k1 = 20, k2 = 100, 128 units, rate 0.008'
    """
    dropout = f", dropout {e.dropout:g}" if e.dropout else ""
    return (
        f"{e.scheme.training}, {e.scheme.sample}, k1 = {e.scheme.k1}, k2 = {e.scheme.k2}, {e.hidden} units, "
        f"rate {e.learning_rate:g}{dropout}"
    )


def sentences(facts: Facts) -> list[str]:
    """What to take, what to expect, what it costs, how sure that is, and what would change it."""
    taken = facts["settings"][facts["taken"]]
    if facts["expected"] is None:
        return ["No setting has a run that ended with a finite perplexity: there is nothing to advise."]
    return [_take(facts, taken), _expect(facts, taken), _cost(facts, taken), _sure(facts, taken), _change(facts, taken)]


def _take(facts: Facts, taken: Facts) -> str:
    dropout = f", dropout {taken['dropout']:g}" if taken["dropout"] else ""
    chosen = (
        f"Take {taken['in_full']} with k1 = {taken['k1']}, k2 = {taken['k2']}, {taken['hidden']:,} units and a "
        f"learning rate of {taken['learning_rate']:g}{dropout}"
    )
    if facts["expected"]["turned"]:
        return (
            f"{chosen}, and stop in time: the pilot was best at about batch {taken['best_batch']:,}, and then began to "
            "learn the text by heart."
        )
    return f"{chosen}, and train {facts['full']:,} batches."


def _expect(facts: Facts, taken: Facts) -> str:
    expected = facts["expected"]
    low = number(expected["low"])
    if expected["high"] is None:
        reach = f"at least {low} in nine of ten runs, and no upper end is known, since a run of the pilot failed"
    else:
        reach = f"{low} to {number(expected['high'])}, in nine of ten runs"
    reached = f"the pilot came to {number(facts['reached'])} after {facts['batches']:,} batches"
    return f"Expect a test perplexity of {number(expected['perplexity'])} ({reach}); {reached}."


def _cost(facts: Facts, taken: Facts) -> str:
    clocks = facts["clocks"]
    parts = []
    if clocks["training"] is not None:
        evaluating = f" and {duration(clocks['evaluating'])} of evaluation" if clocks["evaluating"] else ""
        parts.append(f"Training takes about {duration(clocks['training'])}{evaluating} here")
    micro = clocks["microseconds"].get(taken["sample"])
    if micro:
        parts.append(f"{'a' if parts else 'A'} sampled token {micro:,.0f} µs")
    parts.append(f"{'t' if parts else 'T'}he weights are {facts['bytes']['weights'] / 1e6:.3g} MB")
    return f"{', '.join(parts)}."


def _sure(facts: Facts, taken: Facts) -> str:
    others = [one for n, one in enumerate(facts["settings"]) if n != facts["taken"]]
    if not others:
        return "Nothing is left to compare it with."
    first = facts["settings"][0]
    if facts["taken"]:
        behind = percent(taken["ratio"]["mean"] - 1) if taken["ratio"] else "unknown"
        why = "which counts as equal" if facts["need"] == "quality" else f"near enough where {NEEDS[facts['need']]}"
        return (
            f"It is not the very best of the pilot: {first['words']} is expected to be {behind} lower, {why}, and "
            "costs more."
        )
    beaten = [one for one in others if one["apart"]]
    tied = [one for one in others if not one["apart"]]
    if beaten and not tied:
        nearest = beaten[0]
        return (
            f"It is expected to beat all others of the last {len(facts['settings'])}; that it is better than "
            f"{nearest['words']} is {sureness(nearest['sure'])}."
        )
    sure = f" ({sureness(tied[0]['sure'])})" if tied[0]["sure"] is not None else ""
    told = f", but from {listed([one['words'] for one in beaten])}" if beaten else ""
    return f"{facts['seeds']} seeds do not tell it from {tied[0]['words']}{sure}{told}."


def _change(facts: Facts, taken: Facts) -> str:
    """What would change the advice."""
    parts = []
    for need, about in NEEDS.items():
        other = facts["settings"][facts["choices"][need]]
        if need != facts["need"] and facts["choices"][need] != facts["taken"] and other["expected"]:
            times = other["expected"]["mean"] / taken["expected"]["mean"]
            parts.append(f"where {about}, take {other['words']}, at a perplexity {_against(times)}")
    if facts["need"] != "quality" and facts["choices"]["quality"] != facts["taken"]:
        other = facts["settings"][facts["choices"]["quality"]]
        if other["expected"]:
            times = other["expected"]["mean"] / taken["expected"]["mean"]
            parts.append(f"where only perplexity counts, take {other['words']}, at {_against(times)}")
    if facts["expected"]["turned"]:
        parts.append("more text would move the point at which it turns, and let a larger model learn")
    elif facts["epochs"] < 1:
        parts.append("a longer run reads text that this one never sees: with more time give --batches")
    parts.append("with a larger --budget the last settings are told apart better")
    said = "; ".join(parts)
    return f"What would change this: {said}."


def _against(times: float) -> str:
    return f"{percent(times - 1)} higher" if times >= 1 else f"{percent(1 - times)} lower"


def command(facts: Facts, experiment: Experiment, asked: Asked) -> list[str]:
    """The words of `unroll train` that train what is recommended."""
    preset = Experiment(**{**PRESETS[PRESET], "batches": 1})
    base = replace(preset, scheme=Scheme())
    scheme = experiment.scheme
    said = ["unroll", "train", asked.corpus or experiment.corpus or "CORPUS", "--preset", PRESET]
    said += ["--scheme", str(scheme.number)] if scheme.number else ["--train", scheme.training]
    said += [] if scheme.number else ["--sample", scheme.sample]
    said += ["--k1", str(scheme.k1), "--k2", str(scheme.k2)]
    said += options_said(experiment, base)
    said += ["--batches", str(facts["full"])]
    if experiment.validation:
        said += ["--validation", str(experiment.validation)]
    if experiment.validation or experiment.validation_file or (facts["expected"] and facts["expected"]["turned"]):
        said += ["--patience", str(PATIENCE)]
    return [*said, "--out", f"runs/{folder_name(facts['corpus'])}"]
