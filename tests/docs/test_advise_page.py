"""docs/advise.md is drawn from the records in results/advice."""

from __future__ import annotations

import sys

from paths import ROOT

sys.path.append(str(ROOT / "benchmarks"))
import advice_tables
import comparisons

PAGE = (ROOT / "docs" / "advise.md").read_text("utf-8")


def test_every_marked_part_is_that_of_the_records() -> None:
    printed = {f"advise-{name}": comparisons.block(name, "advise") for name in comparisons.names("advise")}
    for name, content in (advice_tables.blocks() | printed).items():
        assert f"<!-- unroll: {name} -->\n{content}\n<!-- end -->" in PAGE, "run python benchmarks/pages.py"
