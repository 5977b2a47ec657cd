"""A cell run twice: what `exist` and `resume` do with a folder that is there already."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from helpers import check_identical

import unroll
from unroll import Corpus, Experiment, Interrupted, Run, Scheme, Stepped, resume, train
from unroll.base.errors import ConfigurationError, CorpusError, RunError
from unroll.runs.folder import RunFolder

TEXT = Corpus.from_text("to be or not to be, that is the question. " * 100)
TINY = Experiment(scheme=Scheme(k1=5, k2=10), hidden=8, dense=16, rows=4, batches=12, threads=1)


class Enough(Exception):
    """What a user's own function raises."""


def leave_at(batch: int) -> Callable[[unroll.training.events.Event], None]:
    def take(event: unroll.training.events.Event) -> None:
        if isinstance(event, Stepped) and event.batch == batch:
            raise Enough

    return take


def left_at(batch: int, out: Path, experiment: Experiment = TINY) -> None:
    with pytest.raises(Enough):
        train(experiment, out, TEXT, on_event=leave_at(batch))


def weights(run: Run) -> dict[str, unroll.model.model.Tensor]:
    return run.folder.weights()[0]


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(TINY, tmp_path_factory.mktemp("whole") / "run", TEXT)


def test_an_error_in_the_users_function_leaves_the_run_saved_and_resume_ends_as_if_uninterrupted(
    tmp_path: Path, whole: Run
) -> None:
    left_at(7, tmp_path / "run")
    status = RunFolder(tmp_path / "run").status
    assert (status["state"], status["batch"]) == ("interrupted", 7)
    done = resume(tmp_path / "run", corpus=TEXT)
    assert done.status["state"] == "finished"
    check_identical(weights(done), weights(whole))
    assert (tmp_path / "run" / "perplexity.png").is_file()


def test_a_folder_that_is_there_is_refused_with_what_else_can_be_said(tmp_path: Path) -> None:
    left_at(7, tmp_path / "run")
    before = files(tmp_path)
    with pytest.raises(RunError) as refused:
        train(TINY, tmp_path / "run", TEXT)
    words = str(refused.value)
    assert f"unroll.resume({str(tmp_path / 'run')!r})" in words
    assert 'exist="resume"' in words
    assert 'exist="replace"' in words
    assert files(tmp_path) == before


def test_resume_begins_goes_on_and_returns_what_is_finished(tmp_path: Path, whole: Run) -> None:
    with pytest.raises(Enough):
        train(TINY, tmp_path / "run", TEXT, exist="resume", on_event=leave_at(7))
    batches: list[int] = []
    done = train(TINY, tmp_path / "run", TEXT, exist="resume", on_event=lambda event: batches.append(event.batch))
    assert min(batches) >= 7
    check_identical(weights(done), weights(whole))
    before = files(tmp_path)
    batches.clear()
    again = train(TINY, tmp_path / "run", TEXT, exist="resume", on_event=lambda event: batches.append(event.batch))
    assert again.status == done.status
    assert batches == []
    assert files(tmp_path) == before


def test_resume_begins_anew_where_a_run_was_killed_before_it_was_described(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "vocabulary.json").write_text("{}")
    assert train(TINY, tmp_path / "run", TEXT, exist="resume").status["state"] == "finished"


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden": 9}, "hidden was 8, is 9"),
        ({"seed": 1}, "seed was 0, is 1"),
        ({"scheme": Scheme(k1=5, k2=10, sample="progressive")}, "sample was windowed, is progressive"),
        ({"batches": 11}, "batches may only be raised"),
    ],
)
def test_resume_refuses_another_experiment_in_words(
    change: dict[str, object], words: str, finished: bool, tmp_path: Path
) -> None:
    if finished:
        train(TINY, tmp_path / "run", TEXT)
    else:
        left_at(7, tmp_path / "run")
    before = files(tmp_path)
    with pytest.raises(RunError, match=words):
        train(replace(TINY, **change), tmp_path / "run", TEXT, exist="resume")  # type: ignore[arg-type]
    assert files(tmp_path) == before


def test_resume_refuses_another_text(tmp_path: Path) -> None:
    left_at(7, tmp_path / "run")
    with pytest.raises(RunError, match="sha256 was"):
        train(TINY, tmp_path / "run", Corpus.from_text("another text with ten words in it. " * 100), exist="resume")


