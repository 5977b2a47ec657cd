"""What the sentences of advice say, for results that are made up."""

from __future__ import annotations

from typing import Any

from unroll.sweep.advice import findings, words


def setting(name: str, apart: bool | None = None, sure: float | None = None, times: float = 1.0) -> dict[str, Any]:
    ratio = None if apart is None else {"mean": times, "low": None, "high": None}
    shape = {"in_full": "scheme 1", "training": "multi-loss", "sample": "windowed", "carries": False}
    sizes = {"k1": 100, "k2": 100, "hidden": 128, "learning_rate": 0.008, "dropout": 0.0, "best_batch": 500}
    found = {"words": name, "apart": apart, "sure": sure, "ratio": ratio, "expected": {"mean": 5.0 * times}}
    return {**shape, **sizes, **found, "turned": False, "numbers": 1000, "work": {"trained": 1.0, "sampled": 1.0}}


def facts(*settings: dict[str, Any], **said: Any) -> dict[str, Any]:
    expected = {"perplexity": 5.0, "low": 4.5, "high": 5.5, "batch": 6000, "turned": False}
    clocks = {"training": 200.0, "evaluating": 12.0, "microseconds": {"windowed": 50.0}}
    usual = {"settings": list(settings), "taken": 0, "need": "quality", "expected": expected, "clocks": clocks}
    counts = {"batches": 1000, "full": 6000, "epochs": 3.0, "read": 0.5, "seeds": 3, "reached": 6.0, "other": None}
    choices = {"quality": 0, "speed": 0, "memory": 0}
    notes = {"chosen_on": "validation set", "tried": {}}
    return {**usual, **counts, **notes, "choices": choices, "bytes": {"weights": 2e6}, **said}


def test_all_that_seeds_do_not_tell_apart_is_named() -> None:
    found = facts(setting("A"), setting("B", False, 0.6), setting("C", False, 0.7), setting("D", True, 0.98))
    said = words.sentences(found)[3]
    assert said == (
        "3 seeds do not tell it from B and C; that it is better than the first of these is not shown (60% sure). "
        "They do tell it from D."
    )


def test_what_is_near_enough_is_as_far_behind_as_it_is() -> None:
    said = words.sentences(facts(setting("A"), setting("B", False, 0.9, times=1.25), taken=1))[3]
    assert "A is expected to reach a perplexity 20% lower" in said
    assert "counts as equal, and what is taken is simpler" in said
    small = words.sentences(facts(setting("A"), setting("B", False, 0.9, times=1.25), taken=1, need="memory"))[3]
    assert "near enough where the model must be small, and what is taken is smaller" in small


def test_costs_are_one_clause_each() -> None:
    assert words.sentences(facts(setting("A")))[2] == (
        "Training takes about 3 min 20 s here, and its evaluations 12 s; a sampled token takes 50 µs; the weights take "
        "2 MB."
    )


def test_a_text_that_was_not_read_twice_was_not_learned_by_heart() -> None:
    turned = {"perplexity": 5.0, "low": 4.5, "high": 5.5, "batch": 500, "turned": True}
    once, often = facts(setting("A"), expected=turned), facts(setting("A"), expected=turned, read=30.0)
    assert words.sentences(once)[0].endswith("the pilot was best at about batch 500, then got worse.")
    assert "small" not in " ".join(findings.notes(once))
    assert "The text is small: the pilot read it 30 times." in " ".join(findings.notes(often))


def test_one_unit_is_no_units() -> None:
    assert "1 unit and" in words.sentences(facts({**setting("A"), "hidden": 1}))[0]


def test_another_need_takes_something_else_only_where_that_costs_less() -> None:
    same = facts(setting("A"), setting("B", False, 0.9), choices={"quality": 0, "speed": 1, "memory": 1})
    assert "B" not in words.sentences(same)[4]
    small = {**setting("B", True, 0.99, times=1.1), "numbers": 500}
    said = words.sentences(facts(setting("A"), small, choices={"quality": 0, "speed": 1, "memory": 1}))[4]
    assert "where the model must be small, take B, at a perplexity 10% higher" in said
    assert "cheap" not in said


def test_no_difference_is_no_number() -> None:
    small = {**setting("B", False, 0.5), "numbers": 500}
    said = words.sentences(facts(setting("A"), small, choices={"quality": 0, "speed": 0, "memory": 1}))[4]
    assert "take B, at the same perplexity" in said
    assert "a perplexity hardly lower" in words.sentences(facts(setting("A"), small, taken=1))[3]
