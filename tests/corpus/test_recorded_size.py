"""A run from a stranger may name any path as its corpus: what cannot be its text is refused before it is read."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from commands import TINY, tiny_run, unroll
from midi_files import midi, on

import unroll as package
from unroll.corpus import folders, recorded_size
from unroll.experiment.experiment import read_toml
from unroll.runs.folder import RunFolder

pytestmark = pytest.mark.usefixtures("alarm")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("recorded"))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The corpus files that are opened for their content."""
    seen: list[str] = []
    plain = folders.open_file
    monkeypatch.setattr(folders, "open_file", lambda path: seen.append(os.fspath(path)) or plain(path))
    return seen


def strangers(finished: Path, folder: Path, **corpus: object) -> Path:
    """A copy of a run with other lines under [corpus]; None leaves a line out, as older versions did."""
    copy = folder / "run"
    shutil.copytree(finished, copy)
    text = (copy / "run.toml").read_text()
    for name, value in corpus.items():
        written = f'"{value}"' if isinstance(value, str) else value
        text, times = re.subn(rf"(?m)^{name} = .*\n", "" if value is None else f"{name} = {written}\n", text)
        assert times == 1
    (copy / "run.toml").write_text(text)
    return copy


OLD = {"files": None, "bytes": None}
CLAIMS = {
    "as it was": {},
    "by an older version": OLD,
    "negative": {"files": -1, "bytes": -(10**30)},
    "endless": {"files": 10**12, "bytes": 10**30, "tokens": 10**15},
}
COMMANDS = (["eval"], ["sample", "--length", "5"], ["memorised"], ["drift"])


@pytest.mark.parametrize("claim", list(CLAIMS))
@pytest.mark.parametrize("source", ["/dev", "/dev/zero", "/dev/tty", "/proc/kmsg", "/proc/tty", "/proc/self/mem"])
def test_places_that_hold_no_text_are_refused_at_once(
    finished: Path, tmp_path: Path, opened: list[str], source: str, claim: str
) -> None:
    copy = strangers(finished, tmp_path, source=source, **CLAIMS[claim])
    result = unroll("eval", copy)
    assert result.code == 2
    assert f"The corpus of {copy} is not at hand" in result.err
    assert [path for path in opened if path != source] == []


@pytest.mark.parametrize("claim", ["as it was", "by an older version"])
@pytest.mark.parametrize("source", ["/", "/proc", "/sys", "/usr"])
def test_large_folders_are_refused_before_anything_in_them_is_read(
    finished: Path, tmp_path: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch, source: str, claim: str
) -> None:
    monkeypatch.setattr(recorded_size, "NAMES", 100)  # any machine has as many
    copy = strangers(finished, tmp_path, source=source, **CLAIMS[claim])
    (tmp_path / "text.txt").write_text("abc")
    for command, *options in COMMANDS:
        text = [tmp_path / "text.txt"] if command == "memorised" else []
        result = unroll(command, copy, *text, *options)
        assert result.code == 2, command
        assert f"The corpus of {copy} is not at hand" in result.err
    assert set(opened) == {str(tmp_path / "text.txt")}


def test_a_folder_that_has_too_little_is_refused_before_anything_in_it_is_read(
    finished: Path, tmp_path: Path, opened: list[str]
) -> None:
    (tmp_path / "folder").mkdir()
    for number in range(10):
        (tmp_path / "folder" / f"{number}.txt").write_text("text " * 100)
    claims = {"files": 10, "bytes": 10**12}
    result = unroll("eval", strangers(finished, tmp_path, source=str(tmp_path / "folder"), **claims))
    assert result.code == 2
    assert "it has at most 5,000 bytes in 10 files, the run had 1,000,000,000,000 bytes in 10 files" in result.err
    assert opened == []


@pytest.mark.parametrize("claim", ["as it was", "by an older version", "negative"])
@pytest.mark.parametrize("name", ["corpus.txt", "corpus.mid"])
def test_a_sparse_file_is_not_read(finished: Path, tmp_path: Path, opened: list[str], name: str, claim: str) -> None:
    with open(tmp_path / name, "wb") as file:
        file.truncate(2**40)
    copy = strangers(finished, tmp_path, source=str(tmp_path / name), kind="bytes", **CLAIMS[claim])
    result = unroll("eval", copy)
    assert result.code == 2
    assert "is not the corpus that this run was trained on: it has 1,099,511,627,776 bytes in 1 file" in result.err
    assert opened == []


