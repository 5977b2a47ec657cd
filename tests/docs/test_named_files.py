"""What the pages and programs for readers name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from paths import ROOT

PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("benchmarks/**/*.py"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_program_and_test_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(r"(?<![\w/])(?:tests|benchmarks)/[\w/]+\.py", page.read_text("utf-8"))
    assert [path for path in named if not (ROOT / path).is_file()] == []
