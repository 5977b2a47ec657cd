"""What a folder of runs promises, and broke when it was attacked: one fact a test."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import TINY, tiny_run, unroll

import unroll as library
from unroll.base.errors import RunError
from unroll.base.untrusted import parse_toml
from unroll.corpus.tokens import MOST, Vocabulary
from unroll.runs.folder import RunFolder
from unroll.training.loop import train_fleet

PRECIOUS = "precious"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, one cut off at batch 7 of 12, and a sweep of two."""
    folder = tmp_path_factory.mktemp("made")
    run = tiny_run(folder)
    experiment = RunFolder(run).experiment
    corpus = library.Corpus.named(experiment)
    for event in (events := train_fleet([experiment], [corpus], [folder / "half"], save_every=2)):
        if event.learner.count == 7:
            break
    events.close()
    swept = unroll("sweep", folder / "corpus.txt", "--batches", 4, "--seeds", 2, *TINY, "--out", folder / "sweep")
    assert swept.code == 0, swept.err
    return folder


@pytest.fixture
def given(made: Path, tmp_path: Path) -> Path:
    """A copy of all that."""
    return shutil.copytree(made, tmp_path / "given")


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[Path]:
    """Somebody's own folder, which is as it was when the test is over."""
    folder = tmp_path / "mine"
    folder.mkdir()
    names = ("diary.txt", "batch-000000001.safetensors", "vocabulary.json")
    for name in names:
        (folder / name).write_text(PRECIOUS)
    yield folder
    assert {path.name: path.read_text() for path in folder.iterdir()} == dict.fromkeys(names, PRECIOUS)


def a_run(sweep: Path) -> Path:
    return sorted((sweep / "runs").iterdir())[0]


def refused(*command: object) -> str:
    """The words of a command that is refused."""
    result = unroll(*command)
    assert result.code == 2, result
    assert "Traceback" not in result.err
    return result.err


# --- links ----------------------------------------------------------------------------------------------------------


def test_no_file_is_deleted_through_a_link_in_the_place_of_the_checkpoints(given: Path, mine: Path) -> None:
    (given / "run" / "checkpoints").symlink_to(mine)
    (a_run(given / "sweep") / "checkpoints").symlink_to(mine)
    unroll("train", "--resume", given / "run")
    unroll("sweep", "--resume", given / "sweep")
    shutil.rmtree(given / "half" / "checkpoints")
    (given / "half" / "checkpoints").symlink_to(mine)
    assert "must be a folder: it is a link" in refused("train", "--resume", given / "half")


def test_no_folder_of_somebody_else_becomes_a_run_through_a_link(given: Path, mine: Path) -> None:
    run = a_run(given / "sweep")
    shutil.rmtree(run)
    run.symlink_to(mine)
    assert f"{run} must be a folder: it is a link" in refused("sweep", "--resume", given / "sweep")


@pytest.mark.parametrize(
    "name",
    [
        "status.json.partial", "weights.safetensors.partial", "run.toml.partial", "metrics.jsonl.partial",
        "status.json", "weights.safetensors", "run.toml", "metrics.jsonl", "samples.jsonl", "perplexity.png",
        "vocabulary.json",
        "best.safetensors", "best.safetensors.partial",
    ],
)  # fmt: skip
def test_nothing_is_written_through_a_link(name: str, given: Path, mine: Path) -> None:
    for run, command in ((given / "half", "train"), (a_run(given / "sweep"), "sweep")):
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(mine / "diary.txt")
        unroll(command, "--resume", given / "half" if command == "train" else given / "sweep")
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(mine / "made by following a link")
        unroll(command, "--resume", given / "half" if command == "train" else given / "sweep")


@pytest.mark.parametrize(
    "name", ["table.csv", "times.csv", "table.json", "table.csv.partial", "sweep.json", "plan.json"]
)
def test_nothing_of_a_sweep_is_written_through_a_link(name: str, given: Path, mine: Path) -> None:
    (given / "sweep" / name).unlink(missing_ok=True)
    (given / "sweep" / name).symlink_to(mine / "diary.txt")
    unroll("sweep", "--resume", given / "sweep")


