"""The preset and its pages say what the records in results/training say."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import asdict
from typing import Any

import pytest
from paths import ROOT

from unroll import PRESETS

sys.path.append(str(ROOT / "benchmarks"))

import preset_small
import time_to_loss

TIMES = sorted((ROOT / "results" / "training").glob("time_to_loss_*.json"))
CHOICE = json.loads(preset_small.RECORD.read_text("utf-8"))


def shipped() -> dict[str, Any]:
    """The preset, as the candidates of the record are written: without what they share."""
    scheme = PRESETS["small"]["scheme"]
    others = {name: value for name, value in PRESETS["small"].items() if name not in ("scheme", "hidden", "batches")}
    return {**others, "k1": scheme.k1}


def test_the_preset_is_the_candidate_that_the_rule_chooses() -> None:
    judged = preset_small.judged(CHOICE["lines"])
    assert {name: CHOICE[name] for name in judged} == judged
    assert CHOICE["candidates"] == preset_small.CANDIDATES
    assert CHOICE["candidates"][judged["choice"]] == shipped()


def test_the_preset_is_better_than_it_was_on_every_text() -> None:
    perplexity = CHOICE["perplexity_at_the_last_mark"]
    for text in preset_small.TEXTS:
        assert perplexity[CHOICE["choice"]][text] < perplexity[preset_small.BEFORE][text]


def test_times_to_a_loss_are_of_this_script_and_of_this_preset() -> None:
    assert TIMES
    for path in TIMES:
        record = json.loads(path.read_text("utf-8"))
        assert record["script_sha256"] == hashlib.sha256(time_to_loss.SCRIPT.read_bytes()).hexdigest(), path
        assert record["preset"] == {**PRESETS["small"], "scheme": asdict(PRESETS["small"]["scheme"])}, path


def test_times_to_a_loss_are_what_the_curves_say() -> None:
    for path in TIMES:
        record = json.loads(path.read_text("utf-8"))
        assert record["levels"] == time_to_loss.verdicts(record["curves"]), path


def test_a_crossing_lies_between_two_evaluations() -> None:
    curve = [[1, 1.0, 3.0, 3.1], [2, 4.0, 2.0, 2.5], [3, 9.0, 1.0, 1.5]]
    assert time_to_loss.crossing(curve, 2.5) == pytest.approx(2.0), "half way down: √(1 · 4)"
    assert time_to_loss.crossing(curve, 1.0) == pytest.approx(9.0)
    assert time_to_loss.crossing(curve, 0.9) is None
    later = time_to_loss.crossing(curve, 2.0, 3)
    assert time_to_loss.seconds_to([curve], 2.0) == [later], "the later of the two readings counts"
