"""docs/performance.md and docs/sampling.md say what the records say."""

from __future__ import annotations

import sys

import pytest
from paths import ROOT

sys.path.append(str(ROOT / "benchmarks"))

import pages


@pytest.mark.parametrize(("name", "made"), pages.blocks().items())
def test_a_page_is_what_the_records_make_of_it(name: str, made: dict[str, str]) -> None:
    text = (ROOT / "docs" / name).read_text("utf-8")
    assert pages.fill(text, made) == text
    for block, content in made.items():
        assert f"<!-- unroll: {block} -->\n{content}\n<!-- end -->" in text
