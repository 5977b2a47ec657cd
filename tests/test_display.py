"""Training, watched: what the panel and the lines do when things go wrong, or have only begun."""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from pathlib import Path

import pytest
from helpers import tiny, tiny_corpus

from unroll import train_fleet
from unroll.cli import display
from unroll.events import Stepped
from unroll.generation import generate
from unroll.run import RunFolder


def test_a_run_that_diverges_under_the_live_panel_is_stopped_and_the_panel_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    monkeypatch.setattr("unroll.generation.generate", lambda *args: tried.append(1) or generate(*args))
    wild = tiny(learning_rate=1e30, batches=30, precision="float32")
    events = train_fleet([wild], [tiny_corpus()], [tmp_path / "run"])
    with redirect_stderr(io.StringIO()):
        display._live(events, tiny_corpus())
    assert tried, "a sample was asked for"
    assert RunFolder(tmp_path / "run").status["state"] == "stopped"


def test_nothing_is_said_of_the_time_left_before_a_batch_was_timed(tmp_path: Path) -> None:
    pace = display.Pace()
    events = train_fleet([tiny(batches=5)], [tiny_corpus()], [tmp_path / "run"])
    words = [pace.words(event) for event in events if isinstance(event, Stepped)]
    assert ["left" in own for own in words] == [False, True, True, True, True]
    assert words[-1].endswith("0 s left")
