"""The advice in plain sentences, and the command that follows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unroll.base.errors import counted
from unroll.experiment.experiment import PRESETS, Experiment
from unroll.experiment.scheme import Scheme
from unroll.sweep.advice.asked import PRESET, Asked
from unroll.sweep.comparison.numbers import brief, number, percent
from unroll.sweep.comparison.words import PATIENCE, folder_name, listed, options_said, sureness

Facts = Mapping[str, Any]
NEEDS = {"speed": "training and sampling must be cheap", "memory": "the model must be small"}
SAME = 0.0005  # of perplexity, which nothing shows
SMALLER = 0.9  # of weights or of multiplications, from which on less is worth a word


def setting(e: Experiment) -> str:
    """A setting in a few words.

    >>> setting(Experiment(hidden=128, learning_rate=0.008))
    'multi-loss, windowed, k1 = 20, k2 = 100, 128 units, rate 0.008'
    """
    dropout = f", dropout {e.dropout:g}" if e.dropout else ""
    return (
        f"{e.scheme.training}, {e.scheme.sample}, k1 = {e.scheme.k1}, k2 = {e.scheme.k2}, "
        f"{counted(e.hidden, 'unit')}, rate {e.learning_rate:g}{dropout}"
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
        f"Take {taken['in_full']} with k1 = {taken['k1']}, k2 = {taken['k2']}, {counted(taken['hidden'], 'unit')} "
        f"and a learning rate of {taken['learning_rate']:g}{dropout}"
    )
    if facts["expected"]["turned"]:
        return f"{chosen}, and stop in time: the pilot was best at about batch {taken['best_batch']:,}, then got worse."
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
        evaluating = f", and its evaluations {brief(clocks['evaluating'])}" if clocks["evaluating"] else ""
        parts.append(f"training takes about {brief(clocks['training'])} here{evaluating}")
    micro = clocks["microseconds"].get(taken["sample"])
    if micro:
        parts.append(f"a sampled token takes {micro:,.0f} µs")
    parts.append(f"the weights take {facts['bytes']['weights'] / 1e6:.3g} MB")
    said = "; ".join(parts)
    return f"{said[0].upper()}{said[1:]}."


def _sure(facts: Facts, taken: Facts) -> str:
    others = [one for n, one in enumerate(facts["settings"]) if n != facts["taken"]]
    if not others:
        return "Nothing is left to compare it with."
    if facts["taken"]:
        return _near_enough(facts, facts["settings"][0], taken)
    beaten = [one["words"] for one in others if one["apart"]]
    tied = [one for one in others if not one["apart"]]
    if not tied:
        return (
            f"It is expected to beat all others of the last {len(facts['settings'])}; that it is better than "
            f"{others[0]['words']} is {sureness(others[0]['sure'])}."
        )
    nearest = "the first of these" if len(tied) > 1 else "that"
    sure = tied[0]["sure"]
    claim = "" if sure is None else f"; that it is better than {nearest} is {sureness(sure)}"
    rest = f". They do tell it from {listed(beaten)}" if beaten else ""
    return f"{facts['seeds']} seeds do not tell it from {listed([one['words'] for one in tied])}{claim}{rest}."


def _near_enough(facts: Facts, first: Facts, taken: Facts) -> str:
    """Why the first is not taken."""
    times = 1 / taken["ratio"]["mean"] if taken["ratio"] else 1.0
    behind = "hardly lower" if abs(times - 1) < SAME else f"{percent(1 - times)} lower"
    why = "counts as equal" if facts["need"] == "quality" else f"is near enough where {NEEDS[facts['need']]}"
    if facts["need"] == "memory":
        less = "is smaller"
    else:
        less = "costs less" if taken["work"] != first["work"] else "is simpler"
    return (
        f"It is not the very best of the pilot: {first['words']} is expected to reach a perplexity {behind}. That "
        f"{why}, and what is taken {less}."
    )


def _change(facts: Facts, taken: Facts) -> str:
    """What would change the advice."""
    parts = []
    for need, about in {**NEEDS, "quality": "only perplexity counts"}.items():
        other = facts["settings"][facts["choices"][need]]
        if need != facts["need"] and facts["choices"][need] != facts["taken"] and _is_worth(need, other, taken):
            times = other["expected"]["mean"] / taken["expected"]["mean"]
            parts.append(f"where {about}, take {other['words']}, at {_against(times)}")
    if facts["expected"]["turned"]:
        parts.append("with more text it would get worse later, and a larger model could learn more")
    elif facts["epochs"] < 1:
        parts.append("a longer run, with --batches, would read text that this one never sees")
    parts.append("a larger --budget tells the last settings apart better")
    return f"What would change this: {'; '.join(parts)}."


def _is_worth(need: str, other: Facts, taken: Facts) -> bool:
    """Whether what another need would take is worth a word: of two that cost the same, it may be the other one."""
    if not other["expected"]:
        return False
    if need == "memory":
        return bool(other["numbers"] < SMALLER * taken["numbers"])
    return need == "quality" or any(other["work"][part] < SMALLER * taken["work"][part] for part in taken["work"])


def _against(times: float) -> str:
    if abs(times - 1) < SAME:
        return "the same perplexity"
    return f"a perplexity {percent(abs(times - 1))} {'higher' if times > 1 else 'lower'}"


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
