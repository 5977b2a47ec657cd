"""Training on a screen: what the panel and the lines do when things go wrong, or have only begun."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Generator
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import killing
import pytest
import torch
from helpers import tiny, tiny_corpus
from rich.console import Console
from rich.text import Text

from unroll import train_fleet
from unroll.cli import display, screen
from unroll.cli.moving import moving
from unroll.cli.screen import duration
from unroll.engines.cpu.engine import CpuEngine
from unroll.runs.folder import RunFolder
from unroll.sampling import while_training
from unroll.sampling.host_loop import generate
from unroll.training.bookkeeping import evaluation_points
from unroll.training.events import Evaluated, Evaluating, Event, Resumed, Stepped, Warned
from unroll.training.pace import resumed


def test_a_run_that_diverges_under_the_live_panel_is_stopped_and_the_panel_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    monkeypatch.setattr("unroll.sampling.while_training.generate", lambda *args: tried.append(1) or generate(*args))
    wild = tiny(learning_rate=1e30, batches=30, precision="float32")
    events = train_fleet([wild], [tiny_corpus()], [tmp_path / "run"], draw=while_training.draw)
    with redirect_stderr(io.StringIO()):
        display._live(events)
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


def panel_lines(folder: Path, width: int) -> list[str]:
    """What the panel shows of a short run at its last evaluation, on a terminal of this width."""
    console = Console(width=width, file=io.StringIO())
    panel = display._Panel(console)
    for event in train_fleet([tiny(batches=40)], [tiny_corpus()], [folder], draw=while_training.draw):
        panel.take(event)
    with console.capture() as captured:
        console.print(panel.render())
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [200, 80, 40, 30])
def test_the_panel_fits_the_terminal_and_cuts_no_field(width: int, tmp_path: Path) -> None:
    lines = panel_lines(tmp_path / "run", width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "40 / 40 batches" in text
    assert re.search(r"\bloss \d+\.\d{4} nats per token(   |$)", text, re.MULTILINE)
    assert "sample at batch 40:" in lines
    if width >= 80:
        assert "of the time" in text


def test_the_panel_says_that_it_evaluates(tmp_path: Path) -> None:
    console = Console(width=80, file=io.StringIO())
    panel = display._Panel(console)
    for event in train_fleet([tiny(batches=4)], [tiny_corpus()], [tmp_path / "run"]):
        panel.take(event)
        with console.capture() as captured:
            console.print(panel.render())
        assert ("evaluating…" in captured.get()) == isinstance(event, Evaluating)


def test_a_run_that_goes_on_says_from_where_and_its_curve_has_what_was_before(tmp_path: Path) -> None:
    events = train_fleet([tiny(batches=40)], [tiny_corpus()], [tmp_path / "run"], save_every=1)
    for event in events:
        if event.batch == 20:
            break
    events.close()
    before = RunFolder(tmp_path / "run").metrics
    again = list(train_fleet([tiny(batches=40)], [tiny_corpus()], [tmp_path / "run"], resume=True))
    (first,) = [event for event in again if isinstance(event, Resumed)]
    panel = display._Panel(display.console(), [*before, {**before[-1], "batch": 39}])
    first = replace(first, learner=SimpleNamespace(count=20, experiments=first.learner.experiments))
    assert resumed(first) == "Going on from batch 20 of 40."
    panel.take(first)
    assert panel.curve == [line["perplexity"]["windowed"] for line in before]
    assert len(panel.curve) > 5


@pytest.mark.parametrize(("pace", "device", "is_said"), [(10, "cpu", True), (0.1, "cpu", False), (10, "cuda", False)])
def test_a_cpu_with_hours_ahead_is_told_of_the_small_model_once(
    pace: float, device: str, is_said: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def events() -> Generator[Event, None, None]:
        learner = SimpleNamespace(
            experiments=[tiny(batches=2000)], engine=SimpleNamespace(device=torch.device(device)), count=0
        )
        for batch in range(1, 80):
            learner.count = batch
            yield Stepped(learner, batch * pace, 0.0, None)  # type: ignore[arg-type]

    notes = [event.message for event in display.advised(events()) if isinstance(event, Warned)]
    assert len(notes) == is_said
    assert all("are left on this CPU. preset=" in note for note in notes)


def test_no_dim_text_where_no_colours_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert screen._styled("x", screen.DIM) != "x"
    assert screen.dim() == "dim"
    monkeypatch.setenv("NO_COLOR", "1")
    assert screen._styled("x", screen.DIM) == "x"
    assert screen.dim() == ""


def test_samples_of_a_run_that_was_killed_are_those_of_one_that_was_not(tmp_path: Path) -> None:
    def train(name: str, until: int = 1000, resume: bool = False) -> None:
        events = train_fleet(
            [tiny(batches=40)], [tiny_corpus()], [tmp_path / name], resume, save_every=7, draw=while_training.draw
        )
        for event in events:
            if event.batch == until:
                killing.lose(events)
                return

    train("whole")
    train("killed", until=25)
    train("killed", until=33, resume=True)
    train("killed", resume=True)
    whole = (tmp_path / "whole" / "samples.jsonl").read_bytes()
    assert (tmp_path / "killed" / "samples.jsonl").read_bytes() == whole
    lines = [json.loads(line) for line in whole.splitlines()]
    assert [line["batch"] for line in lines] == [line["batch"] for line in RunFolder(tmp_path / "whole").metrics]
    assert all(line["text"] and line["procedure"] == "windowed" for line in lines)


def test_where_the_host_waits_for_a_device_few_texts_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuEngine, "looks_cost_nothing", False)
    list(train_fleet([tiny(batches=40)], [tiny_corpus()], [tmp_path / "run"], draw=while_training.draw))
    drawn = [json.loads(line)["batch"] for line in (tmp_path / "run" / "samples.jsonl").read_text().splitlines()]
    assert drawn == [1, 4, 18, 40]


def test_drawing_samples_changes_nothing_that_is_trained(tmp_path: Path) -> None:
    for name, draw in (("with", while_training.draw), ("without", None)):
        list(train_fleet([tiny(batches=30, dropout=0.3)], [tiny_corpus()], [tmp_path / name], draw=draw))
    weights = [(tmp_path / name / "weights.safetensors").read_bytes() for name in ("with", "without")]
    assert weights[0] == weights[1]
    assert not (tmp_path / "without" / "samples.jsonl").exists()


@pytest.mark.parametrize(("before", "after", "rows"), [(80, 40, 3), (80, 70, 0), (80, 25, 5), (70, 80, 0)])
def test_a_terminal_that_got_narrower_loses_the_rows_into_which_it_wrapped_the_lines(
    before: int, after: int, rows: int
) -> None:
    width = [before]
    out = io.StringIO()

    class Resized(Console):
        @property
        def width(self) -> int:
            return width[0]

        @width.setter
        def width(self, _: int) -> None: ...

    console = Resized(file=out, force_terminal=True, _environ={"TERM": "xterm"})
    with moving(console, lambda: Text("x" * 70 + "\n" + "y" * 60 + "\n" + "z" * 50)) as draw:
        draw()
        out.truncate(0)
        width[0] = after
        draw()
        first = out.getvalue().partition("x")[0]
    assert first.count("\x1b[1A") == 2 + rows
