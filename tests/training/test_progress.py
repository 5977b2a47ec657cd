"""What a script, a terminal and a notebook's cell show of a training in Python, and who hears of its events."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import threading
import types
from contextlib import redirect_stderr
from pathlib import Path

import pytest

import unroll
from unroll import Corpus, Ended, Evaluated, Experiment, Scheme, Stepped, Warned, train, train_all
from unroll.base import live
from unroll.base.errors import ConfigurationError

TEXT = Corpus.from_text("to be or not to be, that is the question. " * 100)
TINY = Experiment(scheme=Scheme(k1=5, k2=10), hidden=8, dense=16, rows=4, batches=12, threads=1)
NOTED = Experiment(scheme=Scheme(k1=12, k2=10), hidden=8, dense=16, rows=4, batches=12, threads=1)
SCRIPT = """
import sys
from unroll import Corpus, Experiment, Scheme, train, train_all
text = Corpus.from_text("to be or not to be, that is the question. " * 100)
tiny = Experiment(scheme=Scheme(k1=5, k2=10), hidden=8, dense=16, rows=4, batches=12, threads=1)
if sys.argv[1] == "train":
    train(tiny, sys.argv[2], text, progress=eval(sys.argv[3]))
else:
    train_all([tiny], sys.argv[2], [text], most=1, progress=eval(sys.argv[3]))
print("done")
"""
BOTH = pytest.mark.parametrize("call", ["train", "train_all"])


def piped(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def on_a_terminal(*arguments: object) -> str:
    """What a script writes to a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    pieces: list[bytes] = []

    def read() -> None:
        try:
            while piece := os.read(ours, 1 << 16):
                pieces.append(piece)
        except OSError:  # the other end is closed
            return

    reader = threading.Thread(target=read)
    reader.start()
    environment = {**os.environ, "COLUMNS": "80"}
    command = [sys.executable, "-c", SCRIPT, *map(str, arguments)]
    subprocess.run(command, stdout=theirs, stderr=theirs, env=environment, check=True)
    os.close(theirs)
    reader.join()
    os.close(ours)
    return b"".join(pieces).decode()


@BOTH
def test_a_script_whose_errors_go_to_a_file_is_silent_unless_it_asks(call: str, tmp_path: Path) -> None:
    silent = piped(call, tmp_path / "silent", None)
    assert (silent.stdout, silent.stderr) == ("done\n", "")
    asked = piped(call, tmp_path / "asked", True)
    assert asked.stdout == "done\n"
    assert asked.stderr.count("\n") == len(unroll.training.bookkeeping.evaluation_points(12)) + 1
    assert "finished" in asked.stderr.splitlines()[-1]
    assert "\x1b" not in asked.stderr


@BOTH
def test_a_terminal_shows_one_line_that_is_drawn_over_itself(call: str, tmp_path: Path) -> None:
    shown = on_a_terminal(call, tmp_path / "run", None)
    drawn, _, after = shown.rpartition("\r\n")[0].rpartition("\r\n")
    assert after == "done"
    lines = drawn.split("\r\x1b[K")[1:]
    assert len(lines) > 1
    assert max(map(len, lines)) < 80
    assert "finished" in lines[-1]
    assert "\n" not in drawn


@BOTH
def test_progress_false_is_silent_on_a_terminal(call: str, tmp_path: Path) -> None:
    assert on_a_terminal(call, tmp_path / "run", False) == "done\r\n"


def test_every_event_reaches_the_users_function_in_order_with_its_fields(tmp_path: Path) -> None:
    events: list[unroll.training.events.Event] = []
    run = train(NOTED, tmp_path / "run", TEXT, on_event=events.append)
    assert isinstance(events[0], Warned)
    assert events[0].message.startswith("k1 = 12 is above k2 = 10")
    assert [event.batch for event in events if isinstance(event, Stepped)] == list(range(1, 13))
    assert [event.metrics for event in events if isinstance(event, Evaluated)] == run.metrics
    assert isinstance(events[-1], Ended)
    assert events[-1].status == run.status
    assert {event.batches for event in events} == {12}


def test_a_note_stands_on_a_line_of_its_own_in_a_log(tmp_path: Path) -> None:
    with redirect_stderr(io.StringIO()) as errors:
        train(NOTED, tmp_path / "run", TEXT, progress=True)
    assert errors.getvalue().startswith("note: k1 = 12 is above k2 = 10")


def test_what_should_be_known_of_a_text_is_said_first_in_the_words_of_python(tmp_path: Path) -> None:
    rare = Corpus.from_text("to be or not to be, that is the question. " * 100 + "ß", min_count=2)
    assert rare.notes
    for begin in (
        lambda: train(TINY, tmp_path / "run", rare, progress=True),
        lambda: train_all([TINY], tmp_path / "sweep", [rare], most=1, progress=True),
    ):
        with redirect_stderr(io.StringIO()) as errors:
            begin()
        assert errors.getvalue().startswith("note: 1 tokens rarer than min_count=2 became")


def test_a_stream_that_is_closed_before_or_meanwhile_stops_no_training(tmp_path: Path) -> None:
    stream = io.StringIO()
    for run in ("open", "closed"):
        with redirect_stderr(stream):
            done = train(TINY, tmp_path / run, TEXT, progress=True, on_event=lambda event: stream.close())
        assert done.status["state"] == "finished"


@pytest.mark.parametrize("wrong", ["yes", 1, "bar"])
def test_progress_is_true_false_or_none(wrong: object, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="progress must be True, False or None"):
        train(TINY, tmp_path / "run", TEXT, progress=wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="progress must be True, False or None"):
        train_all([TINY], tmp_path / "sweep", [TEXT], progress=wrong)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_notebook_is_told_by_its_kernel_and_a_plain_ipython_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def pretend(shell: object) -> None:
        monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))

    pretend(types.SimpleNamespace(kernel=object()))
    assert live.in_notebook()
    assert isinstance(live.place(None), live.Notebook)
    assert live.place(False) is None
    pretend(types.SimpleNamespace())
    assert not live.in_notebook()
    pretend(None)
    assert not live.in_notebook()


def test_the_panel_of_a_notebook_escapes_what_is_not_ours_and_fetches_nothing() -> None:
    panel = live.Notebook()
    panel._notes.append("a <script>alert(1)</script> & more")
    panel._last = ("<b>5 / 10</b>", 0.5, "<svg></svg>")
    page = panel.page()
    assert "<script" not in page
    assert "&lt;b&gt;5 / 10&lt;/b&gt;" in page
    assert "<svg></svg>" in page
    assert "http" not in page
    assert "width:50.0%" in page
