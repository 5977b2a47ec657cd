"""Messages speak of options at a shell and of arguments in Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from commands import unroll

from unroll import Experiment, Scheme, UnrollError, load, train
from unroll.base.errors import ConfigurationError
from unroll.base.wording import go_on, in_words, shell_words


@pytest.mark.parametrize(
    ("at_a_shell", "in_python"),
    [
        ("Set --k2, or k2 under [scheme] in run.toml.", "Set k2=, or k2 under [scheme] in run.toml."),
        ("Choose another folder with --out.", "Choose another folder with out=."),
        ("Lower --k2 or --rows, or bring more text.", "Lower k2= or rows=, or bring more text."),
        ("Raise --test-tokens.", "Raise test_tokens=."),
        ("Use --rotation continue to read on.", 'Use rotation="continue" to read on.'),
        ("--device cuda:3: there are none. Use --device cpu.", 'device="cuda:3": there are none. Use device="cpu".'),
        ("--encoding 'hex' is not known.", "encoding='hex' is not known."),
        ("that --ext .c leaves", 'that ext=".c" leaves'),
        ("rarer than --min-count 5 became", "rarer than min_count=5 became"),
        ("Use --train conditional,reset=0.1.", 'Use state="carried", reset=0.1.'),
        ("Set it as in --train multi-loss,k3=10.", "Set it as in k3=10."),
        ("texts (--n, num_return_sequences)", "texts (num_return_sequences=)"),
        ("what `unroll train --out` made", "what `unroll.train(…, out=…)` made"),
    ],
)
def test_an_option_is_an_argument_in_python_and_stays_an_option_at_a_shell(at_a_shell: str, in_python: str) -> None:
    assert in_words(at_a_shell) == in_python
    assert in_words(in_python) == in_python, "words that were turned once stay"
    with shell_words():
        assert in_words(at_a_shell) == at_a_shell


@pytest.mark.parametrize(
    "message",
    [
        "Got '--k2'.",
        'Got "--k2".',
        "runs/--out is no run folder.",
        "a pause -- as here --- and --",
        "Bring it with `unroll data fetch english --min-count 3 --from FILE`.",
        "To use a file: unroll data fetch english --from FILE.",
    ],
)
def test_quotations_paths_and_commands_stay_as_they_are(message: str) -> None:
    assert in_words(message) == message


def test_an_error_names_arguments_to_python_and_options_to_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("to be or not to be " * 200)
    with pytest.raises(ConfigurationError) as refused:
        Scheme(k2=0)
    assert "Set k2=, or" in str(refused.value)
    assert "--" not in str(refused.value)
    said = unroll("train", tmp_path / "book.txt", "--k2", 0, "--out", tmp_path / "run")
    assert "Set --k2, or" in said.err


def test_an_occupied_folder_is_answered_with_what_python_has(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("to be or not to be " * 800)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("mine")
    with pytest.raises(UnrollError, match="folder with out="):
        train(Experiment(corpus=str(tmp_path / "book.txt"), hidden=8), tmp_path / "run")
    assert "folder with --out" in unroll("train", tmp_path / "book.txt", "--out", tmp_path / "run").err


def test_a_folder_that_is_no_run_is_answered_in_the_words_of_the_door(tmp_path: Path) -> None:
    with pytest.raises(UnrollError, match=r"that `unroll\.train\(…, out=…\)` made"):
        load(tmp_path / "nothing")
    assert "that `unroll train --out` made" in unroll("eval", tmp_path / "nothing").err


def test_how_to_go_on_is_said_in_the_words_of_the_door() -> None:
    assert go_on("runs/a run") == "unroll.resume('runs/a run')"
    with shell_words():
        assert go_on("runs/first") == "unroll train --resume runs/first"


def test_a_process_that_trains_for_a_command_line_words_its_reasons_as_that_does(tmp_path: Path) -> None:
    program = (
        "import sys; from unroll.sweep.launchers import processes; from unroll.base import wording\n"
        "class Line:\n"
        "    def send(self, said): print(wording.at_a_shell())\n"
        "    def recv(self): raise EOFError\n"
        "import os; processes.serve(Line(), os.getppid(), sys.argv[1] == 'shell')\n"
    )
    for door, expected in (("shell", "True"), ("Python", "False")):
        done = subprocess.run([sys.executable, "-c", program, door], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected
