"""What people really hand in: one clear message, exit 2, nothing lost, no traceback."""

from __future__ import annotations

import codecs
import json
import os
import shutil
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from commands import TINY, Result, tiny_run, unroll


def check_refused(result: Result, *words: str) -> None:
    """Exit 2 with a message that has these words, and nothing on standard output."""
    assert result.code == 2, (result.code, result.err)
    assert "Traceback" not in result.err
    missing = [word for word in words if word not in result.err]
    assert not missing, f"{missing} not in {result.err!r}"
    assert result.out == ""


@pytest.fixture
def train(tmp_path: Path):
    """Train on a file with this content, into a folder that must not come to be."""

    def go(content: bytes, *options: object) -> Result:
        (tmp_path / "corpus.txt").write_bytes(content)
        result = unroll("train", tmp_path / "corpus.txt", "--batches", 2, *TINY, "--out", tmp_path / "run", *options)
        assert result.code == 0 or not (tmp_path / "run").exists()
        return result

    return go


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("bad"))


TEXT = b"the quick brown fox jumps over the lazy dog\n" * 60


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["is empty"]),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", ["Git-LFS pointer", "git lfs pull"]),
        (b"\n <!DOCTYPE html><html>" + TEXT, ["saved HTML page", "raw text"]),
        (TEXT[:1000] + b"\xe9" + TEXT, ["byte 0xE9 at offset 1,000", "--encoding"]),
        (codecs.BOM_UTF16_LE + TEXT.decode().encode("utf-16-le"), ["UTF-16", "--encoding utf-16"]),
        (b"PK\x03\x04\x00\x00" + TEXT, ["a zip archive, not text", "Unpack it"]),
        (b"PK\x03\x05\x00\x00" + TEXT, ["not text", "NUL character at position 4", "--kind bytes"]),
        (b"ab", ["needs more than k2 = 10 tokens", "Lower --k2"]),
    ],
)
def test_a_corpus_that_is_not_what_it_seems_is_named(train, content: bytes, words: list[str]) -> None:
    check_refused(train(content), *words)


def test_a_corpus_shorter_than_a_batch_needs_says_the_one_limit_that_binds(train) -> None:
    result = train(TEXT[:300], "--k2", 100)
    check_refused(result, "has 30: a corpus needs at least 1,010 tokens, this one has 300")
    assert "train set" not in result.err
    result = train(TEXT[:600], "--rows", 64)
    check_refused(
        result,
        "64 rows of windows of k2 + 1 = 11 tokens need a train set of 641 tokens and have 540",
        "a corpus needs at least 712 tokens, this one has 600",
    )
    assert "test set" not in result.err
    assert train((TEXT * 2)[:712], "--rows", 64).code == 0


def test_a_mark_and_windows_line_ends_are_noted_and_allowed(train) -> None:
    result = train(codecs.BOM_UTF8 + TEXT.replace(b"\n", b"\r\n"))
    assert result.code == 0
    assert "byte-order mark" in result.err
    assert "60 Windows line ends (CRLF)" in result.err


def test_other_encodings_are_read_when_named(train) -> None:
    check_refused(train(TEXT, "--encoding", "klingon"), "klingon")
    assert train("é".encode("latin-1") + TEXT, "--encoding", "latin-1").code == 0


def test_a_text_that_is_no_utf_8_is_refused_with_advice_that_fits_the_command(run: Path, tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"ab\xe9")
    for command in (["eval", run, "--corpus"], ["score", run], ["memorised", run]):
        check_refused(unroll(*command, tmp_path / "latin.txt"), "byte 0xE9 at offset 2", "Convert it, or train with")


