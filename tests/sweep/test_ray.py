"""The launcher of a Ray cluster, as far as it can be seen without one: what travels, who writes, what is refused."""

from __future__ import annotations

import hashlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sweeping
from paths import TESTS
from sweeping import small

from unroll import Corpus
from unroll.base.errors import RunError, SaveError
from unroll.corpus.open_corpora import Library
from unroll.runs.folder import RunFolder
from unroll.sweep import launchers
from unroll.sweep.folder import ATTEMPTS, SweepFolder
from unroll.sweep.launchers import Job, RunEnded, _ray_cluster, _ray_parcels, _ray_worker, local
from unroll.sweep.launchers._ray_arrivals import Arrivals
from unroll.sweep.launchers._ray_parcels import Copies, Done, Errand, Parcel, Shared
from unroll.training.signals import Watch

HERE = [str(TESTS / "sweep"), str(TESTS)]


def job(folder: Path, batches: int = 12, seeds: tuple[int, ...] = (0, 1)) -> Job:
    """A fleet in a folder's `runs`."""
    text = folder.parent / "text.txt"
    text.parent.mkdir(parents=True, exist_ok=True)
    text.write_text("abcdefgh " * 40)
    asked = small(corpus=str(text), seed=list(seeds), batches=batches, kernel="stacked")
    described = Corpus.open(str(text)).described_in
    names = tuple(f"run{e.seed}" for e in asked)
    outs = tuple(str(folder / "runs" / name) for name in names)
    return Job("0", names, tuple(described(e) for e in asked), outs, 3)


def errand(of: Job, shared: Shared | None, begun: tuple[dict[str, bytes], ...] = (), name: str = "first") -> Errand:
    """An attempt at a job."""
    return Errand(name, of, _ray_worker.versions(), shared, begun or tuple({} for _ in of.runs), 0.0)


def shared_folder(folder: Path) -> Shared:
    """A folder of attempts beside the runs."""
    place = folder / "runs" / ATTEMPTS
    place.mkdir(parents=True)
    (place / _ray_worker.NONCE).write_text("nonce")
    return Shared(str(place), "nonce")


def said(one: Errand) -> Iterator[Any]:
    """What a worker says, thing by thing."""
    for message in _ray_worker.attempt(one, Library(), Watch()):
        yield from message


