"""Training on a screen: what the panel and the lines do when things go wrong, or have only begun."""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path

import pytest
from helpers import tiny, tiny_corpus

from unroll import train_fleet
from unroll.cli import display
from unroll.cli.screen import duration
from unroll.runs.folder import RunFolder
from unroll.sampling.host_loop import generate
from unroll.training.bookkeeping import evaluation_points
from unroll.training.events import Evaluated


def test_a_run_that_diverges_under_the_live_panel_is_stopped_and_the_panel_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    monkeypatch.setattr("unroll.sampling.host_loop.generate", lambda *args: tried.append(1) or generate(*args))
    wild = tiny(learning_rate=1e30, batches=30, precision="float32")
    events = train_fleet([wild], [tiny_corpus()], [tmp_path / "run"])
    with redirect_stderr(io.StringIO()):
        display._live(events, tiny_corpus())
    assert tried, "a sample was asked for"
    assert RunFolder(tmp_path / "run").status["state"] == "stopped"


def test_the_time_left_counts_batches_and_evaluations_each_at_its_own_pace(tmp_path: Path) -> None:
    events = train_fleet([tiny(batches=100)], [tiny_corpus()], [tmp_path / "run"])
    (event,) = (e for e in events if isinstance(e, Evaluated) and e.learner.count == 100)
    event.learner.count = 50
    points = evaluation_points(100)
    left = sum(point > 50 for point in points)
    assert 0 < left < len(points) / 2
    slow = replace(event, seconds=50.0, evaluating=10.0 * (len(points) - left))
    assert display.pace(slow).endswith(f"   {duration(50 + 10 * left)} left")
    assert display.pace(replace(event, seconds=0.0)) == ""
