"""`unroll sweep`, end to end: grids, the plan, going on, and what is shown."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import unroll

from unroll.cli.sweep_display import Board, shortened
from unroll.corpus.open_corpora import Library
from unroll.corpus.synthetic import Markov
from unroll.sweep import table
from unroll.sweep.deduplicate import distinct
from unroll.sweep.folder import SweepFolder
from unroll.sweep.launchers import Begun, Progressed, Scored
from unroll.sweep.sweep import Planned, describe, make_plan, results
from unroll.training.bookkeeping import evaluation_points

TINY = ["--k2", 10, "--hidden", 8, "--dense", 12, "--rows", 4, "--threads", 1, "--batches", 6, "--device", "cpu"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpora") / "markov.txt"
    path.write_text(Markov().text(1500))
    return path


@pytest.fixture(scope="module")
def swept(corpus: Path) -> Path:
    out = corpus.parent / "swept"
    result = unroll("sweep", corpus, *TINY, "--scheme", "1,2,3,4", "--k1", "5,10", "--most", 4, "--out", out)
    assert result.code == 0, result.err
    assert result.out.count("finished") == 8
    return out


def test_help_teaches_the_grid_and_imports_no_torch() -> None:
    words = " ".join(unroll("sweep", "--help").out.split())
    assert "--k1 A,B,…" in words
    assert "Schemes 1 and 3 share their training" in words
    script = "import sys, unroll.cli; assert not {'torch', 'numpy', 'rich'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_what_is_no_sweep_is_refused_before_anything_is_planned(tmp_path: Path) -> None:
    told = unroll("sweep", "--resume", tmp_path / "nope")
    assert told.code == 2
    assert "is no sweep" in told.err
    assert "Planning" not in told.err


def test_one_run_is_not_told_as_several(corpus: Path, tmp_path: Path) -> None:
    told = unroll("sweep", corpus, *TINY, "--k1", "5,10", "--most", 1, "--out", tmp_path / "out").err
    assert "fleet 1 of 2: 1 run\n" in told
    assert "1 runs" not in told
    plan = unroll("sweep", corpus, *TINY, "--k1", 5, "--plan", "--out", tmp_path / "other").out
    assert plan.startswith("1 experiment, 1 training, 1 fleet\n")


def test_a_sweep_makes_ordinary_runs_and_one_table_with_the_best_marked(swept: Path) -> None:
    assert sorted(p.name for p in swept.iterdir()) == [
        "fleets.json", "plan.json", "runs", "sweep.json", "table.csv", "table.json", "times.csv",
    ]  # fmt: skip
    runs = sorted((swept / "runs").iterdir())
    assert len(runs) == 6
    assert unroll("eval", runs[0], "--json").code == 0
    again = unroll("sweep", "--resume", swept)
    assert again.code == 0
    head, *lines = again.out.splitlines()
    assert head.split()[:3] == ["scheme", "sample", "k1"]
    best = min(csv.DictReader((swept / "table.csv").read_text().splitlines()), key=lambda row: float(row["perplexity"]))
    (marked,) = [line for line in lines if line.endswith("← lowest on the test set")]
    assert marked.split()[:3] == [best["scheme"], best["sample"], best["k1"]]


def test_json_is_one_object_and_the_table(swept: Path) -> None:
    result = unroll("sweep", "--resume", swept, "--json")
    content = json.loads(result.out)
    assert content["rows"] == json.loads((swept / "table.json").read_text())
    assert content["failures"] == {}
    assert len(content["best"]) == 1
    assert unroll("sweep", "--resume", swept, "--quiet") == (0, "", "")


def test_the_same_command_finds_nothing_left_to_do_and_another_one_is_refused(swept: Path, corpus: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in (swept / "runs").rglob("*")}
    same = unroll("sweep", corpus, *TINY, "--scheme", "4,3,2,1", "--k1", "10,5", "--most", 2, "--out", swept)
    assert same.code == 0
    assert "--most changes nothing here" in same.err
    assert {p: p.stat().st_mtime_ns for p in (swept / "runs").rglob("*")} == before
    other = unroll("sweep", corpus, *TINY, "--out", swept)
    assert other.code == 2
    assert "holds another sweep" in other.err


def test_the_plan_is_printed_and_nothing_written(corpus: Path, tmp_path: Path, swept: Path) -> None:
    result = unroll("sweep", corpus, *TINY, "--scheme", "1,2,3", "--seeds", 3, "--plan", "--out", tmp_path / "out")
    assert result.code == 0
    assert "9 experiments, 6 trainings" in result.out
    assert re.search(
        r"fleet 1: .* cpu, kernel compiled, float32, about \d+ MB \(ms a run-batch: .*of training", result.out
    )
    assert result.out.count("markov-multi-loss") == 3
    assert not (tmp_path / "out").exists()
    stands = unroll("sweep", "--resume", swept, "--plan", "--json")
    written = json.loads((swept / "plan.json").read_text())
    assert json.loads(stands.out) == {name: value for name, value in written.items() if name != "sha256"}


def test_every_setting_of_a_grid_takes_several_values(corpus: Path, tmp_path: Path) -> None:
    axes = [
        "--layers",
        "1,2",
        "--hidden",
        "4,8",
        "--cell",
        "lstm,gru",
        "--learning-rate",
        "0.1,0.01",
        "--dropout",
        "0,0.5",
    ]
    training = ["--train", "multi-loss,k3=2", "--train", "conditional,reset=0.5", "--sample", "windowed,progressive"]
    result = unroll("sweep", corpus, *TINY, *axes, *training, "--seed", "3,7", "--most", 9, "--plan", "--json")
    assert result.code == 0, result.err
    plan = json.loads(result.out)
    assert sum(len(fleet["runs"]) for fleet in plan["fleets"]) == 2**5 * 2 * 2
    assert len(plan["fleets"]) >= 16  # layers, hidden, cell and K keep them apart


def test_all_problems_are_told_at_once_before_any_work(tmp_path: Path) -> None:
    wrong = ["--scheme", "1,9,x", "--k1", "0,a", "--hidden", "q", "--seeds", 0, "--seed", 1, "--launcher", "locl"]
    result = unroll("sweep", *wrong, "--cell", "lstn", "--most", 0, "--save-every", 0, "--preset", "huge")
    assert result.code == 2
    told = result.err.splitlines()
    for words in (
        "Give the sweep a folder", "Give a CORPUS", "Did you mean local", "most must be", "Got 'x' in '1,9,x'",
        "--scheme must be 1, 2, 3 or 4. Got 9", "Got 'a' in '0,a'", "k1 must be at least 1. Got 0", "--hidden takes",
        "seeds must be between 1 and 20,000. Got 0", "drop one of the two", "Did you mean lstm", "save_every must be",
        "--preset must be",
    ):  # fmt: skip
        assert len([line for line in told if words in line]) == 1, words


def test_corpora_that_cannot_be_read_are_all_told(tmp_path: Path) -> None:
    result = unroll("sweep", tmp_path / "a.txt", tmp_path / "b.txt", "--seeds", 3, "--out", tmp_path / "out")
    assert result.code == 2
    assert [name in result.err for name in ("a.txt", "b.txt")] == [True, True]
    assert len(result.err.splitlines()) == 2
    assert not (tmp_path / "out").exists()


def test_resume_needs_nothing_else(swept: Path, corpus: Path) -> None:
    result = unroll("sweep", corpus, "--resume", swept, "--k1", "5")
    assert result.code == 2
    assert "leave out --k1, CORPUS" in result.err


def test_runs_that_fail_are_told_with_the_reason_and_exit_1(corpus: Path, tmp_path: Path) -> None:
    short = tmp_path / "short.txt"
    short.write_text(Markov().text(90))
    result = unroll("sweep", corpus, short, *TINY, "--scheme", "1,2", "--most", 2, "--out", tmp_path / "out")
    assert result.code == 1
    assert "2 of 4 runs could not be trained:" in result.err
    assert result.err.count("The test set needs more than k2 = 10 tokens") == 1
    assert (result.out.count("finished"), result.out.count("failed")) == (2, 2)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_prints_the_command_that_goes_on(
    number: int, code: int, corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options = ["--seeds", 2, "--most", 1, "--batches", 100_000, "--out", out]
    command = [sys.executable, "-m", "unroll", "sweep", corpus, *TINY, *options]
    process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while "fleet 1 of 2" not in (line := process.stderr.readline()):
        assert line, "it ended by itself"
    time.sleep(0.3)
    os.kill(process.pid, number)
    _, said = process.communicate(timeout=30)
    assert process.returncode == code
    assert f"Go on with:  unroll sweep --resume {out}" in said
    assert list(out.glob("runs/*/checkpoints/*"))


# --- the live table -----------------------------------------------------------------------------------------------


def board(corpus: Path, seeds: int) -> Board:
    """A sweep of many runs whose first fleet trains."""
    from unroll import grid

    library = Library()
    runs = grid(
        corpus=str(corpus),
        scheme=[1, 2],
        k2=10,
        hidden=8,
        dense=12,
        rows=4,
        batches=100,
        seed=range(seeds),
        device="cpu",
    )
    trainings = distinct(describe(runs, library))
    plan = make_plan(trainings, library, most=8)
    shown = Board()
    shown.take(Planned("", plan, tuple(trainings), dict.fromkeys(plan.fleets[-1].runs, "finished")))
    shown.take(Begun("1", 20))
    shown.take(Progressed("1", 50, 1.0, 0.5))
    shown.take(Scored("1", plan.fleets[0].runs[0], {"perplexity": {"windowed": 7.25}}))
    return shown


def drawn(shown: Board, width: int, height: int) -> list[str]:
    from rich.console import Console

    console = Console(width=width, height=height, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    with console.capture() as captured:
        console.print(shown.render(width, height))
    console.file.close()
    return captured.get().splitlines()


@pytest.mark.parametrize(("seeds", "height"), [(2, 40), (100, 24), (100, 12), (40, 8)])
def test_the_live_table_fits_the_terminal_and_shows_the_fleet_that_trains(
    seeds: int, height: int, corpus: Path
) -> None:
    shown = board(corpus, seeds)
    lines = drawn(shown, 100, height)
    assert len(lines) < height
    assert max(map(len, lines)) <= 100
    text = "\n".join(lines)
    assert "50 / 100" in text
    assert "7.250" in text
    assert "20 ms a run-batch" in text
    assert f"/ {2 * seeds} runs over" in text
    assert ("runs more" in text) == (2 * seeds > height - 5)


def test_the_time_left_is_told_from_the_work_done_in_this_session(corpus: Path) -> None:
    shown = board(corpus, 8)
    assert shown.left().endswith(" left")
    assert 0 < shown.done_before < shown.work_done() < 1


def test_names_are_shown_without_what_they_share() -> None:
    names = ["a-multi-loss-k1_5-k2_10-lstm1x8-seed0", "a-conditional-k1_5-k2_10-lstm1x8-seed1"]
    assert shortened(names) == ["multi-loss-seed0", "conditional-seed1"]
    assert shortened(["one"]) == ["one"]


def test_two_texts_of_one_name_are_told_apart_and_each_has_its_best_run(tmp_path: Path) -> None:
    for folder, letters in (("one", "ab"), ("two", "abcdefgh")):
        (tmp_path / folder).mkdir()
        drawn = random.Random(folder)
        (tmp_path / folder / "text.txt").write_text("".join(drawn.choices(letters, k=600)))
    texts = [tmp_path / folder / "text.txt" for folder in ("one", "two")]
    told = unroll("sweep", *texts, "--seeds", 2, "--batches", 3, "--out", tmp_path / "sweep", *TINY)
    assert told.code == 0, told.err
    rows = results(SweepFolder(tmp_path / "sweep"))
    names = {f"text ({hashlib.sha256(text.read_bytes()).hexdigest()[:8]})" for text in texts}
    assert {row["corpus"] for row in rows} == names
    assert set(table.best(rows)) == names


def test_a_plan_counts_evaluation_and_names_what_makes_it_shorter(tmp_path: Path) -> None:
    asked = ("sweep", "markov", *TINY, "--seeds", 2, "--plan", "--test-tokens", 3000, "--batches", 60)
    many = unroll(*asked).out
    assert re.search(r"of training and [\d.]+ \w+ of evaluation\n", many)
    assert re.search(r"^about .* in all: .* of training, .* of evaluation \(\d+%\)$", many, re.MULTILINE)
    points = len(evaluation_points(60))
    assert f"Each run is evaluated {points} times: --evaluations N makes it N times" in many
    few = unroll(*asked[:-4], "--test-tokens", 20, "--batches", 4000, "--evaluations", 2).out
    assert "--evaluations N" not in few


def test_a_plan_whose_text_is_gone_is_still_printed(corpus: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes(corpus.read_bytes())
    swept = unroll("sweep", text, *TINY, "--k1", 5, "--seeds", 2, "--most", 2, "--out", tmp_path / "sweep", "-q")
    assert swept.code == 0, swept.err
    text.unlink()
    result = unroll("sweep", "--resume", tmp_path / "sweep", "--plan")
    assert result.code == 0, result.err
    assert "fleet 1: 2 runs" in result.out
    assert "of evaluation" not in result.out