def test_a_folder_without_text_is_said(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.png").write_bytes(b"\x89PNG\x00\xff")
    check_refused(unroll("train", tmp_path / "pictures"), "no text", "1 file skipped")


def test_thousands_of_symbols_bring_a_note_and_min_count_helps(train, tmp_path: Path) -> None:
    rare = "".join(chr(0x4E00 + i) for i in range(2000)).encode()
    assert "2,028 different symbols, 2,000 of them fewer than 5 times" in train(TEXT + rare).err
    shutil.rmtree(tmp_path / "run")
    result = train(TEXT + rare, "--min-count", 5)
    assert "2,000 tokens rarer than --min-count 5" in result.err
    assert len(json.loads((tmp_path / "run" / "vocabulary.json").read_text())["symbols"]) == 29


def test_a_misspelt_option_is_answered_with_the_right_one() -> None:
    check_refused(unroll("train", "stdlib", "--hiden", 512), "--hiden", "--hidden")


def test_all_problems_of_the_options_are_listed_at_once() -> None:
    options = ["--k1", 0, "--k2", -3, "--dropout", 1.5, "--hidden", 0, "--learning-rate", "nan", "--cell", "lstn"]
    words = ["k1 must be at least 1. Got 0", "k2 must be at least 1. Got -3", "dropout must be at least 0 and below 1"]
    words += [
        "hidden must be between 1 and 1,000,000. Got 0",
        "learning_rate must be a positive number, at most 1e30. Got nan",
        "Did you mean lstm?",
    ]
    check_refused(unroll("train", "markov", *options), *words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--scheme", 5], ["1, 2, 3 or 4. Got 5"]),
        (["--scheme", 1, "--train", "multi-loss"], ["drop it"]),
        (["--train", "conditionl"], ["Did you mean conditional?"]),
        (["--train", "multi-loss,k3=200"], ["k3 must be between 1 and k2 = 100. Got 200"]),
        (["--train", "multi-loss,k3=x"], ["k3 must be an integer. Got 'x'"]),
        (["--train", "multi-loss,reset=0.5"], ["needs a carried state"]),
        (["--train", "conditional,reset=2"], ["reset must be epoch, never, or a probability"]),
        (["--train", "conditional,decai=linear"], ["Did you mean decay?"]),
        (["--train", "conditional,decay=liner"], ["Did you mean linear?"]),
        (["--scheme", 4, "--shuffle"], ["shuffle needs a learned state"]),
        (["--sample", "progresive"], ["Did you mean progressive?"]),
        (["--preset", "large"], ["--preset must be one of paper, small"]),
        (["--device", "cuda:99"], ["CUDA devices"]),
        (["--device", "abacus"], ["device must be auto, cpu, cuda or cuda:N"]),
        (["--kernel", "magic"], ["kernel must be one of"]),
        (["--seed", -1], ["seed must be between 0 and"]),
        (["--test-tokens", 50], ["test_tokens must be more than k2 = 100. Got 50"]),
        (["--save-every", 0], ["save_every must be at least 1"]),
        (["--train", "multi-loss,k3=2,k3=3"], ["k3 more than once"]),
        (["--train", "conditional,,"], ["a comma with no key behind it"]),
        (["--train", ""], ["A training procedure is one of"]),
        (["--sample", ""], ["sample"]),
        (["--learning-rate", "1e300"], ["at most 1e30"]),
        (["--train", "multi-loss,normalise=yes"], ["normalise stands alone"]),
        (["--sample", "windowed-naive"], ["windowed-naive is windowed"]),
        (["--k1", 10**23], ["k1 must be below 2^31"]),
        (
            ["--rows", 10**23, "--batches", 10**23],
            ["rows must be between 1 and 1,000,000", "batches must be below 2^31"],
        ),
        (["--rows", 10**6], ["1,000,000 rows of windows", "Lower --k2 or --rows"]),
        (["--layers", 10**9], ["layers must be between 1 and 1,000"]),
        (["--k2", 10**9], ["k2 must be at most 1,000,000"]),
        (["--exclude", "x" * 10_000], ["exclude must be at most 4,096 characters in all"]),
        (["--evaluations", 10**9], ["evaluations must be between 2 and 10,000"]),
    ],
)
def test_an_option_out_of_range_names_field_value_and_range(
    options: list[object], words: list[str], tmp_path: Path
) -> None:
    check_refused(unroll("train", "markov", "--out", tmp_path / "run", *options), *words)
    assert not (tmp_path / "run").exists()


def test_a_missing_corpus_and_no_corpus_are_said() -> None:
    check_refused(unroll("train", "stdlb"), "No such file, folder or data set", "Did you mean stdlib?")
    check_refused(unroll("train"), "Give a CORPUS")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--prompt", "abcZ"], ["'Z' (U+005A) at position 3"]),
        (["--prompt", ""], ["The prompt is empty"]),
        (["--temperature", -1, "--top-p", 1.5, "--top-k", 0], ["temperature", "top-p", "top-k"]),
        (["--temperature", "nan"], ["temperature must be a number of at least 0"]),
        (["--length", 0, "--seed", -1], ["length must be at least 1", "seed must be between"]),
        (["--sample", "windowd"], ["Did you mean windowed?"]),
        (["--n", 10**9], ["texts (--n, num_return_sequences) must be between 1 and 1,000,000"]),
        (["--beams", 10**9], ["beams (--beams, num_beams) must be between 1 and 10,000"]),
    ],
)
def test_sample_refuses_with_all_problems(run: Path, options: list[object], words: list[str]) -> None:
    check_refused(unroll("sample", run, *options), *words)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_memory_that_runs_out_is_said_and_is_no_traceback(
    run: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unroll.runs.loaded.load", Mock(side_effect=error))
    result = unroll("eval", run)
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("unroll: Not enough memory")


def test_temperature_0_is_argmax(run: Path) -> None:
    greedy = [unroll("sample", run, "--prompt", "ab", "--temperature", 0, "--seed", seed).out for seed in (1, 2)]
    assert greedy[0] == greedy[1]


def test_an_output_folder_that_exists_is_left_alone(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.iterdir()}
    refused = unroll("train", "markov", "--out", run)
    check_refused(refused, f"{run} exists and is not empty. Choose another folder with --out.")
    assert {path: path.read_bytes() for path in run.iterdir()} == before


def test_a_nearly_full_disk_is_said_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9 - 1000, 1000))
    check_refused(unroll("train", "markov", "--out", tmp_path / "run"), "0 MB free", "--out")
    check_refused(unroll("train", "markov", *TINY, "--out", tmp_path / "run"), "0 MB free; this run may need 1 MB")


