"""`unroll sample`: what is printed, written and refused."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import tiny_run, unroll
from terminals import watched

from unroll import load
from unroll.cli import side_by_side
from unroll.runs.folder import RunFolder
from unroll.sampling import api
from unroll.sampling.host_loop import generate
from unroll.sampling.prompts import seed_sequence


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("cli_sample"))


def samples(*arguments: object) -> list[dict]:
    result = unroll("sample", *arguments, "--json")
    assert result.code == 0, result.err
    return json.loads(result.out)["samples"]


def test_every_sample_of_n_is_the_sample_of_its_own_seed(run: Path) -> None:
    three = samples(run, "--prompt", "abc", "--length", 20, "--n", 3, "--seed", 4)
    assert [s["seed"] for s in three] == [4, 5, 6]
    for found in three:
        assert [found] == samples(run, "--prompt", "abc", "--length", 20, "--seed", found["seed"])
        assert set(found) == {"text", "tokens", "logprobs", "procedure", "seed"}
    plain = unroll("sample", run, "--prompt", "abc", "--length", 20, "--n", 3, "--seed", 4).out
    assert plain == "".join(f"--- seed {s['seed']}\n{s['text']}\n" for s in three)


def test_texts_that_end_at_different_tokens_are_still_shown_in_order(run: Path) -> None:
    arguments = (run, "--prompt", "abc", "--length", 30, "--n", 5, "--stop", "ab", "--stop", "c")
    found = samples(*arguments)
    assert len({len(s["tokens"]) for s in found}) > 1
    assert unroll("sample", *arguments).out == "".join(f"--- seed {s['seed']}\n{s['text']}\n" for s in found)


def test_a_prompt_from_a_file_is_the_prompt(run: Path, tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("abcab")
    from_file, said = (
        samples(run, option, value, "--length", 20)
        for option, value in (("--prompt-file", tmp_path / "prompt.txt"), ("--prompt", "abcab"))
    )
    assert from_file == said


def test_the_text_of_a_pipe_is_the_text_of_json_and_of_a_file(run: Path, tmp_path: Path) -> None:
    arguments = (run, "--prompt", "abc", "--length", 40, "--top-k", 5, "--top-p", 0.9, "--min-p", 0.01)
    (found,) = samples(*arguments)
    assert unroll("sample", *arguments).out == found["text"] + "\n"
    assert unroll("sample", *arguments, "--out", tmp_path / "text").code == 0
    assert (tmp_path / "text").read_text() == found["text"]


def test_several_texts_go_into_one_file(run: Path, tmp_path: Path) -> None:
    arguments = (run, "--prompt", "abc", "--length", 10, "--n", 2)
    assert unroll("sample", *arguments, "--out", tmp_path / "text").code == 0
    assert (tmp_path / "text").read_text() == "\n".join(s["text"] for s in samples(*arguments))


def test_stop_strings_may_be_written_with_backslashes(run: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("ab\nba\n" * 300)
    assert unroll("train", tmp_path / "lines.txt", "--batches", 60, "--hidden", 16, "--dense", 16, "--k2", 6, "--k1", 6,
                  "--rows", 4, "--learning-rate", 0.02, "--out", tmp_path / "run").code == 0  # fmt: skip
    (found,) = samples(tmp_path / "run", "--prompt", "a", "--length", 50, "--stop", "\\n")
    assert "\n" not in found["text"]
    assert len(found["tokens"]) < 50


def test_a_stop_that_the_run_cannot_write_is_told(run: Path) -> None:
    told = unroll("sample", run, "--prompt", "abc", "--length", 5, "--stop", "ab", "--stop", "aXY").err
    assert "the stop 'aXY' ends no text: this run never writes 'X'." in told
    assert told.count("ends no text") == 1


@pytest.mark.parametrize("procedure", ["windowed", "progressive"])
def test_beams_search_and_do_not_draw(run: Path, procedure: str) -> None:
    arguments = (run, "--prompt", "abc", "--length", 12, "--beams", 4, "--sample", procedure)
    (best,) = samples(*arguments)
    assert samples(*arguments, "--seed", 9)[0]["text"] == best["text"]
    assert samples(*arguments, "--n", 3)[0]["text"] == best["text"]
    assert unroll("sample", *arguments).out == best["text"] + "\n"
    assert unroll("sample", *arguments, "--n", 2).out.startswith(f"--- number 1\n{best['text']}\n--- number 2\n")


def test_side_by_side_is_both_procedures_from_one_prompt_and_seed(run: Path) -> None:
    arguments = (run, "--prompt", "abc", "--length", 30, "--seed", 3)
    both = samples(*arguments, "--side-by-side")
    assert [s["procedure"] for s in both] == ["windowed", "progressive"]
    for found in both:
        assert [found] == samples(*arguments, "--sample", found["procedure"])
    piped = unroll("sample", *arguments, "--side-by-side")
    assert piped.out == "".join(f"--- {s['procedure']}\n{s['text']}\n" for s in both)
    assert piped.err.count("tokens a second") == 2


@pytest.mark.parametrize("options", [[], ["--json"], ["--beams", 2], ["--n", 3]], ids=str)
def test_a_command_checks_its_texts_once(run: Path, options: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    checks, check = [], api.check

    def counted(*arguments: Any) -> Any:
        checks.append(arguments)
        return check(*arguments)

    monkeypatch.setattr(api, "check", counted)
    assert unroll("sample", run, "--prompt", "abc", "--length", 5, *options).code == 0
    assert len(checks) == 1


@pytest.mark.parametrize("columns", [False, True])
def test_what_is_made_once_counts_against_neither_procedure(
    run: Path, columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready: set[str] = set()

    def slow_at_first(model: Any, streams: Any, k2: int, procedure: str, *rest: Any) -> Any:
        if procedure not in ready:
            time.sleep(0.5)
            ready.add(procedure)
        return generate(model, streams, k2, procedure, *rest)

    monkeypatch.setattr(api, "generate", slow_at_first)
    monkeypatch.setattr(side_by_side, "on_a_terminal", lambda: columns)
    told = unroll("sample", run, "--prompt", "abc", "--length", 30, "--side-by-side")
    speeds = re.findall(r"([\d,]+) tokens a second", told.out + told.err)
    assert [int(speed.replace(",", "")) > 30 / 0.5 for speed in speeds] == [True, True], speeds


@pytest.mark.parametrize("columns", [52, 80, 120])
def test_two_columns_fill_the_terminal_and_lose_nothing(
    run: Path, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = (run, "--prompt", "abc", "--length", 150)
    texts = [s["text"] for s in samples(*arguments, "--side-by-side")]
    monkeypatch.setattr(side_by_side, "on_a_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    prompt, *shown = unroll("sample", *arguments, "--side-by-side").out.splitlines()
    assert prompt == "abc"
    assert max(len(line) for line in shown) <= columns
    pairs = [line.split(side_by_side.GAP) for line in shown]
    assert all(len(pair) == 2 for pair in pairs)
    assert [cell.strip() for cell in pairs[0]] == ["windowed", "progressive"]
    assert all("tokens a second" in cell for cell in pairs[-1])
    for n, text in enumerate(texts):
        written = "".join(pair[n].rstrip() for pair in pairs[1:-1])
        assert written.replace(" ", "") == text.replace(" ", "").replace("\n", "")


def test_lines_break_at_spaces_and_long_words_within(run: Path) -> None:
    column = side_by_side.Wrapped(10)
    lines = [
        line
        for piece in ("the quick b", "rown\tfox\n\n", "abcdefghijklmnop ", "日本語日本語")
        for line in column.add(piece)
    ]
    assert [*lines, column.rest] == ["the quick ", "brown   ", "fox", "", "abcdefghij", "klmnop ", "日本語日本", "語"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--temperature", -1, "--top-p", 2, "--min-p", -1, "--top-k", 0, "--length", 0, "--n", 0, "--stop", ""],
         ["temperature", "top-p", "min-p", "top-k", "length", "number of texts", "stop string is empty"]),
        (["--temperature", "nan"], ["temperature"]),
        (["--temperature", "inf"], ["temperature"]),
        (["--beams", 3, "--temperature", 0.5], ["no temperature"]),
        (["--beams", 3, "--n", 4], ["at most 3 texts"]),
        (["--prompt", "a€b", "--beams", 0], ["'€' (U+20AC) at position 1", "beams"]),
        (["--prompt", ""], ["prompt is empty"]),
        (["--prompt", "a", "--prompt-file", "nowhere.txt"], ["both give the prompt", "nowhere.txt cannot be read"]),
        (["--prompt", "a", "--side-by-side", "--n", 2], ["--side-by-side draws one text"]),
        (["--out", "no/where.txt", "--length", -1, "--prompt", "a"], ["is no folder", "length"]),
    ],
    ids=str,
)  # fmt: skip
def test_bad_options_are_all_told_at_once(run: Path, options: list[object], words: list[str]) -> None:
    result = unroll("sample", run, *options)
    assert result.code == 2
    assert result.out == ""
    for word in words:
        assert word in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(("content", "word"), [(b"", "is empty"), (b"ab\xff", "is not utf-8: see its byte 2")])
def test_a_prompt_file_that_cannot_be_read_says_why(run: Path, tmp_path: Path, content: bytes, word: str) -> None:
    (tmp_path / "prompt.txt").write_bytes(content)
    result = unroll("sample", run, "--prompt-file", tmp_path / "prompt.txt")
    assert result.code == 2
    assert word in result.err


@pytest.mark.parametrize("command", [["sample", "--prompt", "abc", "--length", 5], ["eval"], ["drift", "--tokens", 5]])
def test_a_run_that_stopped_is_still_used_and_says_so(run: Path, tmp_path: Path, command: list[object]) -> None:
    import shutil

    copy = run.parent / f"stopped-{command[0]}"  # where its text is found as well
    shutil.copytree(run, copy)
    RunFolder(copy).status = RunFolder(copy).status | {"state": "stopped", "reason": "At batch 9 the loss was nan."}
    result = unroll(*command, copy)
    assert result.code == 0
    assert "Training stopped early. At batch 9 the loss was nan." in result.err


def ending(run: Path, seed: int = 0) -> str:
    """The end of what a text without a prompt goes on from, as a line."""
    loaded = load(run)
    return loaded.vocabulary.decode(seed_sequence(loaded, seed)).replace("\n", "\\n")


def test_without_a_prompt_a_terminal_shows_the_end_of_what_the_text_goes_on_from(run: Path) -> None:
    for seed in (0, 1):
        shown = watched("sample", run, "--length", 20, "--seed", seed)
        assert shown.code == 0
        assert f"goes on from the test set: …{ending(run, seed)}" in shown.out
        assert shown.out.index("goes on") < shown.out.index(unroll("sample", run, "--length", 20, "--seed", seed).out)
    for others in (["--beams", 2], ["--side-by-side"]):
        assert f"…{ending(run)}" in watched("sample", run, "--length", 5, *others).out
    two = watched("sample", run, "--length", 5, "--n", 2).out
    assert two.index("seed 0") < two.index(ending(run, 0)) < two.index("seed 1") < two.rindex(ending(run, 1))


def test_what_a_text_goes_on_from_is_for_a_terminal_and_not_said_of_a_prompt(run: Path, tmp_path: Path) -> None:
    assert "goes on from" not in watched("sample", run, "--prompt", "abc", "--length", 5).out
    assert "goes on from" not in watched("sample", run, "--length", 5, "--json").out
    assert "goes on from" not in watched("sample", run, "--length", 5, "--out", tmp_path / "t.txt").out
    piped = unroll("sample", run, "--length", 5)
    assert "goes on from" not in piped.out + piped.err


def test_threads_of_a_command_that_reads_a_run_are_what_was_asked_for(run: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("abcab" * 40)
    before = torch.get_num_threads()
    commands = (
        ["sample", run, "--prompt", "abc", "--length", 5],
        ["eval", run],
        ["score", run, tmp_path / "text.txt"],
        ["drift", run],
    )
    try:
        for command in commands:
            torch.set_num_threads(2)
            result = unroll(*command, "--threads", 1)
            assert result.code == 0, result.err
            assert torch.get_num_threads() == 1
            assert "threads must be at least 1. Got 0." in unroll(*command, "--threads", 0).err
    finally:
        torch.set_num_threads(before)
    text = samples(run, "--prompt", "abc", "--length", 30, "--threads", 1)[0]["text"]
    assert text == samples(run, "--prompt", "abc", "--length", 30, "--threads", 2)[0]["text"]
