"""What is known from other texts, said where it bears on this advice; docs/schemes.md has the evidence.

Each finding is one function: from the facts of the advice to a sentence, or None where it has no bearing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from unroll.sweep.comparison.numbers import percent

Facts = Mapping[str, Any]
DIFFERS = 0.01  # of perplexity
OFTEN = 2.0  # readings of the text, from which on it may be learned by heart


def stop_in_time(facts: Facts) -> str | None:
    """Stop in time on small corpora."""
    if not (facts["expected"] and facts["expected"]["turned"]):
        return None
    small = f"The text is small: the pilot read it {facts['read']:,.0f} times. " if facts["read"] >= OFTEN else ""
    return (
        f"{small}What gets worse is stopped by --patience, and the best weights are kept beside the last: sample them "
        "with --weights best."
    )


def single_loss(facts: Facts) -> str | None:
    """Single-loss overfits later, and learns more slowly."""
    turned = any(one["turned"] for one in facts["settings"])
    single = [one for one in facts["tried"].get("alone", ()) if one["words"].startswith("single-loss")]
    if not turned or not single or single[0]["turned"]:
        return None
    return "Single-loss overfits later than multi-loss, but learns more slowly too: its best was no better elsewhere."


def drift(facts: Facts) -> str | None:
    """Progressive sampling from windowed training drifts."""
    taken = facts["settings"][facts["taken"]]
    if taken["carries"] or facts["other"] is None:
        return None
    ratio = facts["other"] - 1
    now = "as well as" if abs(ratio) < DIFFERS else f"{percent(abs(ratio))} {'worse' if ratio > 0 else 'better'} than"
    return (
        f"Sampled progressively, the same weights predict {now} windowed here; after long training their state may "
        "drift, as it did on two of four texts. `unroll drift` shows whether it does."
    )


def resets(facts: Facts) -> str | None:
    """Random resets cure scheme 4."""
    taken = facts["settings"][facts["taken"]]
    if not taken["carries"]:
        return None
    return (
        "States are carried, so what lies more than k2 tokens back can still count. Random resets keep a start from "
        "nothing safe: without them it may predict much worse, which looks like instability."
        if "reset=" in taken["training"]
        else "States are carried without random resets: a start from nothing may predict worse as training goes on. "
        "--train conditional,reset=0.01 prevents that."
    )


FINDINGS: tuple[Callable[[Facts], str | None], ...] = (stop_in_time, single_loss, drift, resets)


def notes(facts: Facts) -> list[str]:
    """What a reader of this advice should know."""
    found = [finding(facts) for finding in FINDINGS]
    if facts["chosen_on"] == "test set":
        found.insert(
            0,
            "The text spares no validation set, so the test set chose, and the perplexities are a little too good.",
        )
    return [sentence for sentence in found if sentence]