def test_resume_with_another_configuration_shows_the_difference_and_refuses(run: Path) -> None:
    result = unroll("train", "--resume", run, "--hidden", 99, "--k1", 3, "--batches", 100)
    check_refused(result, "hidden is 8 in this run; got 99", "--resume needs nothing else")


def test_resume_with_another_corpus_shows_the_difference_and_refuses(run: Path, tmp_path: Path) -> None:
    unfinished = shutil.copytree(run, tmp_path / "unfinished")
    (unfinished / "status.json").write_text('{"state": "interrupted", "batch": 5}')
    other = tmp_path / "other.txt"
    other.write_text("abcdefgh" * 500)
    text = (unfinished / "run.toml").read_text()
    (unfinished / "run.toml").write_text(text.replace("../corpus.txt", str(other)))
    check_refused(unroll("train", "--resume", unfinished), "is not the corpus", "4,000 bytes", "3,000 bytes")
    other.write_text("abcdefgh" * 375)
    check_refused(unroll("train", "--resume", unfinished), "is not the corpus", "it has SHA-256 ", "3,000 tokens")


def test_a_run_that_has_ended_is_no_mistake_but_a_contradiction_is(run: Path) -> None:
    result = unroll("train", "--resume", run, "--json")
    assert result.code == 0
    assert json.loads(result.out)["state"] == "finished"
    check_refused(unroll("train", "--resume", run, "--hidden", 99), "hidden is 8 in this run; got 99")
    check_refused(unroll("train", "--resume", run, "--k1", 77), "--resume needs nothing else")


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    check_refused(unroll("data", "info", "/proc/self/mem"), "/proc/self/mem cannot be read")


def test_a_name_that_hides_a_file_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "copy").write_text("mine")
    assert "for your own file write ./copy" in unroll("data", "info", "copy").err
    assert json.loads(unroll("data", "info", "./copy", "--json").out)["tokens"] == 4


def test_a_file_of_samples_is_never_written_over(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "drawn.txt"
    assert unroll("sample", run, "--prompt", "abc", "--length", 5, "--out", out).code == 0
    before = out.read_bytes()
    check_refused(unroll("sample", run, "--prompt", "abc", "--length", 5, "--seed", 2, "--out", out), "exists")
    assert out.read_bytes() == before
    check_refused(unroll("sample", run, "--prompt", "abc", "--out", tmp_path / "no" / "where.txt"), "is no folder")


def test_what_is_no_run_is_said(tmp_path: Path, run: Path) -> None:
    pickle = tmp_path / "model.pt"
    pickle.write_bytes(b"\x80\x04.")
    for command in ("eval", "sample"):
        check_refused(unroll(command, pickle), "pickle, which can run code")
        check_refused(unroll(command, tmp_path), "run.toml is missing")
        check_refused(unroll(command, tmp_path / "nothing"), "not a run folder")
        check_refused(unroll(command, run, "--device", "cuda:99"), "CUDA devices")
    check_refused(unroll("train", "--resume", tmp_path), "run.toml is missing")


def test_unknown_keys_and_wrong_types_of_a_configuration_are_all_listed(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    text = (copy / "run.toml").read_text()
    (copy / "run.toml").write_text(text.replace("hidden = 8", 'hiden = 8\nlayers = "two"\ndropout = true', 1))
    check_refused(unroll("eval", copy), "not valid TOML")
    text = text.replace("layers = 1\nhidden = 8", 'layers = "two"\nhiden = 8').replace(
        "dropout = 0.0", "dropout = true"
    )
    (copy / "run.toml").write_text(text)
    check_refused(
        unroll("eval", copy), "'hiden'. Did you mean hidden?", "layers under [model]", "dropout under [model]"
    )


def test_a_test_symbol_not_seen_in_training_is_named_with_its_position(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("abc" * 50 + "X" + "abc" * 50)
    check_refused(unroll("eval", run, "--corpus", other), "'X' (U+0058) at position 150")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names of files are text")
def test_a_corpus_whose_name_is_no_utf_8_is_refused_before_there_is_a_folder(tmp_path: Path) -> None:
    text = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt"))
    text.write_text("to be or not to be, that is the question. " * 100)
    for command in ("train", "sweep"):
        out = tmp_path / command
        check_refused(unroll(command, text, "--out", out, "--hidden", 8, "--batches", 2), "UTF-8", "another name")
        assert not out.exists()
    assert unroll("data", "info", text).code == 0


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names of files are text")
def test_a_report_on_a_folder_whose_name_is_no_utf_8_is_written(run: Path, tmp_path: Path) -> None:
    named = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    shutil.copytree(run, named)
    made = unroll("report", named, "--out", tmp_path / "page.html")
    assert made.code == 0, made.err
    assert "caf" in (tmp_path / "page.html").read_text("utf-8")
