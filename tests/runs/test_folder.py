"""A run's folder is believed only where it is whole: damage, half copies, other runs' files and hostile contents."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import killing
import pytest
from helpers import tiny, tiny_corpus
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from killing import PROCEDURES, results, uninterrupted

import unroll
from unroll.base import atomic_files
from unroll.base.errors import RunError, SaveError
from unroll.corpus.tokens import Vocabulary
from unroll.runs import folder as folder_module
from unroll.runs import metric_lines
from unroll.runs.folder import RunFolder
from unroll.training import preflight
from unroll.training.events import Event, Stepped, Warned
from unroll.training.loop import train_fleet

PROCEDURE = "conditional"
OLDER, NEWER = 18, 21
NEWEST = f"checkpoints/batch-{NEWER:09d}.safetensors"


@pytest.fixture(scope="module")
def _half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("half")
    killing.train_until(PROCEDURE, folder, NEWER)
    return folder


@pytest.fixture(scope="module")
def _whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    killing.train(PROCEDURE, folder)
    return folder


@pytest.fixture
def half(_half: Path, tmp_path: Path) -> Path:
    """The folder of a run that lost its machine after batch 21."""
    return copy(_half, tmp_path / "half")


@pytest.fixture
def whole(_whole: Path, tmp_path: Path) -> Path:
    """The folder of a finished run."""
    return copy(_whole, tmp_path / "whole")


def copy(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    return killing.outs(target, PROCEDURE)[0]


def resume(out: Path) -> list[Event]:
    return killing.train(PROCEDURE, out.parent, resume=True)


def start(events: list[Event]) -> int:
    return killing.BATCHES - sum(isinstance(e, Stepped) for e in events)


def warnings(events: list[Event]) -> list[str]:
    return [e.message for e in events if isinstance(e, Warned)]


def contents(out: Path) -> dict[str, bytes]:
    return {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_loading_a_run_parses_each_of_its_files_once(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    from_json, read_toml = Vocabulary.from_json, folder_module.read_toml

    def vocabulary(text: str, where: str) -> Vocabulary:
        parsed.append(where)
        return from_json(text, where)

    def experiment(text: str, where: str) -> unroll.Experiment:
        parsed.append(where)
        return read_toml(text, where)

    monkeypatch.setattr(Vocabulary, "from_json", vocabulary)
    monkeypatch.setattr(folder_module, "read_toml", experiment)
    unroll.load(whole, "cpu")
    assert [parsed.count(str(whole / name)) for name in ("vocabulary.json", "run.toml")] == [1, 1]


def test_a_folder_sees_that_a_file_was_changed_on_the_disk(whole: Path) -> None:
    folder = RunFolder(whole)
    changed = replace(folder.experiment, title="another name")
    RunFolder(whole).experiment = changed
    assert folder.experiment == changed


@pytest.mark.parametrize("name", ["status.json", "metrics.jsonl"])
def test_a_changed_clock_of_a_finished_run_is_noticed_though_its_weights_hold_none(whole: Path, name: str) -> None:
    _, facts = RunFolder(whole).weights()
    assert not {"seconds", "evaluating"} & set(facts)
    text = (whole / name).read_text()
    at = text.index('"seconds": ') + len('"seconds": ')
    (whole / name).write_text(f"{text[:at]}1{text[at:]}")
    with pytest.raises(RunError, match="its clocks were changed"):
        _ = RunFolder(whole).metrics


def test_the_last_two_checkpoints_are_kept_and_a_finished_run_has_none(half: Path) -> None:
    assert RunFolder(half).checkpoints() == [OLDER, NEWER]
    resume(half)
    assert sorted(contents(half)) == [
        "best.safetensors",
        "metrics.jsonl",
        "run.toml",
        "status.json",
        "vocabulary.json",
        "weights.safetensors",
    ]
    assert not (half / "checkpoints").exists()


@pytest.mark.parametrize("place", [0, 20, 200, -200, -1], ids=["length", "facts", "header", "tensor", "last byte"])
def test_a_flipped_bit_in_the_newest_checkpoint_is_told_and_the_one_before_gives_the_same_run(
    half: Path, place: int
) -> None:
    flip(half / NEWEST, place)
    events = resume(half)
    assert start(events) == OLDER
    (warning,) = warnings(events)
    assert str(half / NEWEST) in warning
    assert "damaged" in warning
    assert results(half.parent, PROCEDURE) == uninterrupted(PROCEDURE)


@pytest.mark.parametrize("kept", [0, 5, 100, -1])
def test_a_truncated_newest_checkpoint_is_told_and_the_one_before_gives_the_same_run(half: Path, kept: int) -> None:
    (half / NEWEST).write_bytes((half / NEWEST).read_bytes()[:kept])
    events = resume(half)
    assert start(events) == OLDER
    assert "damaged" in warnings(events)[0]
    assert results(half.parent, PROCEDURE) == uninterrupted(PROCEDURE)


def test_a_damaged_older_checkpoint_does_not_matter(half: Path) -> None:
    flip(half / f"checkpoints/batch-{OLDER:09d}.safetensors", -1)
    assert start(resume(half)) == NEWER


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), truncate=st.booleans())
def test_damaged_weights_are_never_loaded(whole: Path, share: float, bit: int, truncate: bool) -> None:
    path = whole / "weights.safetensors"
    content = path.read_bytes()
    damaged = bytearray(content)
    place = int(share * len(content))
    damaged[place] ^= 1 << bit
    path.write_bytes(content[:place] if truncate else damaged)
    with pytest.raises(RunError, match="damaged"):
        unroll.load(whole)
    path.write_bytes(content)
    assert unroll.load(whole).status["state"] == "finished"


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        (["run.toml"], "run.toml is missing"),
        (["vocabulary.json"], "vocabulary.json is missing"),
        (["status.json"], "status.json is missing"),
        (["metrics.jsonl"], "metrics.jsonl has 0 bytes, fewer than"),
        (["checkpoints"], "No whole checkpoint"),
        ([NEWEST, f"checkpoints/batch-{OLDER:09d}.safetensors"], "No whole checkpoint"),
    ],
)
def test_a_half_copied_run_is_refused_by_the_missing_files_name_and_nothing_is_touched(
    half: Path, missing: list[str], told: str
) -> None:
    for name in missing:
        shutil.rmtree(half / name) if (half / name).is_dir() else (half / name).unlink()
    before = contents(half)
    with pytest.raises(RunError, match=told):
        resume(half)
    assert contents(half) == before


def test_a_run_whose_newest_checkpoint_was_not_copied_goes_on_from_the_one_before(half: Path) -> None:
    (half / NEWEST).unlink()
    assert start(resume(half)) == OLDER
    assert results(half.parent, PROCEDURE) == uninterrupted(PROCEDURE)


def test_metrics_cut_short_send_the_run_to_the_checkpoint_that_counts_no_more_of_them(half: Path) -> None:
    counted = {b: int(RunFolder(half).checkpoint(b).facts["metrics_bytes"]) for b in (OLDER, NEWER)}
    assert counted[OLDER] < counted[NEWER]
    with open(half / "metrics.jsonl", "r+b") as file:
        file.truncate(counted[NEWER] - 10)
    events = resume(half)
    assert start(events) == OLDER
    assert "metrics.jsonl" in warnings(events)[0]
    assert results(half.parent, PROCEDURE) == uninterrupted(PROCEDURE)


def test_weights_are_read_also_where_the_metrics_are_gone_and_resume_says_which_file_is_missing(half: Path) -> None:
    (half / "metrics.jsonl").unlink()
    assert unroll.load(half).metrics == []
    with pytest.raises(RunError, match="Bring back what is missing") as caught:
        resume(half)
    assert all("metrics.jsonl has 0 bytes" in problem for problem in caught.value.problems[:2])


def test_where_no_checkpoint_is_whole_loading_says_why(half: Path) -> None:
    for path in (half / "checkpoints").iterdir():
        flip(path, -1)
    with pytest.raises(RunError, match=r"neither weights\.safetensors nor a whole checkpoint") as caught:
        unroll.load(half)
    assert sum("damaged" in problem for problem in caught.value.problems) == 2


def test_two_damaged_checkpoints_are_told_and_nothing_is_begun_again_behind_the_users_back(half: Path) -> None:
    for path in (half / "checkpoints").iterdir():
        flip(path, -1)
    before = contents(half)
    with pytest.raises(RunError, match="No whole checkpoint") as caught:
        resume(half)
    assert len(caught.value.problems) == 3
    assert contents(half) == before


def test_metrics_lines_after_the_checkpoint_are_cut_back_and_said_again(half: Path) -> None:
    with open(half / "metrics.jsonl", "a") as file:
        _, last = metric_lines.read((half / "metrics.jsonl").read_bytes())
        line = {"batch": 99, "sequences": 1, "loss": None, "perplexity": {}, "seconds": 1}
        file.write(metric_lines.write(last, line) + '\n{"batch": 1')
    assert RunFolder(half).metrics[-1] == line  # the line that a crash cut off is left out
    resume(half)
    assert results(half.parent, PROCEDURE) == uninterrupted(PROCEDURE)


@pytest.mark.parametrize(
    "missing", ["run.toml", "vocabulary.json", "status.json", "metrics.jsonl", "weights.safetensors"]
)
def test_a_half_copied_finished_run_is_not_loaded_and_the_file_is_named(whole: Path, missing: str) -> None:
    (whole / missing).unlink()
    with pytest.raises(RunError, match=missing):
        unroll.load(whole)


def test_a_finished_run_with_metrics_cut_short_is_not_loaded(whole: Path) -> None:
    lines = (whole / "metrics.jsonl").read_bytes()
    (whole / "metrics.jsonl").write_bytes(lines[: len(lines) // 2])
    with pytest.raises(RunError, match=r"metrics.jsonl ends at batch \d+, but the run finished after 40"):
        unroll.load(whole)


def test_a_run_killed_before_its_checkpoints_were_dropped_drops_them_when_resumed(whole: Path) -> None:
    RunFolder(whole).save(40, {}, {})
    resume(whole)
    assert results(whole.parent, PROCEDURE) == uninterrupted(PROCEDURE)


def test_a_fleet_with_one_damaged_checkpoint_goes_back_together(tmp_path: Path) -> None:
    fleet = "fleet of three"
    killing.train_until(fleet, tmp_path, NEWER)
    flip(killing.outs(tmp_path, fleet)[1] / NEWEST, -1)
    events = killing.train(fleet, tmp_path, resume=True)
    assert start(events) == OLDER
    assert results(tmp_path, fleet) == uninterrupted(fleet)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"seed": 6}, "seed was 5"),
        ({"hidden": 7}, "hidden was 6"),
        ({"batches": 30}, "batches may only be raised"),
        ({"scheme": replace(PROCEDURES[PROCEDURE][0].scheme, k1=5)}, "k1 was 4, is 5"),
    ],
)
def test_another_configuration_is_refused_with_the_difference_and_run_toml_is_untouched(
    half: Path, change: dict[str, Any], told: str
) -> None:
    before = contents(half)
    with pytest.raises(RunError, match=told):
        killing.train(PROCEDURE, half.parent, resume=True, **change)
    assert contents(half) == before


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("learning_rate", "0.5", "learning_rate was 0.01, is 0.5"),
        ("seed", "6", "seed was 5, is 6"),
        ("k1", "5", "k1 was 4, is 5"),
        ("batches", "30", "batches may only be raised: it was 40, is 30"),
        ("test_tokens", "20", "test_tokens was None, is 20"),
    ],
)
def test_a_run_toml_that_was_changed_by_hand_is_refused_on_resume_and_told_where_weights_are_read(
    half: Path, setting: str, value: str, told: str
) -> None:
    toml = half / "run.toml"
    text = re.sub(rf"(?m)^{setting} = .*\n", "", toml.read_text())
    table = {"learning_rate": "optimiser", "k1": "scheme", "test_tokens": "evaluation"}.get(setting, "training")
    toml.write_text(text.replace(f"[{table}]\n", f"[{table}]\n{setting} = {value}\n"))
    changed = RunFolder(half).experiment
    before = contents(half)
    with pytest.raises(RunError, match=told):
        list(train_fleet([changed], killing.corpora(PROCEDURE), [half], resume=True))
    assert contents(half) == before
    assert any(told in note for note in unroll.load(half).notes)


def test_another_corpus_is_refused(half: Path) -> None:
    other = killing.corpora("fleet of three")[1]
    with pytest.raises(RunError, match="sha256 was"):
        list(train_fleet(PROCEDURES[PROCEDURE], [other], [half], resume=True))


def test_a_longer_run_may_be_resumed(half: Path) -> None:
    killing.train(PROCEDURE, half.parent, resume=True, batches=50)
    assert RunFolder(half).status["batch"] == 50
    assert RunFolder(half).experiment.batches == 50


def test_a_finished_run_is_not_trained_again(whole: Path) -> None:
    with pytest.raises(RunError, match="has already finished after 40 batches"):
        preflight.resume(whole)


def test_a_folder_with_anything_in_it_is_not_written_over(whole: Path) -> None:
    before = contents(whole)
    with pytest.raises(RunError, match=r"exists and is not empty\. Choose another folder with out="):
        killing.train(PROCEDURE, whole.parent)
    assert contents(whole) == before


def test_a_checkpoint_of_another_model_or_under_another_name_is_refused(half: Path) -> None:
    tensors, facts = atomic_files.unseal(half / NEWEST)
    (half / NEWEST).write_bytes(atomic_files.seal(tensors, facts | {"batch": "20"}))
    with pytest.raises(RunError, match="is the checkpoint of batch 20, whatever its name says"):
        RunFolder(half).checkpoint(NEWER)
    (half / NEWEST).write_bytes(atomic_files.seal(tensors, {"batch": str(NEWER)}))
    with pytest.raises(RunError, match="is no checkpoint"):
        RunFolder(half).checkpoint(NEWER)
    del tensors["out.b"]
    (half / NEWEST).write_bytes(atomic_files.seal(tensors, facts))
    with pytest.raises(RunError, match="another model's"):
        resume(half)


def test_a_stray_file_among_the_checkpoints_does_no_harm_and_none_of_somebody_elses_is_deleted(half: Path) -> None:
    foreign = {"batch-99.safetensors", "notes", "batch-٣٣٣٣٣٣٣٣٣.safetensors", "mine.partial"}
    for name in ("batch-000000099.safetensors", "batch-000000024.safetensors.partial", *foreign):
        (half / "checkpoints" / name).write_bytes(b"?")
    assert start(resume(half)) == NEWER
    assert {path.name for path in (half / "checkpoints").iterdir()} == foreign
    shutil.rmtree(half / "checkpoints")
    assert results(half.parent, PROCEDURE) == uninterrupted(PROCEDURE)


def test_a_run_folder_that_vanishes_ends_in_one_line(tmp_path: Path) -> None:
    events = killing.follow(PROCEDURE, tmp_path)
    next(events)
    shutil.rmtree(tmp_path / "run0")
    with pytest.raises(SaveError, match="run0"):
        list(events)


def test_a_run_of_a_text_in_memory_says_so_when_it_is_asked_for_its_text(tmp_path: Path) -> None:
    run = unroll.train(tiny(batches=1), tmp_path / "run", tiny_corpus())
    with pytest.raises(RunError, match=r"is not at hand.*trained on a text that was in memory only"):
        unroll.perplexity(run)
