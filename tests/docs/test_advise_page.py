"""docs/advise.md is drawn from the records in results/advice, and today's code prints the same of recorded advice."""

from __future__ import annotations

import sys

import pytest
from paths import ROOT

from unroll.base.wording import shell_words
from unroll.sweep.advice.shown import Advice

sys.path.append(str(ROOT / "benchmarks"))
import advice_tables
import comparisons

PAGE = (ROOT / "docs" / "advise.md").read_text("utf-8")
NAMES = comparisons.names("advise")


def test_every_marked_part_is_that_of_the_records() -> None:
    blocks = advice_tables.blocks() | {f"advise-{name}": comparisons.block(name, "advise") for name in NAMES}
    for name, content in blocks.items():
        assert f"<!-- unroll: {name} -->\n{content}\n<!-- end -->" in PAGE, "run python benchmarks/pages.py"


@pytest.mark.parametrize("name", NAMES)
def test_what_was_printed_is_the_advice_as_it_is_shown(name: str) -> None:
    record = comparisons.loaded(name, "advise")
    shown = Advice(record["answer"])
    printed = record["printed"]
    with shell_words():  # as the command line shows it
        lines = shown.lines()
    first = printed.index(lines[0])
    assert printed[first : first + len(lines)] == lines
    assert shown.command in printed


@pytest.mark.parametrize("name", NAMES)
def test_the_budget_was_kept_within_a_tenth(name: str) -> None:
    record = comparisons.loaded(name, "advise")
    budget = record["answer"]["asked"]["budget"]
    assert 0.9 * budget <= record["seconds"] <= 1.1 * budget
