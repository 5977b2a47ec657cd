"""docs/compare.md shows what `unroll compare` printed, and today's code prints the same of the recorded answers."""

from __future__ import annotations

import sys

import pytest
from paths import ROOT

from unroll.base.wording import shell_words
from unroll.sweep.comparison.shown import Comparison

sys.path.append(str(ROOT / "benchmarks"))
import comparisons

PAGE = (ROOT / "docs" / "compare.md").read_text("utf-8")


def test_there_are_records_of_the_standard_library_and_of_another_corpus() -> None:
    assert {"stdlib", "english"} <= set(comparisons.names())


@pytest.mark.parametrize("name", comparisons.names())
def test_the_page_has_the_record(name: str) -> None:
    assert f"<!-- unroll: compare-{name} -->\n{comparisons.block(name)}\n<!-- end -->" in PAGE


@pytest.mark.parametrize("name", comparisons.names())
def test_what_was_printed_is_the_answer_as_it_is_shown(name: str) -> None:
    record = comparisons.loaded(name)
    shown = Comparison(record["answer"])
    printed = record["printed"]
    with shell_words():  # as the command line shows it
        lines = shown.lines()
    first = printed.index(lines[0])
    assert printed[first : first + len(lines)] == lines
    assert shown.command in printed


@pytest.mark.parametrize("name", comparisons.names())
def test_the_budget_was_kept_within_a_tenth_or_the_page_says_that_others_shared_the_machine(name: str) -> None:
    record = comparisons.loaded(name)
    budget = record["answer"]["asked"]["budget"]
    assert 0.9 * budget <= record["seconds"] <= 1.1 * budget or "Other work shared them" in comparisons.block(name)
