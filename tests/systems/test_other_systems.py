"""The command line on Windows and on a Mac, as far as Linux can play them: see `sitecustomize.py` beside this.

A person trains, presses Ctrl-C, goes on, samples, sweeps and reports.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import TINY
from paths import ROOT, TESTS

from unroll.base import atomic_files
from unroll.corpus.synthetic import Markov

SYSTEMS = ("windows", "macos")
PATIENCE = 120.0  # seconds; a busy machine takes long to import torch
LONG = 2_000_000  # batches: it is stopped before


class Elsewhere:
    """The command line as another system runs it."""

    def __init__(self, system: str, folder: Path) -> None:
        self.folder = folder
        (folder / "temporary").mkdir()
        (folder / "corpus").mkdir()
        for name in ("a.txt", "b.txt"):
            (folder / "corpus" / name).write_text(Markov().text(3000))
        path = [str(TESTS / "systems"), str(ROOT / "src")]
        # Files and streams are no UTF-8, as on a Windows of Western Europe.
        self.environment = os.environ | {
            "UNROLL_SYSTEM": system,
            "UNROLL_CACHE": str(folder / "cache"),
            "TMPDIR": str(folder / "temporary"),
            "PYTHONPATH": os.pathsep.join(path),
            "PYTHONWARNINGS": "ignore::EncodingWarning",
            "PYTHONUTF8": "0",
            "PYTHONCOERCECLOCALE": "0",
            "LC_ALL": "C",
            "OMP_NUM_THREADS": "1",
        }

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        """`unroll …` in a process of its own."""
        return self._started("-m", "unroll", *map(str, arguments))

    def _started(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-X", "warn_default_encoding", *arguments],
            cwd=self.folder,
            env=self.environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *arguments: object, code: int = 0) -> str:
        """`unroll …` to its end, and what it says."""
        said = _ended(self.start(*arguments), code)
        assert "Traceback" not in said, said
        return said

    def python(self, *lines: str, code: int = 0) -> str:
        """Lines of Python to their end, and what they say."""
        imports = ("from pathlib import Path", "from unroll.base import atomic_files")
        return _ended(self._started("-c", "\n".join((*imports, *lines))), code)

    def wait_for_checkpoint(self, run: str, process: subprocess.Popen[str]) -> None:
        """Return when training has saved for the first time."""
        end = time.monotonic() + PATIENCE
        while not list((self.folder / run).glob("checkpoints/*.safetensors")):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end
            time.sleep(0.05)

    def stop(self, run: str, *arguments: object, number: int) -> str:
        """Begin to train, send a signal after the first save, and give what is said."""
        process = self.start("train", *arguments, "--out", run)
        try:
            self.wait_for_checkpoint(run, process)
            process.send_signal(number)
            _, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
        assert "Traceback" not in err, err
        assert "sitecustomize" not in err, err
        assert process.returncode == 128 + number, err
        return err


def _ended(process: subprocess.Popen[str], code: int) -> str:
    try:
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == code, out + err
    assert "sitecustomize" not in err, err  # an error in it is only printed, and Linux would play Linux
    return out + err


@pytest.fixture(params=SYSTEMS)
def system(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def elsewhere(system: str, tmp_path: Path) -> Iterator[Elsewhere]:
    yield Elsewhere(system, tmp_path)
    assert not list((tmp_path / "temporary").glob("unroll-*")), "a folder is held by nobody at the end"


def tensors(run: Path) -> dict[str, bytes]:
    return {name: t.numpy().tobytes() for name, t in atomic_files.unseal(run / "weights.safetensors")[0].items()}


# A Mac lacks less than Windows does, and the sweep below trains on it as well.
@pytest.mark.parametrize("system", ["windows", pytest.param("macos", marks=pytest.mark.slow)])
def test_a_run_is_trained_stopped_and_resumed_to_the_same_weights_and_then_sampled_and_reported(
    elsewhere: Elsewhere,
) -> None:
    asked = ("corpus", *TINY, "--evaluations", 2)
    elsewhere.stop("stopped", *asked, "--batches", 1500, "--save-every", 20, number=signal.SIGINT)
    status = json.loads((elsewhere.folder / "stopped" / "status.json").read_text())
    assert status["state"] == "interrupted"
    assert 20 <= status["batch"] < 1500
    elsewhere.run("train", "--resume", "stopped")
    elsewhere.run("train", *asked, "--batches", 1500, "--out", "whole")
    assert tensors(elsewhere.folder / "stopped") == tensors(elsewhere.folder / "whole")
    assert 'kernel = "host"' in (elsewhere.folder / "whole" / "run.toml").read_text()
    names = sorted(path.name for path in (elsewhere.folder / "stopped").iterdir())
    assert names == sorted(path.name for path in (elsewhere.folder / "whole").iterdir())
    assert len(elsewhere.run("sample", "stopped", "--length", 40)) >= 40
    assert "perplexity" in elsewhere.run("eval", "stopped")
    elsewhere.run("report", "stopped", "whole", "--out", "report.html")
    assert "</html>" in (elsewhere.folder / "report.html").read_text("utf-8")


def test_the_system_that_is_played_is_the_one_that_was_asked_for(elsewhere: Elsewhere, system: str) -> None:
    said = elsewhere.python("import os, sys, unroll", "print(sys.platform, hasattr(os, 'fork'))")
    assert said.split() == {"windows": ["win32", "False"], "macos": ["darwin", "True"]}[system]


def test_a_sweep_is_planned_trained_and_gone_on_with(elsewhere: Elsewhere) -> None:
    asked = ("corpus", *TINY, "--scheme", "1,2", "--batches", 12)
    elsewhere.run("sweep", *asked, "--out", "sweep")
    table = (elsewhere.folder / "sweep" / "table.csv").read_bytes()
    assert table.count(b"finished") == 2
    elsewhere.run("sweep", "--resume", "sweep")
    assert (elsewhere.folder / "sweep" / "table.csv").read_bytes() == table


def test_machine_code_and_apples_gpu_are_refused_with_the_reason(elsewhere: Elsewhere) -> None:
    asked = ("train", "corpus", *TINY, "--batches", 12, "--out", "run")
    assert "machine code on Linux alone" in elsewhere.run(*asked, "--kernel", "compiled", code=2)
    assert "has no float64" in elsewhere.run(*asked, "--device", "mps", code=2)
    assert not (elsewhere.folder / "run").exists()


@pytest.mark.parametrize("system", ["windows"])
def test_a_folder_that_a_process_trains_in_is_refused_to_another(elsewhere: Elsewhere) -> None:
    process = elsewhere.start("train", "corpus", *TINY, "--batches", LONG, "--save-every", 20, "--out", "run")
    try:
        elsewhere.wait_for_checkpoint("run", process)
        assert "Another process" in elsewhere.run("train", "--resume", "run", code=2)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 130


@pytest.mark.parametrize("system", ["windows"])
def test_control_break_saves_as_control_c_does(elsewhere: Elsewhere) -> None:
    # SIGUSR1 plays SIGBREAK, which Linux lacks.
    asked = ("corpus", *TINY, "--batches", LONG, "--save-every", 20)
    said = elsewhere.stop("a run", *asked, number=signal.SIGUSR1)
    assert json.loads((elsewhere.folder / "a run" / "status.json").read_text())["state"] == "interrupted"
    assert 'unroll train --resume "a run"' in said  # whose shells know no other quotes


@pytest.mark.parametrize("system", ["macos"])
def test_on_a_mac_fleets_train_in_processes(elsewhere: Elsewhere) -> None:
    asked = ("corpus", *TINY, "--scheme", "1,2", "--batches", 12, "--launcher", "processes")
    elsewhere.run("sweep", *asked, "--out", "sweep")
    assert (elsewhere.folder / "sweep" / "table.csv").read_bytes().count(b"finished") == 2


@pytest.mark.parametrize("system", ["windows"])
def test_the_launcher_of_processes_is_refused_before_there_is_a_folder(elsewhere: Elsewhere) -> None:
    asked = ("corpus", *TINY, "--batches", 12, "--launcher", "processes", "--out", "sweep")
    assert "needs a POSIX system" in elsewhere.run("sweep", *asked, code=2)
    assert not (elsewhere.folder / "sweep").exists()


@pytest.mark.parametrize("system", ["windows"])
def test_no_line_is_appended_through_a_link(elsewhere: Elsewhere) -> None:
    (elsewhere.folder / "others").write_text("theirs")
    (elsewhere.folder / "lines").symlink_to(elsewhere.folder / "others")
    said = elsewhere.python("atomic_files.append(Path('lines'), 'ours')", code=1)
    assert "SaveError" in said
    assert "it is a link" in said
    assert (elsewhere.folder / "others").read_text() == "theirs"


@pytest.mark.parametrize("system", ["windows"])
def test_what_a_killed_process_left_is_cleared_when_it_is_old_since_nothing_says_who_writes_it(
    elsewhere: Elsewhere,
) -> None:
    old, fresh = (elsewhere.folder / f"file.{token}-00000000.partial" for token in ("1", "2"))
    for path in (old, fresh):
        path.write_text("half")
    os.utime(old, (time.time() - 2 * atomic_files.OLD,) * 2)
    elsewhere.python("atomic_files.clear_partials(Path(), 'file'.__eq__)")
    assert (old.exists(), fresh.exists()) == (False, True)


@pytest.mark.parametrize("system", ["windows"])
def test_a_file_that_a_reader_has_open_is_replaced_when_it_is_closed(elsewhere: Elsewhere) -> None:
    (elsewhere.folder / "file").write_text("old")
    elsewhere.python(
        "import threading",
        "reader = open('file', encoding='utf-8')",
        "threading.Timer(0.1, reader.close).start()",
        "atomic_files.write(Path('file'), b'new')",
    )
    assert (elsewhere.folder / "file").read_text() == "new"


@pytest.mark.parametrize("system", ["windows"])
def test_a_file_that_stays_open_keeps_what_it_held_and_nothing_is_left_beside_it(elsewhere: Elsewhere) -> None:
    (elsewhere.folder / "file").write_text("old")
    before = sorted(elsewhere.folder.iterdir())
    said = elsewhere.python(
        "reader = open('file', encoding='utf-8')", "atomic_files.write(Path('file'), b'new')", code=1
    )
    assert "SaveError: Could not save file: Permission denied. What was saved before is intact." in said
    assert (elsewhere.folder / "file").read_text() == "old"
    assert sorted(elsewhere.folder.iterdir()) == before