def test_a_file_without_an_end_that_has_no_size_is_read_no_further_than_the_run_can_have_read(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "/proc/self/pagemap"  # of 256 gigabytes and more, and the system says 0
    assert os.stat(source).st_size == 0
    monkeypatch.setattr(recorded_size, "BYTES", 1 << 20)
    copy = strangers(finished, tmp_path, source=source, kind="bytes", **OLD)
    result = unroll("eval", copy)
    assert result.code == 2
    assert "it has more than 1,348,576 bytes, the run had 3,000 tokens" in result.err


def test_patterns_without_an_end_are_refused(finished: Path, tmp_path: Path, opened: list[str]) -> None:
    copy = strangers(finished, tmp_path, source=str(tmp_path), exclude=["*a*"] * 2_000)
    result = unroll("eval", copy)
    assert result.code == 2
    assert "exclude must be at most 4,096 characters in all" in result.err
    assert opened == []


def test_an_unfinished_run_is_resumed_within_the_same_limits(tmp_path: Path, opened: list[str]) -> None:
    (tmp_path / "corpus.txt").write_text("to be or not to be " * 100)
    out = tmp_path / "run"
    events = package.train_fleet(
        [package.Experiment(corpus=str(tmp_path / "corpus.txt"), batches=5, hidden=8, dense=8, rows=4,
                            scheme=package.Scheme(k1=5, k2=10))],
        [package.Corpus.open(str(tmp_path / "corpus.txt"))], [out], save_every=1,
    )  # fmt: skip
    for event in events:
        if event.learner.count == 2:
            break
    events.close()
    assert read_toml((out / "run.toml").read_text()).bytes == 1900
    text = (out / "run.toml").read_text()
    opened.clear()
    for source in ("/dev", "/proc/tty", str(tmp_path)):
        (out / "run.toml").write_text(re.sub('source = ".*"', f'source = "{source}"', text))
        result = unroll("train", "--resume", out)
        assert result.code == 2
        assert "Traceback" not in result.err
    (out / "run.toml").write_text(text)
    assert unroll("train", "--resume", out, "-q").code == 0


# --- what is the run's own corpus is read, and what became of it is said ----------------------------------------------


@pytest.fixture
def trained(tmp_path: Path) -> tuple[Path, Path]:
    """A run on a folder of two texts and a picture."""
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("to be or not to be " * 60)
    (folder / "b.txt").write_text("that is the question " * 60)
    (folder / "c.png").write_bytes(b"\x89PNG\0")
    assert unroll("train", folder, "--batches", 3, "--out", tmp_path / "run", "-q", *TINY).code == 0
    return tmp_path / "run", folder


def test_a_run_records_how_many_files_and_bytes_its_corpus_had(trained: tuple[Path, Path]) -> None:
    written = read_toml((trained[0] / "run.toml").read_text())
    experiment = replace(written, corpus=str(trained[1]))
    assert written.corpus == "../texts"
    assert (experiment.files, experiment.bytes, experiment.tokens) == (2, 2400, 2400)
    assert RunFolder(trained[0]).experiment == experiment


@pytest.mark.parametrize("claim", ["as it was", "by an older version", "negative"])
def test_the_runs_own_folder_is_read_whatever_else_comes_into_it(
    trained: tuple[Path, Path], tmp_path: Path, claim: str
) -> None:
    ours, folder = trained
    (folder / "d.png").write_bytes(b"\x89PNG\0" * 10_000)
    (folder / ".hidden").write_text("text")
    os.mkfifo(folder / "pipe")
    (tmp_path / "from").mkdir()
    assert unroll("eval", strangers(ours, tmp_path / "from", **CLAIMS[claim])).code == 0


@pytest.mark.parametrize("change", ["grown", "shrunk", "another file", "a file less"])
def test_a_folder_that_grew_or_shrank_is_another_text_and_that_is_said(trained: tuple[Path, Path], change: str) -> None:
    ours, folder = trained
    if change == "grown":
        (folder / "a.txt").write_text("to be or not to be " * 61)
    if change == "shrunk":
        (folder / "a.txt").write_text("to be or not to be " * 59)
    if change == "another file":
        (folder / "ab.txt").write_text("text")
    if change == "a file less":
        (folder / "a.txt").unlink()
    result = unroll("eval", ours)
    assert result.code == 2
    assert f"{folder} is not the corpus that this run was trained on: it has " in result.err
    assert "the run had 2,400 bytes in 2 files. Bring that text back" in result.err


def test_another_text_of_the_same_size_is_known_by_its_hash(trained: tuple[Path, Path]) -> None:
    ours, folder = trained
    (folder / "a.txt").write_text("to be or not to bee" * 60)
    result = unroll("eval", ours)
    assert result.code == 2
    assert "holds another text now" in result.err


def test_what_a_user_names_has_no_limits(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NAMES", "NAMES_A_FILE", "BYTES", "BYTES_A_TOKEN"):
        monkeypatch.setattr(recorded_size, name, 0)
    (tmp_path / "longer.txt").write_text("abcabc" * 10_000)
    assert unroll("eval", finished, "--corpus", tmp_path / "longer.txt").code == 0


def test_a_run_on_music_finds_its_folder_again(tmp_path: Path) -> None:
    folder = tmp_path / "tunes"
    folder.mkdir()
    for number in range(3):
        notes = [on(480, 60 + (7 * number + n) % 12) for n in range(120)]
        (folder / f"{number}.mid").write_bytes(midi(notes))
    assert unroll("train", folder, "--batches", 3, "--out", tmp_path / "run", "-q", *TINY).code == 0
    assert read_toml((tmp_path / "run" / "run.toml").read_text()).files == 3
    assert unroll("eval", tmp_path / "run").code == 0
    (folder / "3.mid").write_bytes((folder / "0.mid").read_bytes()[:-5])
    assert "is not the corpus that this run was trained on" in unroll("eval", tmp_path / "run").err


def test_a_run_on_one_piece_of_music_finds_it_again(tmp_path: Path) -> None:
    (tmp_path / "tune.mid").write_bytes(midi([on(480, 60 + 5 * n % 12) for n in range(300)]))
    assert unroll("train", tmp_path / "tune.mid", "--batches", 3, "--out", tmp_path / "run", "-q", *TINY).code == 0
    assert unroll("eval", tmp_path / "run").code == 0


@pytest.mark.parametrize("source", ["stdlib", "markov"])
def test_a_named_corpus_is_found_again(tmp_path: Path, source: str) -> None:
    options = ["--batches", 2, "--out", tmp_path / "run", "-q", "--test-tokens", 50, *TINY]
    assert unroll("train", source, *options).code == 0
    assert unroll("eval", tmp_path / "run", "--test-tokens", 50).code == 0