def test_a_run_that_has_not_ended_may_get_longer_and_one_that_has_may_not(tmp_path: Path) -> None:
    left_at(7, tmp_path / "run")
    longer = train(replace(TINY, batches=14), tmp_path / "run", TEXT, exist="resume")
    assert longer.status["batch"] == 14
    with pytest.raises(RunError, match="has finished after 14 batches, and 20 are asked for"):
        train(replace(TINY, batches=20), tmp_path / "run", TEXT, exist="resume")
    with pytest.raises(RunError, match="already finished"):
        resume(tmp_path / "run", batches=20, corpus=TEXT)


def test_replace_trains_anew_and_deletes_nothing_but_the_run(tmp_path: Path, whole: Run) -> None:
    train(replace(TINY, seed=5), tmp_path / "run", TEXT)
    check_identical(weights(train(TINY, tmp_path / "run", TEXT, exist="replace")), weights(whole))
    left_at(7, tmp_path / "other")
    check_identical(weights(train(TINY, tmp_path / "other", TEXT, exist="replace")), weights(whole))


@pytest.mark.parametrize("where", ["notes.txt", "checkpoints/mine.bin", "checkpoints.txt"])
def test_replace_refuses_a_run_with_files_of_the_users_and_deletes_nothing(where: str, tmp_path: Path) -> None:
    left_at(7, tmp_path / "run")
    (tmp_path / "run" / where).write_text("mine")
    before = files(tmp_path)
    with pytest.raises(RunError, match=rf"no part of a run: {where}\. Nothing was deleted\."):
        train(TINY, tmp_path / "run", TEXT, exist="replace")
    assert files(tmp_path) == before


def test_replace_refuses_what_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "run.toml.txt").write_text("mine")
    with pytest.raises(RunError, match="only a run is replaced"):
        train(TINY, tmp_path / "documents", TEXT, exist="replace")
    assert (tmp_path / "documents" / "run.toml.txt").read_text() == "mine"


@pytest.mark.parametrize("what", ["folder", "file", "checkpoints"])
def test_replace_never_follows_a_link(what: str, tmp_path: Path) -> None:
    left_at(7, tmp_path / "real")
    run = tmp_path / "run"
    if what == "folder":
        run.symlink_to(tmp_path / "real")
    else:
        left_at(7, run)
        name = "metrics.jsonl" if what == "file" else "checkpoints"
        (run / name).rename(tmp_path / "moved")
        (run / name).symlink_to(tmp_path / "moved")
    before = files(tmp_path)
    with pytest.raises(RunError, match="link"):
        train(TINY, run, TEXT, exist="replace")
    assert files(tmp_path) == before


def test_replace_deletes_nothing_for_a_training_that_cannot_be(tmp_path: Path) -> None:
    train(TINY, tmp_path / "run", TEXT)
    before = files(tmp_path)
    with pytest.raises(CorpusError, match="Lower k2="):
        train(replace(TINY, scheme=Scheme(k2=5000)), tmp_path / "run", TEXT, exist="replace")
    assert files(tmp_path) == before


def test_replace_leaves_a_run_alone_that_is_being_trained(tmp_path: Path) -> None:
    left_at(7, tmp_path / "run")
    before = files(tmp_path)
    with RunFolder(tmp_path / "run").locked(), pytest.raises(RunError, match="Another process is training"):
        train(TINY, tmp_path / "run", TEXT, exist="replace")
    assert files(tmp_path) == before


def test_exist_is_one_of_three_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"exist must be one of error, resume, replace\. Got 'overwrite'"):
        train(TINY, tmp_path / "run", TEXT, exist="overwrite")  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_a_run_on_a_text_in_memory_goes_on_with_that_text_and_says_so_without_it(tmp_path: Path) -> None:
    left_at(7, tmp_path / "run")
    with pytest.raises(RunError, match="Give that text, as corpus=") as refused:
        resume(tmp_path / "run")
    assert "--" not in str(refused.value)


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path, whole: Run) -> None:
    def press(event: unroll.training.events.Event) -> None:
        if isinstance(event, Stepped) and event.batch == 7:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted) as interrupted:
        train(TINY, tmp_path / "run", TEXT, on_event=press)
    assert f"Go on with: unroll.resume({str(tmp_path / 'run')!r})" in str(interrupted.value)
    assert interrupted.value.exit_code == 130
    check_identical(weights(resume(tmp_path / "run", corpus=TEXT)), weights(whole))
