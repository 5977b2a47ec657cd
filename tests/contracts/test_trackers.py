"""Trackers: what each has of a run is what metrics.jsonl has, after any kill, and one that fails costs a note."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from commands import TINY, unroll
from helpers import tiny, tiny_corpus
from standing_in import standing_in
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import unroll as package
from unroll.base import plugins
from unroll.base.errors import ConfigurationError, RunError
from unroll.corpus.synthetic import Markov
from unroll.runs.folder import RunFolder
from unroll.runs.tracker_files import EVENTS
from unroll.training import following, trackers
from unroll.training.loop import train_fleet

Points = dict[str, list[tuple[int, float]]]


@pytest.fixture
def tools() -> Iterator[SimpleNamespace]:
    """wandb and mlflow, which stand in for the real ones."""
    with standing_in() as modules:
        yield modules


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(plugins, "_registered", {})


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text(Markov().text(3000))
    return path


def on_disk(run: Path) -> Points:
    """The points of metrics.jsonl."""
    found: Points = {}
    for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()):
        for name, value in trackers.points({k: v for k, v in line.items() if k != "chain"}).items():
            found.setdefault(name, []).append((line["batch"], value))
    return found


def in_32_bits(points: Points) -> Points:
    return {name: [(step, float(np.float32(value))) for step, value in own] for name, own in points.items()}


def in_tensorboard(run: Path) -> Points:
    """What TensorBoard's own reader reads, all of it."""
    reader = EventAccumulator(str(run / EVENTS), size_guidance={"scalars": 0})
    reader.Reload()
    return {tag: [(event.step, event.value) for event in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}


def in_wandb(wandb: Any) -> Points:
    """What the only run in wandb has."""
    (run,) = wandb.RUNS.values()
    found: Points = {}
    for step, data in run["points"]:
        for name, value in data.items():
            found.setdefault(name, []).append((step, value))
    return found


def in_mlflow(mlflow: Any) -> Points:
    """What the only run in MLflow has."""
    (run,) = mlflow.RUNS.values()
    return {name: [(point.step, point.value) for point in own] for name, own in run["metrics"].items()}


def train(corpus: Path, out: Path, *options: object) -> str:
    result = unroll("train", corpus, "--batches", 12, *TINY, "--out", out, *options)
    assert result.code == 0, result.err
    return result.err


def leave(out: Path, track: str, batch: int, save_every: int = 4) -> None:
    """Train until a batch is through, and let go without a word, as a kill does: nothing after it is told."""
    experiment = tiny(batches=14)
    events = train_fleet([experiment], [tiny_corpus()], [out], save_every=save_every, track=track)
    with closing(events):
        for event in events:
            if event.learner.count == batch:
                break


# --- the same points ------------------------------------------------------------------------------------------------


def test_tensorboards_own_reader_reads_the_points_of_metrics_jsonl(corpus: Path, tmp_path: Path) -> None:
    train(corpus, tmp_path / "run", "--track", "tensorboard", "--validation", 300, "--schedule", "cosine")
    points = in_tensorboard(tmp_path / "run")
    assert points == in_32_bits(on_disk(tmp_path / "run"))
    assert {"loss", "perplexity/windowed", "validation/windowed", "learning_rate", "sequences"} <= points.keys()
    assert [step for step, _ in points["loss"]] == [1, 2, 3, 4, 5, 7, 9, 11, 12]
    reader = EventAccumulator(str(tmp_path / "run" / EVENTS)).Reload()
    (settings,) = reader.Tensors("settings")
    table = settings.tensor_proto.string_val[0].decode()
    assert "| training.batches | `12` |" in table
    assert str(tmp_path) not in table


def test_wandb_and_mlflow_are_told_the_points_of_metrics_jsonl(
    corpus: Path, tmp_path: Path, tools: SimpleNamespace
) -> None:
    said = train(corpus, tmp_path / "run", "--track", "wandb,mlflow")
    assert "given up" not in said
    assert in_wandb(tools.wandb) == in_mlflow(tools.mlflow) == on_disk(tmp_path / "run")
    ((key, there),) = tools.wandb.RUNS.items()
    assert (there["name"], there["group"], there["project"]) == ("run", None, "unroll")
    assert there["config"]["training.batches"] == 12
    assert there["ended"] == (0, {"state": "finished"})
    (kept,) = tools.mlflow.RUNS.values()
    assert (kept["name"], kept["status"], kept["tags"]) == ("run", "FINISHED", {"unroll.run": key})
    assert kept["params"]["training.batches"] == "12"
    assert key not in (tmp_path / "run" / "tracking.json").read_text()


def test_after_a_kill_and_a_resume_no_point_is_doubled_and_none_is_missing(
    tmp_path: Path, tools: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = "tensorboard,wandb,mlflow"
    run = tmp_path / "run"
    leave(run, names, 12)
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    checkpoints = sorted((run / "checkpoints").iterdir())
    # As after kill -9 at batch 12: the newest checkpoint is of batch 8, and the lines and points after it are there.
    checkpoints[-1].unlink()
    assert [json.loads(line)["batch"] for line in lines] == [1, 2, 3, 4, 5, 7, 9, 11]
    (old,) = (run / EVENTS).iterdir()
    ended = package.resume(run, corpus=tiny_corpus(), track=names)
    assert ended.status["state"] == "finished"
    stand = on_disk(run)
    assert [step for step, _ in stand["loss"]] == [1, 2, 3, 4, 5, 7, 9, 11, 14]
    assert in_tensorboard(run) == in_32_bits(stand)
    assert old.stat().st_size == 0
    assert len(list((run / EVENTS).iterdir())) == 2
    apart = {name: own for name, own in stand.items() if name != "seconds"}  # clocks of points told before are older
    for points in (in_wandb(tools.wandb), in_mlflow(tools.mlflow)):
        assert {name: own for name, own in points.items() if name != "seconds"} == apart
        assert [step for step, _ in points["seconds"]] == [step for step, _ in stand["seconds"]]


def test_a_tensorboard_that_is_open_forgets_the_points_of_the_file_before(tmp_path: Path) -> None:
    run = tmp_path / "run"
    leave(run, "tensorboard", 12)
    reader = EventAccumulator(str(run / EVENTS), size_guidance={"scalars": 0})
    assert len(reader.Reload().Scalars("loss")) == 8
    sorted((run / "checkpoints").iterdir())[-1].unlink()
    package.resume(run, corpus=tiny_corpus(), track="tensorboard")
    reader.Reload()
    points = [(event.step, event.value) for event in reader.Scalars("loss")]
    assert points == in_32_bits(on_disk(run))["loss"]


def test_a_run_that_has_ended_is_told_whole(corpus: Path, tmp_path: Path, tools: SimpleNamespace) -> None:
    train(corpus, tmp_path / "run")
    before = (tmp_path / "run" / "weights.safetensors").stat().st_mtime_ns
    for _ in range(2):  # told again, nothing is doubled
        result = unroll("train", "--resume", tmp_path / "run", "--track", "tensorboard,mlflow")
        assert (result.code, "given up" in result.err) == (0, False)
    assert in_tensorboard(tmp_path / "run") == in_32_bits(on_disk(tmp_path / "run"))
    assert in_mlflow(tools.mlflow) == on_disk(tmp_path / "run")
    loaded = package.resume(tmp_path / "run", track=["wandb"])
    assert loaded.notes == ()
    assert in_wandb(tools.wandb) == on_disk(tmp_path / "run")
    assert (tmp_path / "run" / "weights.safetensors").stat().st_mtime_ns == before


def test_numbers_that_are_not_finite_are_points_too(tmp_path: Path, tools: SimpleNamespace) -> None:
    run = RunFolder(tmp_path / "run")
    train_one(run.path)
    tracked = trackers.Tracked(run, run.experiment)
    line = {"batch": 99, "loss": None, "perplexity": {"windowed": None}, "seconds": 1.0}
    for name in ("tensorboard", "wandb", "mlflow"):
        told = trackers.load(name).begin(tracked, ())
        told.add(line)
        told.end("stopped")
    for points in (in_tensorboard(run.path), in_wandb(tools.wandb), in_mlflow(tools.mlflow)):
        ((step, loss),) = points["loss"]
        assert (step, math.isnan(loss)) == (99, True)
        assert points["perplexity/windowed"][0][1] >= sys.float_info.max


def train_one(out: Path, **options: Any) -> package.Run:
    return package.train(tiny(), out, tiny_corpus(), **options)


def test_a_run_that_is_replaced_takes_its_event_files_along_and_leaves_others(tmp_path: Path) -> None:
    train_one(tmp_path / "run", track="tensorboard")
    train_one(tmp_path / "run", exist="replace")
    assert not (tmp_path / "run" / EVENTS).exists()
    train_one(tmp_path / "run", exist="replace", track=["tensorboard"])
    (tmp_path / "run" / EVENTS / "events.out.tfevents.1700000000.mine").touch()
    with pytest.raises(package.UnrollError, match=r"tensorboard/events\.out\.tfevents\.1700000000\.mine"):
        train_one(tmp_path / "run", exist="replace")


def test_what_is_tracked_changes_nothing_of_what_is_computed_or_kept(tmp_path: Path, tools: SimpleNamespace) -> None:
    names = ("weights.safetensors", "best.safetensors", "run.toml", "vocabulary.json")
    for out, track in (("plain", ()), ("told", "tensorboard,wandb,mlflow")):
        train_one(tmp_path / out, track=track)
    for name in names:
        assert (tmp_path / "plain" / name).read_bytes() == (tmp_path / "told" / name).read_bytes()


# --- sweeps ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("launcher", ["local", "processes"])
def test_each_run_of_a_sweep_has_its_own_tracker(launcher: str, corpus: Path, tmp_path: Path) -> None:
    options = ("--k1", "4,5", "--batches", 5, *TINY[2:], "--most", 2, "--launcher", launcher)
    result = unroll("sweep", corpus, *options, "--track", "tensorboard", "--out", tmp_path / "sweep")
    assert result.code == 0, result.err
    runs = list((tmp_path / "sweep" / "runs").iterdir())
    assert len(runs) == 2
    for run in runs:
        assert in_tensorboard(run) == in_32_bits(on_disk(run))
        assert len(on_disk(run)["loss"]) == 5


def test_a_sweep_is_a_group_and_its_resume_takes_other_trackers(
    corpus: Path, tmp_path: Path, tools: SimpleNamespace
) -> None:
    experiments = package.grid(corpus=str(corpus), seed=[0, 1], k1=5, k2=10, hidden=8, dense=12, rows=4, batches=5)

    def stop(report: Any) -> None:
        if type(report).__name__ == "Scored" and report.metrics["batch"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        package.train_all(experiments, tmp_path / "many", most=1, on_event=stop)
    result = unroll("sweep", "--resume", tmp_path / "many", "--track", "wandb,mlflow")
    assert result.code == 0, result.err
    assert {run["group"] for run in tools.wandb.RUNS.values()} == {"many"}
    assert {run["tags"]["unroll.sweep"] for run in tools.mlflow.RUNS.values()} == {"many"}
    names = [path.name for path in (tmp_path / "many" / "runs").iterdir()]
    assert sorted(run["name"] for run in tools.wandb.RUNS.values()) == sorted(names)
    for run in tools.wandb.RUNS.values():
        assert [step for step, _ in run["points"]] == [1, 2, 3, 4, 5]


def test_other_processes_refuse_a_tracker_that_this_one_registered(corpus: Path, tmp_path: Path) -> None:
    package.register("trackers", "mine", SimpleNamespace(why_not=lambda: None, begin=None))
    options = ("--batches", 3, *TINY, "--launcher", "processes", "--track", "mine", "--out", tmp_path / "sweep")
    refused = unroll("sweep", corpus, *options)
    assert refused.code == 2
    assert "do not know the tracker 'mine'" in refused.err
    assert not (tmp_path / "sweep").exists()


# --- a tracker that fails -------------------------------------------------------------------------------------------


class Raising:
    """A tracker that raises at one of its moments, or at all of them."""

    def __init__(self, at: str, error: BaseException) -> None:
        self.at, self.error, self.calls = at, error, 0

    def why_not(self) -> None:
        return None

    def begin(self, run: Any, lines: Any) -> Raising:
        self._maybe("begin")
        return self

    def add(self, line: Any) -> None:
        self._maybe("add")

    def end(self, state: str) -> None:
        self._maybe("end")

    def _maybe(self, moment: str) -> None:
        self.calls += 1
        if self.at in (moment, "everywhere"):
            raise self.error


@pytest.mark.parametrize("error", [OSError("no network"), KeyboardInterrupt(), SystemExit(3)], ids=repr)
@pytest.mark.parametrize("at", ["begin", "add", "end", "everywhere"])
def test_a_tracker_that_raises_is_one_note_and_the_run_and_the_others_go_on(
    at: str, error: BaseException, tmp_path: Path
) -> None:
    plugins.register("trackers", "raising", Raising(at, error))
    notes: list[str] = []

    def note(event: Any) -> None:
        notes.extend([event.message] if isinstance(event, package.Warned) else [])

    run = train_one(tmp_path / "run", track=["raising", "tensorboard"], on_event=note)
    assert run.status["state"] == "finished"
    assert [words for words in notes if "tracker" in words] == [
        f"The tracker raising is given up: {type(error).__name__}{': ' if str(error) else ''}{error}."
    ]
    assert in_tensorboard(run.path) == in_32_bits(on_disk(run.path))


def test_in_a_sweep_it_is_a_note_too_once_for_all_runs_of_a_fleet(corpus: Path, tmp_path: Path) -> None:
    plugins.register("trackers", "raising", Raising("add", ValueError("it is full")))
    options = ("--seeds", 3, "--batches", 4, *TINY, "--most", 3, "--track", "raising")
    result = unroll("sweep", corpus, *options, "--out", tmp_path / "sweep")
    assert result.code == 0
    assert result.err.count("The tracker raising is given up: ValueError: it is full.") == 1


def test_ctrl_c_while_a_tracker_fails_still_saves_and_is_not_swallowed(tmp_path: Path) -> None:
    plugins.register("trackers", "raising", Raising("everywhere", KeyboardInterrupt()))

    def press(event: Any) -> None:
        if isinstance(event, package.Evaluated) and event.batch == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_one(tmp_path / "run", track="raising", on_event=press)
    assert RunFolder(tmp_path / "run").checkpoints() == [3]


def test_a_run_that_is_interrupted_says_so_to_its_trackers_and_the_advice_names_them(
    corpus: Path, tmp_path: Path
) -> None:
    told: list[str] = []

    class Pressing(Raising):
        def add(self, line: Any) -> None:
            if line["batch"] == 3:
                os.kill(os.getpid(), signal.SIGINT)

        def end(self, state: str) -> None:
            told.append(state)

    plugins.register("trackers", "pressing", Pressing("never", OSError()))
    options = ("--batches", 100_000, *TINY, "--track", "pressing", "--out", tmp_path / "run")
    result = unroll("train", corpus, *options)
    assert result.code == 130
    assert f"--resume {tmp_path / 'run'} --track pressing\n" in result.err
    assert told == ["interrupted"]


def test_a_tracker_that_hangs_costs_no_batch_and_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unroll.training.loop.SOON", 0.1)
    monkeypatch.setattr("unroll.training.loop.PATIENCE", 0.2)
    let_go = threading.Event()
    hanging = SimpleNamespace(why_not=lambda: None, begin=lambda run, lines: let_go.wait(60))
    plugins.register("trackers", "hanging", hanging)
    notes: list[str] = []
    try:
        began = time.perf_counter()
        run = train_one(
            tmp_path / "run",
            track="hanging",
            on_event=lambda event: notes.append(event.message) if isinstance(event, package.Warned) else None,
        )
        assert time.perf_counter() - began < 30
    finally:
        let_go.set()
    assert run.status["state"] == "finished"
    assert [words for words in notes if "hanging" in words] == [
        "Waiting for hanging to take what was told, at most 0.2 seconds.",
        "The tracker hanging has not answered in time, and is left behind: metrics.jsonl has all that it lacks.",
    ]


def test_a_link_in_place_of_the_event_files_is_a_note_and_is_not_followed(tmp_path: Path) -> None:
    train_one(tmp_path / "run")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "events.out.tfevents.1700000000.unroll").write_text("precious")
    (tmp_path / "run" / EVENTS).symlink_to(tmp_path / "mine")
    (words,) = following.tell(RunFolder(tmp_path / "run"), ["tensorboard"])
    assert "links are not followed" in words
    assert [path.read_text() for path in (tmp_path / "mine").iterdir()] == ["precious"]


def test_a_damaged_key_is_a_note_with_its_remedy(tmp_path: Path, tools: SimpleNamespace) -> None:
    train_one(tmp_path / "run", track="wandb")
    path = tmp_path / "run" / "tracking.json"
    secret = json.loads(path.read_text())["secret"]
    path.write_text(path.read_text().replace(secret, secret[::-1]))
    (words,) = package.resume(tmp_path / "run", track="wandb").notes
    assert "tracking.json is damaged" in words
    assert "Delete it" in words


@pytest.mark.parametrize(
    "content", [b"", b"[" * 100_000, b"{}", b'{"secret": "../x"}', b"\xff" * 5000, None, "link", "pipe"]
)
def test_a_strangers_key_costs_nothing_and_names_no_run_of_yours(content: bytes | str | None, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    path = tmp_path / "tracking.json"
    (tmp_path / "mine.txt").write_text("precious")
    if content == "link":
        path.symlink_to(tmp_path / "mine.txt")
    elif content == "pipe":
        os.mkfifo(path)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.mkdir()
    with pytest.raises(RunError, match="is damaged: "):
        folder.tracking_key()
    assert (tmp_path / "mine.txt").read_text() == "precious"


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["train", "sweep"])
def test_what_is_not_there_is_said_before_any_work_with_how_to_install_it(
    command: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    refused = unroll(command, corpus, *TINY, "--track", "tensorbord, wandb,mlflow,tensorboard", "--out", tmp_path / "x")
    assert refused.code == 2
    assert refused.err.splitlines() == [
        "unroll: tracker must be one of mlflow, tensorboard, wandb. Got 'tensorbord'. Did you mean tensorboard?",
        "unroll: The tracker wandb needs wandb: pip install wandb.",
        "unroll: The tracker mlflow needs mlflow: pip install mlflow.",
        "unroll: The tracker tensorboard needs tensorboard: pip install 'unroll-rnn[track]'.",
    ]
    assert not (tmp_path / "x").exists()


def test_python_refuses_an_unknown_tracker_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="Did you mean tensorboard"):
        train_one(tmp_path / "run", track="tensorbord")
    with pytest.raises(ConfigurationError, match="Did you mean tensorboard"):
        package.train_all([tiny()], tmp_path / "run", [tiny_corpus()], track=["tensorbord"])
    assert not (tmp_path / "run").exists()


def test_nobody_logged_in_to_wandb_is_a_note_and_not_a_question(tmp_path: Path, tools: SimpleNamespace) -> None:
    tools.wandb.KEY[0] = False
    train_one(tmp_path / "run")
    (words,) = package.resume(tmp_path / "run", track="wandb").notes
    assert "wandb login, or set WANDB_API_KEY, or WANDB_MODE=offline" in words


def test_offline_each_begin_of_wandb_is_a_whole_run(
    tmp_path: Path, tools: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    train_one(tmp_path / "run", track="wandb")
    package.resume(tmp_path / "run", track="wandb")
    assert [[step for step, _ in run["points"]] for run in tools.wandb.RUNS.values()] == [[1, 2, 3, 4, 5]] * 2
