"""What `unroll train --from` and `--keep-optimiser` say, take and refuse."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from commands import TINY, tiny_run, unroll

from unroll.runs.folder import RunFolder

CANNOT = "This run cannot be extended after its end; --keep-optimiser keeps what that needs."


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tiny_run(tmp_path)


@pytest.fixture
def other(tmp_path: Path, run: Path) -> Path:
    """A text with the letters of the run's, and two more."""
    path = tmp_path / "other.txt"
    path.write_text((tmp_path / "corpus.txt").read_text()[:2000] + "XY" * 50)
    return path


def test_what_a_run_begins_from_is_said_on_the_screen(tmp_path: Path, run: Path, other: Path) -> None:
    V = len(RunFolder(run).vocabulary)
    asked = [other, "--from", run, "--batches", 9, "--threads", 1, "--out", tmp_path / "child"]
    printed = unroll("train", *asked, "--new-symbols", "add")
    assert printed.code == 0, printed.err
    words = " ".join(printed.err.split())
    symbols = f"its {V} symbols and 2 new ones ('X' (U+0058), 'Y' (U+0059))"
    assert f"From {run}: its weights after 12 batches, {symbols}" in words
    assert "the optimiser begins anew." in words
    assert "What is not given is as it was there, but for --batches, evaluations and what ends a run early." in words
    assert "carried states" not in words
    assert words.count(CANNOT) == 1
    shown = json.loads(unroll("eval", tmp_path / "child", "--json").out)
    last = RunFolder(tmp_path / "child").metrics[-1]["perplexity"]
    assert shown["perplexity"] == pytest.approx(last)
    assert unroll("sample", tmp_path / "child", "--prompt", "XY", "--length", 5).code == 0
    again = unroll("train", "--resume", tmp_path / "child")
    assert "there is nothing to go on with" in again.err
    assert CANNOT not in again.err


def test_symbols_that_the_run_does_not_know_are_refused_in_one_line(tmp_path: Path, run: Path, other: Path) -> None:
    refused = unroll("train", other, "--from", run, "--out", tmp_path / "child")
    assert refused.code == 2
    words = f"other has 2 symbols (100 of 2,100 tokens) that {run} does not know: 'X' (U+0058) 50 times, 'Y' (U+0059)"
    assert words in refused.err
    assert "--new-symbols add gives them rows of their own" in refused.err
    assert "Traceback" not in refused.err
    assert not (tmp_path / "child").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--hidden", 9], "hidden is 8 in .*run, and its weights have that shape. Got 9. Leave --hidden out."),
        (["--cell", "gru"], "cell is lstm in"),
        (["--kind", "bytes"], "kind is chars in .*, and its vocabulary is kept"),
        (["--new-symbols", "perhaps"], "new_symbols must be one of refuse, add"),
        (["--optimiser-state", "keep"], "kept nothing of its optimiser"),
        (["--optimiser-state", "old"], "optimiser_state must be one of new, keep"),
        (["--hiden", 9], "hidden"),
    ],
)
def test_what_contradicts_the_weights_is_refused(tmp_path: Path, run: Path, options: list[object], words: str) -> None:
    refused = unroll("train", tmp_path / "corpus.txt", "--from", run, "--out", tmp_path / "child", *options)
    assert refused.code == 2
    assert re.search(words, refused.err), refused.err
    assert not (tmp_path / "child").exists()


def test_a_preset_says_no_more_than_the_length(tmp_path: Path, run: Path) -> None:
    given = ["--preset", "small", "--evaluations", 2, "--from", run, "--out", tmp_path / "child", "--threads", 1]
    done = unroll("train", tmp_path / "corpus.txt", *given, "--scheme", 4, "--batches", 2)
    assert done.code == 0, done.err
    child = RunFolder(tmp_path / "child").experiment
    assert (child.hidden, child.batches, child.scheme.number, child.scheme.k1) == (8, 2, 4, 5)
    assert "carried states begin at zero" in done.err


def test_options_that_need_a_parent_are_refused_without_one(tmp_path: Path, run: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    alone = unroll("train", corpus, "--new-symbols", "add", "--out", tmp_path / "x", *TINY)
    assert (alone.code, "Give --from RUN" in alone.err) == (2, True)
    nothing = unroll("train", "--from", run, "--out", tmp_path / "x")
    assert (nothing.code, "Give a CORPUS to go on with" in nothing.err) == (2, True)
    both = unroll("train", "--resume", run, "--from", run)
    assert (both.code, "--resume needs nothing else" in both.err) == (2, True)
    nowhere = unroll("train", corpus, "--from", tmp_path / "nowhere", "--out", tmp_path / "x")
    assert (nowhere.code, "not a run folder" in nowhere.err) == (2, True)
    assert not (tmp_path / "x").exists()


def test_a_run_that_keeps_its_optimiser_is_extended_and_one_that_does_not_names_both_ways(
    tmp_path: Path, run: Path
) -> None:
    refused = unroll("train", "--resume", run, "--batches", 20)
    assert refused.code == 2
    assert "has already finished after 12 batches and kept nothing to go on from: --keep-optimiser" in refused.err
    assert "`unroll train --from`" in refused.err
    given = [tmp_path / "corpus.txt", "--batches", 12, "--keep-optimiser", *TINY]
    kept = unroll("train", *given, "--out", tmp_path / "kept")
    assert CANNOT not in kept.err
    assert unroll("train", "--resume", tmp_path / "kept", "--batches", 20).code == 0
    status = RunFolder(tmp_path / "kept").status
    assert (status["state"], status["batch"], status["batches"]) == ("finished", 20, 20)
    fewer = unroll("train", "--resume", tmp_path / "kept", "--batches", 15)
    assert (fewer.code, "already finished after 20 batches" in fewer.err) == (2, True)


def test_a_run_without_a_name_gets_a_folder_that_tells_its_parent(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = unroll("train", "corpus.txt", "--from", run, "--batches", 2, "--threads", 1)
    assert done.code == 0, done.err
    (made,) = (tmp_path / "runs").iterdir()
    assert re.search(r"-from-[0-9a-f]{8}$", made.name)