def test_a_copy_made_of_second_names_keeps_its_lines_when_the_run_goes_on(given: Path) -> None:
    before = (given / "half" / "metrics.jsonl").read_bytes()
    os.link(given / "half" / "metrics.jsonl", given / "backup.jsonl")
    assert unroll("train", "--resume", given / "half").code == 0
    assert (given / "backup.jsonl").read_bytes() == before
    assert (given / "half" / "metrics.jsonl").read_bytes().startswith(before[:100])


# --- documents ------------------------------------------------------------------------------------------------------

DEEP = '{"state":' * 100_000


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("status.json", DEEP),
        ("status.json", '{"state": "finished", "batch": 12, "seconds": 1e999}'),
        ("status.json", '{"state": "finished", "batch": 1' + "0" * 5000 + "}"),
        ("status.json", '{"state": "finished", "batch": 12, "threads": "many"}'),
        ("status.json", '{"state": "finished", "batch": true}'),
        ("vocabulary.json", '{"symbols":' * 100_000),
        ("vocabulary.json", '{"kind": "chars", "symbols": [' + "1," * 5_000_000 + "1]}"),
        ("metrics.jsonl", DEEP + "\n"),
        ("metrics.jsonl", '{"batch": 1' + "0" * 400 + ', "sequences": 1, "loss": 1, "perplexity": {}, "seconds": 1}\n'),
        ("run.toml", "a = " + "[" * 60_000),
        ("run.toml", "a = " + "{a = " * 10_000),
        ("run.toml", ".".join(["a"] * 30_000) + " = 1"),
        ("run.toml", '[corpus]\nsource = "a\\u0000b"\n'),
        ("run.toml", '[corpus]\nencoding = "a\\u0000b"\n'),
        ("run.toml", "[training]\nclip = 1e999\nbatches = 1e999\n"),
        ("run.toml", "[model]\nlayers = 2147483647\n"),
        ("run.toml", "[scheme]\nk2 = 2147483647\n"),
        ("run.toml", "[model]\nlayers = 1" + "0" * 5000 + "\n"),
    ],
)
def test_a_deep_huge_or_strange_document_is_one_message_at_once(name: str, content: str, given: Path) -> None:
    (given / "run" / name).write_text(content)
    report = [] if name == "vocabulary.json" else [["report", "--out", given / "page.html"]]  # which reads none
    for command in (["eval"], ["sample", "--prompt", "abc"], *report):
        began = time.perf_counter()
        words = refused(*command, given / "run")
        assert str(given / "run" / name) in words
        assert len(words) < 3_000
        assert time.perf_counter() - began < 10


def test_a_run_whose_name_is_a_digit_of_another_script_is_swept_and_shown(given: Path) -> None:
    run = a_run(given / "sweep")
    run.rename(run.with_name("²"))
    for document in ("sweep.json", "plan.json"):
        path = given / "sweep" / document
        content = json.loads(path.read_text().replace(run.name, "²"))
        del content["sha256"]
        path.write_text(json.dumps(content))
    assert unroll("sweep", "--resume", given / "sweep").code == 0
    assert unroll("report", given / "sweep", "--out", given / "page.html").code == 0


def test_a_vocabulary_of_a_million_symbols_is_read_in_time_that_grows_with_it_and_no_larger_one_is() -> None:
    def seconds(symbols: int) -> float:
        text = Vocabulary("ids", tuple(map(str, range(symbols)))).to_json()
        began = time.process_time()
        Vocabulary.from_json(text, "vocabulary.json")
        return time.process_time() - began

    assert seconds(200_000) < 40 * seconds(20_000)
    with pytest.raises(RunError, match="at most"):
        Vocabulary.from_json(Vocabulary("ids", tuple(map(str, range(MOST + 1)))).to_json(), "vocabulary.json")


