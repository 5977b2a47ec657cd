"""The record of fine-tuning says what docs/training.md says of it."""

from __future__ import annotations

import json

from paths import ROOT

RECORD = json.loads((ROOT / "results/training/fine_tuning.json").read_text("utf-8"))


def test_fine_tuning_is_better_than_from_nothing_at_equal_batches_for_every_seed() -> None:
    assert [run["seed"] for run in RECORD["runs"]] == [0, 1, 2]
    for run in RECORD["runs"]:
        pairs = zip(run["fine_tuned"], run["from_nothing"], strict=True)
        assert all((a["batch"], a["perplexity"] < b["perplexity"]) == (b["batch"], True) for a, b in pairs)


def test_the_page_names_the_settings_of_the_record() -> None:
    page = " ".join((ROOT / "docs/training.md").read_text("utf-8").split())
    settings = RECORD["settings"]
    assert f"({settings['hidden']} units, a dense layer of {settings['dense']})" in page
    assert f"for {settings['parent_batches']:,} batches of {settings['rows']} windows" in page
    assert f"{RECORD['text']['tokens']:,} characters of English" in page
    assert f"the first {settings['test_tokens']:,} tokens of the test set" in page
    assert [run["added_symbols"] for run in RECORD["runs"]] == [0, 0, 0]
