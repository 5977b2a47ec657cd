"""docs/performance.md says what the records say."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path.append(str(ROOT / "benchmarks"))

import performance_page  # noqa: E402


def test_the_page_is_what_the_records_make_of_it() -> None:
    text = (ROOT / "docs" / "performance.md").read_text("utf-8")
    made = performance_page.blocks()
    assert performance_page.fill(text, made) == text
    assert all(f"<!-- unroll: {name} -->" in text for name in made)
