"""What docs/reports.md says of the page of a sweep of 20 runs is what its record says."""

from __future__ import annotations

import json

from paths import ROOT

RECORD = json.loads((ROOT / "results" / "report" / "sweep_of_20.json").read_text("utf-8"))
PAGE = (ROOT / "docs" / "reports.md").read_text("utf-8")


def test_the_page_of_20_runs_is_small_quick_and_quiet() -> None:
    assert RECORD["runs"] == 20
    assert RECORD["bytes"] < 10_000_000
    assert {(view["width"], view["scheme"]) for view in RECORD["views"]} == {
        (width, scheme) for width in (375, 1440) for scheme in ("light", "dark")
    }
    assert not any(view["scrolls_sideways"] for view in RECORD["views"])
    assert max(view["median_ms"] for view in RECORD["views"]) < 2_000
    assert RECORD["console"] == RECORD["fetched"] == []


def test_the_docs_say_what_was_measured() -> None:
    medians = sorted(view["median_ms"] / 1000 for view in RECORD["views"])
    words = f"is {RECORD['bytes'] / 1e6:.1f} MB, and opens in {medians[0]:.1f} to {medians[-1]:.1f} seconds"
    assert words in PAGE