def test_a_line_that_no_configuration_has_is_refused_before_it_is_parsed() -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match="a line of more than"):
        parse_toml(".".join(["a"] * 30_000) + " = 1")
    assert time.process_time() - began < 1


@pytest.mark.parametrize("name", ["weights.safetensors", "status.json", "metrics.jsonl", "vocabulary.json", "run.toml"])
def test_ten_gigabytes_of_nothing_are_not_read(name: str, given: Path) -> None:
    with open(given / "run" / name, "r+b") as file:
        file.truncate(10 * 2**30)
    before = _most_memory()
    for command in (["eval"], ["report", "--out", given / "page.html"]):
        if command[0] != "report" or name not in ("weights.safetensors", "vocabulary.json"):  # which reads neither
            assert str(given / "run" / name) in refused(*command, given / "run")
    assert _most_memory() - before < 300


def _most_memory() -> float:
    """Megabytes, at most so far."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1]) / 1000


# --- damage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["a wrong key", "a digit", "a lost line", "a clock"])
def test_damaged_metrics_of_a_run_on_its_way_are_noticed_before_it_goes_on(damage: str, given: Path) -> None:
    path = given / "half" / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    first = lines[0]
    if damage == "a wrong key":
        lines[0] = first.replace('"perplexity"', '"perplexitx"')
    elif damage == "a digit":
        place = first.index('"loss": ') + 10
        lines[0] = first[:place] + str((int(first[place]) + 1) % 10) + first[place + 1 :]
    elif damage == "a lost line":
        lines = [*lines[:1], *lines[2:], lines[1].replace('"batch": 2', '"batch": 99')]
    else:
        lines[0] = first.replace('"seconds": 0.', '"seconds": 1.')
    path.write_text("".join(lines))
    before = {file.name: file.read_bytes() for file in (given / "half").iterdir() if file.is_file()}
    assert "metrics.jsonl is damaged" in refused("train", "--resume", given / "half")
    assert {file.name: file.read_bytes() for file in (given / "half").iterdir() if file.is_file()} == before


@pytest.mark.parametrize("field", ["loss", "perplexity", "seconds", "batch"])
def test_a_changed_digit_in_the_metrics_of_a_finished_run_is_noticed(field: str, given: Path) -> None:
    path = given / "run" / "metrics.jsonl"
    text = path.read_text()
    place = next(i for i in range(text.index(f'"{field}": '), len(text)) if text[i] in "123456")
    path.write_text(text[:place] + str(int(text[place]) + 1) + text[place + 1 :])
    assert "is damaged" in refused("eval", given / "run")


@pytest.mark.parametrize(
    ("old", "new"), [('"batch": 12', '"batch": 13'), ('"state": "finished"', '"state": "stopped"')]
)
def test_a_changed_status_is_noticed(old: str, new: str, given: Path) -> None:
    path = given / "run" / "status.json"
    path.write_text(path.read_text().replace(old, new))
    assert "status.json is damaged" in refused("sample", given / "run", "--prompt", "abc")


def test_symbols_that_changed_places_are_noticed(given: Path) -> None:
    path = given / "run" / "vocabulary.json"
    content = json.loads(path.read_text())
    content["symbols"][:2] = content["symbols"][1::-1]
    path.write_text(json.dumps(content))
    for command in (["eval"], ["sample", "--prompt", "abc"], ["score", given / "corpus.txt"]):
        words = refused(command[0], given / "run", *command[1:])
        assert "is not the vocabulary that the weights were trained with" in words


def test_a_report_shows_what_was_trained_whatever_run_toml_says_now(given: Path) -> None:
    page = given / "page.html"
    assert unroll("report", given / "run", "--out", page).code == 0
    shown = page.read_text()
    (given / "run" / "run.toml").write_text("")
    assert unroll("report", given / "run", "--out", page).code == 0
    changed = page.read_text()
    assert "run.toml was changed after the training" in changed
    assert '"hidden":8' in shown.replace(" ", "")
    assert '"hidden":8' in changed.replace(" ", "")
    assert '"hidden":512' not in changed.replace(" ", "")


def test_a_run_without_weights_whose_configuration_was_changed_is_not_reported_on(given: Path) -> None:
    (given / "run" / "weights.safetensors").unlink()
    (given / "run" / "run.toml").write_text("")
    assert "is not what this run was begun with" in refused("report", given / "run", "--out", given / "page.html")


@pytest.mark.parametrize("gone", ["deleted", "cut"])
def test_the_lost_weights_of_a_finished_run_are_noticed(gone: str, given: Path) -> None:
    for run in (given / "run", a_run(given / "sweep")):
        weights = run / "weights.safetensors"
        content = weights.read_bytes()
        weights.unlink()
        if gone == "cut":
            weights.write_bytes(content[: len(content) // 2])
    words = refused("train", "--resume", given / "run")
    assert "weights.safetensors is" in words
    assert "Bring the file back from a copy" in words
    result = unroll("sweep", "--resume", given / "sweep")
    assert result.code == 0
    assert "weights.safetensors is" in result.err
    assert "Its row of the table stands" in result.err


def test_checkpoints_that_a_killed_run_left_are_cleared_by_whoever_comes_next(given: Path) -> None:
    for run, command in ((given / "run", "train"), (a_run(given / "sweep"), "sweep")):
        shutil.copytree(given / "half" / "checkpoints", run / "checkpoints")
        result = unroll(command, "--resume", given / command if command == "sweep" else run)
        assert result.code == 0
        assert not (run / "checkpoints").exists()


def test_the_last_copy_of_lost_weights_is_not_cleared(given: Path) -> None:
    shutil.copytree(given / "half" / "checkpoints", given / "run" / "checkpoints")
    (given / "run" / "weights.safetensors").unlink()
    refused("train", "--resume", given / "run")
    assert list((given / "run" / "checkpoints").iterdir())


@pytest.mark.parametrize("name", ["batch-000000099.safetensors", "notes", "batch-000000006.safetensors"])
def test_a_folder_among_the_checkpoints_is_passed_over(name: str, given: Path) -> None:
    path = given / "half" / "checkpoints" / name
    path.unlink(missing_ok=True)
    path.mkdir()
    (path / "mine.txt").write_text(PRECIOUS)
    result = unroll("train", "--resume", given / "half")
    assert result.code == 0, result.err
    assert (path / "mine.txt").read_text() == PRECIOUS


def test_one_damaged_run_among_many_is_left_out_of_a_report_and_said(given: Path) -> None:
    runs = given / "many"
    runs.mkdir()
    for number in range(5):
        shutil.copytree(given / "run", runs / f"run{number}")
    (runs / "run3" / "run.toml").write_text("hidden = ")
    for paths in ([runs], sorted(runs.iterdir())):
        result = unroll("report", *paths, "--out", given / "page.html")
        assert result.code == 0, result.err
        assert "run3 is left out" in (given / "page.html").read_text()
        assert "run3 is left out" in result.err


def test_a_folder_name_that_no_disk_takes_is_refused_in_words(given: Path) -> None:
    long = given / ("x" * 300)
    for command in (["train", given / "corpus.txt", *TINY], ["sweep", given / "corpus.txt", *TINY]):
        assert "Choose another" in refused(*command, "--out", long)
    for command in (["eval", long], ["train", "--resume", long], ["sweep", "--resume", long], ["report", long]):
        refused(*command)
    for command in (
        ["score", given / "run", long],
        ["sample", given / "run", "--prompt-file", long],
        ["bench", "--from", long],
    ):
        refused(*command)


def test_a_folder_in_the_place_of_a_file_is_refused_in_words(given: Path) -> None:
    (given / "half" / "metrics.jsonl").unlink()
    (given / "half" / "metrics.jsonl").mkdir()
    assert "metrics.jsonl must be a regular file: it is a folder" in refused("train", "--resume", given / "half")
