"""What other comparisons found, said where the numbers of this one show it; docs/schemes.md has the evidence.

Each finding is one function: from the answer, and an experiment of it, to a sentence, or None where the data show
nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from unroll.experiment.experiment import Experiment

OVERFITTED = 0.02  # above its best, at the end
STARTS_DIFFER = 0.05
DRIFTED = 0.02
HELPS = 0.005  # by which states older than k2 must predict better
PROBABILITY = 0.01

Facts = Mapping[str, Any]


def overfitting(facts: Facts, experiment: Experiment) -> str | None:
    """Stop in time on a small corpus."""
    risen = [one for one in facts["schemes"] if _overfit(one) > OVERFITTED]
    if not risen:
        return None
    listed = "; ".join(f"{one['scheme']} is best at batch {one['best_batch']:,}" for one in risen)
    return (
        f"Stop in time: {listed}, and ends up to {max(map(_overfit, risen)):.0%} worse. The corpus has "
        f"{facts['tokens']:,} tokens; dropout, or more text, moves that point."
    )


def single_loss_overfits_later(facts: Facts, experiment: Experiment) -> str | None:
    """Single-loss brings fewer labels, and turns later."""
    multi = [one for one in facts["schemes"] if one["training"] == "multi-loss" and _overfit(one) > OVERFITTED]
    single = [one for one in facts["schemes"] if one["training"] == "single-loss" and one["best_batch"]]
    if not multi or not single or single[0]["best_batch"] <= min(one["best_batch"] for one in multi):
        return None
    return (
        f"Single-loss overfits later: its best is at batch {single[0]['best_batch']:,}, that of multi-loss at "
        f"{min(one['best_batch'] for one in multi):,}. One label a window teaches less of the corpus by heart."
    )


def shuffled_single_loss(facts: Facts, experiment: Experiment) -> str | None:
    """Never shuffle single-loss."""
    if not experiment.shuffle or not any(one["training"] == "single-loss" for one in facts["schemes"]):
        return None
    return (
        "Windows are shuffled here, which single-loss should never be: only one token in k1 is ever its label, the "
        "same ones in every epoch. Leave --shuffle out."
    )


def drift(facts: Facts, experiment: Experiment) -> str | None:
    """Progressive sampling from windowed training drifts."""
    found = [
        one
        for one in facts["schemes"]
        if not one["carries"] and one["sample"] == "progressive" and _drift(one, "drift_low") > 1 + DRIFTED
    ]
    if not found:
        return None
    listed = "; ".join(f"{one['scheme']} by {_drift(one, 'drift') - 1:.0%}" for one in found)
    age = found[0]["drift"]["age"]
    return (
        f"Progressive sampling drifts after windowed training: at {age:,} tokens since the reset the perplexity is "
        f"above that of a window of k2 tokens ({listed}). `unroll drift` draws it."
    )


def resets(facts: Facts, experiment: Experiment) -> str | None:
    """Random resets cure scheme 4."""
    found = [
        one
        for one in facts["schemes"]
        if (one["zero_over_carried"] or 0) > 1 + STARTS_DIFFER and not isinstance(one["reset"], float)
    ]
    if not found:
        return None
    listed = "; ".join(f"{one['scheme']} by {one['zero_over_carried'] - 1:.0%}" for one in found)
    return (
        f"From a state of zeros the perplexity is above that from carried states ({listed}): training hardly ever "
        f"meets zeros. Random resets cure it: --train conditional,reset={PROBABILITY}."
    )


def beyond_k2(facts: Facts, experiment: Experiment) -> str | None:
    """Dependencies beyond k2 need a carried state."""
    found = [one for one in facts["schemes"] if one["carries"] and 0 < _drift(one, "drift_high", 0.0) < 1 - HELPS]
    if not found:
        return None
    one = found[0]
    return (
        f"What lies more than k2 = {one['k2']} tokens back helps here: states of {one['drift']['age']:,} tokens "
        f"predict {1 - one['drift']['drift']:.1%} better than windows do. Only a carried state, or a larger k2, "
        "learns that."
    )


FINDINGS: tuple[Callable[[Facts, Experiment], str | None], ...] = (
    overfitting,
    single_loss_overfits_later,
    shuffled_single_loss,
    drift,
    resets,
    beyond_k2,
)


def notes(facts: Facts, experiment: Experiment) -> list[str]:
    """What a reader of this answer should know."""
    return [*_of_this_comparison(facts), *filter(None, (finding(facts, experiment) for finding in FINDINGS))]


def _of_this_comparison(facts: Facts) -> Iterator[str]:
    if facts["seeds"] < 2:
        yield "One seed tells no settings apart: seeds often differ by more than schemes do. Give --seeds 3 or more."
    if facts["cut"]:
        yield (
            f"The machine became much slower, and the last round was cut short. All numbers are those of batch "
            f"{facts['batches']:,}, which every run reached."
        )
    if facts["scored"]:
        yield (
            f"Perplexities are of {facts['scored']:,} tokens of each set, so that scoring leaves time for training. "
            "The intervals are over seeds: another part of the text may move all schemes alike. --test-tokens N "
            "scores more."
        )
    if facts["failures"]:
        first = next(iter(facts["failures"].values())) or "it has no finite perplexity at its end"
        yield f"{len(facts['failures'])} of {facts['runs']} runs have no result: {first}"


def _overfit(one: Facts) -> float:
    """How far the end lies above the best."""
    if not one["best"] or not one["final"]:
        return 0.0
    return float(one["final"]["mean"] / one["best"]["mean"] - 1)


def _drift(one: Facts, name: str, otherwise: float = 1.0) -> float:
    value = (one["drift"] or {}).get(name)
    return otherwise if value is None else float(value)
