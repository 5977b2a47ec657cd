"""The advice in tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from unroll.sweep.comparison.numbers import between, number
from unroll.sweep.comparison.tables import NONE, Table

Facts = Mapping[str, Any]
TITLES = {
    "alone": "One setting changed at a time, one seed each",
    "together": "The best values together, one seed each",
}


def tables(facts: Facts) -> list[Table]:
    """The last stage first, then what came before it."""
    return [_last(facts), *_before(facts)]


def _last(facts: Facts) -> Table:
    columns = ("setting", "pilot", "full run", "95 % interval", "to the first", "sure", "weights")
    taken = facts["taken"] if facts["expected"] else None
    rows = tuple(
        (
            f"{one['words']}{' *' if n == taken else ''}{_missing(one)}",
            number(one["pilot"]) if one["pilot"] else NONE,
            number(one["expected"]["mean"]) if one["expected"] else NONE,
            between(one["expected"]).strip(" ()") or NONE if one["expected"] else NONE,
            f"× {one['ratio']['mean']:.3f}" if one["ratio"] else NONE,
            f"{one['sure']:.0%}" if one["sure"] is not None else NONE,
            f"{one['numbers'] / 1e6:.3g} M",
        )
        for n, one in enumerate(facts["settings"])
    )
    title = (
        f"After {facts['batches']:,} batches, {facts['seeds']} seeds each, on the {facts['chosen_on']}"
        f"{'' if taken is None else '; * is taken'}. "
        "Full run: what the curves make one expect, with the interval of the seeds alone"
    )
    return Table(title, columns, rows)


def _before(facts: Facts) -> Iterator[Table]:
    for name, title in TITLES.items():
        rows = tuple(
            (
                one["words"],
                number(one["perplexity"]) if one["perplexity"] else "failed",
                "turned" if one["turned"] else "",
            )
            for one in facts["tried"].get(name, ())
        )
        yield Table(title, ("setting", "perplexity", ""), rows)


def _missing(one: Facts) -> str:
    return f" ({one['missing']} of {one['seeds'] + one['missing']} failed)" if one["missing"] else ""