def tree(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Every file below a folder: its number, when it was written, and its content's hash."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_ino,
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


@pytest.mark.parametrize("by_name", [True, False], ids=["shared", "private"])
def test_what_a_worker_sends_makes_the_runs_that_local_makes(tmp_path: Path, by_name: bool) -> None:
    mine = job(tmp_path / "ours")
    shared = shared_folder(tmp_path / "ours") if by_name else None
    arrivals = Arrivals(mine, Library())
    things = []
    for thing in said(errand(mine, shared)):
        things.append(thing)
        if isinstance(thing, Copies):
            assert by_name == any(parcel.path for parcel in thing.parcels if parcel.name.endswith(".safetensors")) or (
                not any(parcel.name.endswith(".safetensors") for parcel in thing.parcels)
            )
            arrivals.place(thing)
    arrivals.release()
    if shared:
        _ray_cluster.remove(Path(shared.folder))
    list(local.run([job(tmp_path / "theirs")], Library()))
    assert isinstance(things[-1], Done)
    assert sweeping.result(tmp_path / "ours") == sweeping.result(tmp_path / "theirs")


def test_a_driver_killed_between_any_two_messages_leaves_runs_that_go_on_to_the_same_end(tmp_path: Path) -> None:
    source = job(tmp_path / "all")
    copies = [thing for thing in said(errand(source, None)) if isinstance(thing, Copies)]
    list(local.run([job(tmp_path / "theirs")], Library()))
    assert len(copies) > 6
    for number in range(1, len(copies) + 1):
        folder = tmp_path / f"killed{number}"
        mine = job(folder)
        arrivals = Arrivals(mine, Library())
        for one in copies[:number]:
            arrivals.place(one)
        arrivals.release()
        ended = {name for name, out in zip(mine.runs, mine.outs, strict=True) if RunFolder(out).has_ended()}
        reports = list(local.run([mine], Library()))
        assert not ended.intersection(r.run for r in reports if isinstance(r, RunEnded))
        assert sweeping.result(folder) == sweeping.result(tmp_path / "theirs"), number


def test_a_worker_begins_where_the_runs_were_saved_and_leaves_what_has_ended(tmp_path: Path) -> None:
    mine = job(tmp_path / "ours")
    mine = replace(mine, experiments=(replace(mine.experiments[0], batches=5), mine.experiments[1]))
    arrivals = Arrivals(mine, Library())
    for thing in said(errand(mine, None)):
        if isinstance(thing, Copies):
            arrivals.place(thing)
        if isinstance(thing, RunEnded):
            break
    before = tree(Path(mine.outs[0]))
    assert arrivals.progress() == (1, 3)
    begun, batches = arrivals.begun(), []
    for thing in said(errand(mine, None, begun)):
        if isinstance(thing, Copies):
            assert mine.runs[thing.run] == "run1"
            arrivals.place(thing)
        batches += [thing.batch] if isinstance(thing, launchers.Begun) else []
    arrivals.release()
    assert batches == [3]
    assert tree(Path(mine.outs[0])) == before
    assert arrivals.progress() == (2, 0)


PAUSED = """
import pickle, sys
sys.path[:0] = {here!r}
from test_ray import said
for thing in said(pickle.load(open({errand!r}, "rb"))):
    print(type(thing).__name__, flush=True)
    pickle.dump(thing, open({out!r}, "ab"))
"""


def test_a_worker_that_was_paused_while_another_took_over_writes_nothing_that_anybody_reads(tmp_path: Path) -> None:
    """SIGSTOP in the midst of training, another attempt to the end, SIGCONT: not one byte of the runs changes."""
    mine, shared = job(tmp_path / "ours", batches=20_000), shared_folder(tmp_path / "ours")
    (tmp_path / "errand").write_bytes(pickle.dumps(errand(mine, shared, name="zombie")))
    script = PAUSED.format(here=HERE, errand=str(tmp_path / "errand"), out=str(tmp_path / "said"))
    zombie = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    killer = threading.Timer(240, zombie.kill)
    killer.start()
    assert zombie.stdout
    for line in zombie.stdout:
        checkpoints = Path(shared.folder, "zombie", "run1", "checkpoints")
        if line == b"Copies\n" and checkpoints.is_dir() and any(checkpoints.iterdir()):
            break
    os.kill(zombie.pid, signal.SIGSTOP)
    # The driver gives the attempt up, and another one trains to a nearer end.
    _ray_cluster.remove(Path(shared.folder) / "zombie")
    heir = job(tmp_path / "ours", batches=30)
    arrivals = Arrivals(heir, Library())
    for thing in said(errand(heir, shared, name="heir")):
        if isinstance(thing, Copies):
            arrivals.place(thing)
    arrivals.release()
    before = tree(tmp_path / "ours")
    os.kill(zombie.pid, signal.SIGCONT)
    rest, _ = zombie.communicate()
    killer.cancel()
    assert zombie.returncode == 0
    assert rest.splitlines()[-1] in (b"Full", b"Failed", b"Done")  # it found no way to save
    after = {name: stamp for name, stamp in tree(tmp_path / "ours").items() if "zombie" not in name}
    assert after == before
    list(local.run([job(tmp_path / "theirs", batches=30)], Library()))
    _ray_cluster.remove(Path(shared.folder))
    assert sweeping.result(tmp_path / "ours") == sweeping.result(tmp_path / "theirs")


def test_what_was_damaged_on_its_way_or_belongs_to_no_run_is_refused(tmp_path: Path) -> None:
    mine = job(tmp_path / "ours")
    arrivals = Arrivals(mine, Library())
    first = next(thing for thing in said(errand(mine, None)) if isinstance(thing, Copies))
    arrivals.place(first)
    for name in ("../../evil", "run.toml", "checkpoints/../../evil", "notes.txt"):
        with pytest.raises(SaveError, match="which no run has"):
            arrivals.place(replace(first, parcels=(Parcel(name, _ray_parcels.digest(b"x"), b"x"),)))
    with pytest.raises(SaveError, match="damaged on its way"):
        arrivals.place(replace(first, parcels=(Parcel("status.json", _ray_parcels.digest(b"x"), b"y"),)))
    arrivals.release()
    assert not (tmp_path / "evil").exists()


def test_a_run_of_another_sweep_is_not_gone_on_with(tmp_path: Path) -> None:
    mine = job(tmp_path / "ours")
    list(local.run([mine], Library()))
    other = replace(mine, experiments=tuple(replace(e, learning_rate=0.5) for e in mine.experiments))
    with pytest.raises(RunError, match="learning_rate"):
        Arrivals(other, Library()).take()


def test_a_corpus_travels_once_and_by_what_it_holds(tmp_path: Path) -> None:
    np.arange(6, dtype=np.uint8).tofile(tmp_path / "ids")
    corpus = Corpus.from_text("abcdef" * 50)
    mapped = replace(corpus, ids=np.memmap(tmp_path / "ids", np.uint8, "c"))
    packed, corpora = _ray_parcels.pack({"twice": [mapped, mapped], "other": corpus, "number": 3})
    assert len(corpora) == 2
    assert b"abcdef" not in packed
    there = _ray_parcels.unpack(packed, lambda one: one, [_ray_parcels.in_memory(one) for one in corpora])
    assert there["twice"][0] is there["twice"][1]
    assert type(there["twice"][0].ids) is np.ndarray
    assert list(there["twice"][0].ids) == list(range(6))
    assert _ray_parcels.identity(corpus) == _ray_parcels.identity(Corpus.from_text("abcdef" * 50))
    assert _ray_parcels.identity(corpus) != _ray_parcels.identity(Corpus.from_text("abcdeg" * 50))


def test_another_version_on_a_node_is_refused_with_the_node_and_both_versions() -> None:
    own = _ray_worker.versions()
    nodes = {
        "one (ab12)": {"versions": own},
        "two (cd34)": {"versions": {**own, "torch": "1.0"}},
        "three (ef56)": {"error": "ModuleNotFoundError: No module named 'unroll'"},
    }
    with pytest.raises(RunError) as refused:
        _ray_cluster.refuse_differences(nodes)
    words = str(refused.value)
    assert f"The node two (cd34) has torch 1.0; this machine has {own['torch']}." in words
    assert "The node three (ef56) cannot run Unroll: ModuleNotFoundError" in words
    assert "one (ab12)" not in words


def test_a_gpu_with_a_number_is_refused_before_any_work(tmp_path: Path) -> None:
    def refused(device: str) -> str | None:
        (asked,) = small(device="cpu", seed=[0])
        return launchers.load("ray").refusal([replace(asked, device=device)])  # type: ignore[attr-defined,no-any-return]

    assert [refused(device) for device in ("auto", "cpu", "cuda", "cuda:0")] == [None] * 4
    for device in ("cuda:1", "cuda:0,2"):
        assert f"--device {device}: " in (refused(device) or "")


def test_without_ray_the_answer_is_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert launchers.problem("ray") == "The launcher ray needs the ray extra: pip install 'unroll-rnn[ray]'."


def test_scratch_folders_of_killed_workers_are_removed_and_those_in_use_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_ray_worker.tempfile, "gettempdir", lambda: str(tmp_path))
    script = (
        "import os, signal, sys; from pathlib import Path; from unroll.base import locks;"
        "held = locks.hold(Path(sys.argv[1]), '', ''); held.__enter__(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    dead, alive = (tmp_path / f"{_ray_worker.SCRATCH}{name}" for name in ("dead", "alive"))
    for folder in (dead, alive):
        folder.mkdir()
        (folder / "file").touch()
    subprocess.run([sys.executable, "-c", script, str(dead)], check=False)
    with _ray_worker.locks.hold(alive, "", ""):
        began = time.monotonic()
        _ray_worker.clear_left_over()
        assert time.monotonic() - began < 30
        assert not dead.exists()
        assert (alive / "file").exists()


def test_a_worker_that_is_asked_to_stop_as_it_begins_saves_what_can_be_gone_on_with(tmp_path: Path) -> None:
    mine = job(tmp_path / "ours")
    arrivals, watch, thing = Arrivals(mine, Library()), Watch(), None
    for message in _ray_worker.attempt(errand(mine, None), Library(), watch):
        for thing in message:
            if isinstance(thing, Copies):
                arrivals.place(thing)
            elif isinstance(thing, launchers.Begun):
                watch.number = signal.SIGINT
    assert thing == _ray_parcels.Stopped(signal.SIGINT)
    arrivals.release()
    assert [RunFolder(out).status["state"] for out in mine.outs] == ["interrupted"] * 2
    list(local.run([mine], Library()))
    list(local.run([job(tmp_path / "theirs")], Library()))
    assert sweeping.result(tmp_path / "ours") == sweeping.result(tmp_path / "theirs")


def test_what_a_killed_driver_left_of_attempts_is_removed_by_the_next_one_with_any_launcher(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").touch()
    for _ in sweeping.follow(tmp_path / "sweep", small(seed=[0])):
        pass
    for name in (ATTEMPTS, f"{ATTEMPTS}.1f2e3d4c.given-up"):
        (tmp_path / "sweep" / "runs" / name / "ab" / "run0").mkdir(parents=True)
        (tmp_path / "sweep" / "runs" / name / "ab" / "link").symlink_to(tmp_path / "elsewhere")
    SweepFolder(tmp_path / "sweep").clear_partials()
    assert [path.name for path in (tmp_path / "sweep" / "runs").iterdir() if path.name.startswith(".")] == []
    assert (tmp_path / "elsewhere" / "file").exists()
