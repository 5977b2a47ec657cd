"""How commands end when nobody reads on, the disk is full, the terminal is closed or Ctrl-C is pressed."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

from commands import TINY, tiny_run, unroll


def test_output_that_nobody_reads_on_ends_quietly_and_a_full_disk_is_said(tmp_path: Path) -> None:
    run = tiny_run(tmp_path)
    command = f"{sys.executable} -m unroll sample '{run}' --prompt abc --length 3000"
    cut = subprocess.run(f"{command} | head -c 20", shell=True, capture_output=True, text=True, check=True)
    assert (len(cut.stdout), cut.stderr) == (20, "")
    full = subprocess.run(f"{command} > /dev/full", shell=True, capture_output=True, text=True, check=False)
    assert full.returncode == 1
    assert full.stderr.startswith("unroll: No space left on device")
    assert "Traceback" not in full.stderr


def test_ctrl_c_saves_prints_the_command_that_resumes_and_exits_130(tmp_path: Path) -> None:
    tiny_run(tmp_path)
    run = tmp_path / "interrupted run"
    arguments = ["train", str(tmp_path / "corpus.txt"), "--batches", "2000", "--out", str(run), *TINY]
    process = subprocess.Popen(
        [sys.executable, "-m", "unroll", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    with process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("batch"):
                process.send_signal(signal.SIGINT)
                break
        printed = process.stderr.read()
        assert process.wait(timeout=30) == 130
    assert f"unroll train --resume '{run}'" in printed
    assert json.loads((run / "status.json").read_text())["state"] == "interrupted"
    refused = unroll("train", "--resume", run, "--batches", 50)
    assert refused.code == 2
    assert "may only be raised" in refused.err
    assert unroll("train", "--resume", run).code == 0
    assert json.loads((run / "status.json").read_text())["state"] == "finished"
    assert "nothing to go on with" in unroll("train", "--resume", run).err


def test_training_that_nobody_reads_on_is_saved_before_it_ends(tmp_path: Path) -> None:
    tiny_run(tmp_path)
    run = tmp_path / "piped"
    command = [sys.executable, "-m", "unroll", "train", tmp_path / "corpus.txt", "--batches", 100000, "--out", run]
    process = subprocess.Popen([*map(str, command), *TINY], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while not process.stderr.readline().startswith("batch"):
        pass
    process.stderr.close()
    assert abs(process.wait(timeout=30)) in (signal.SIGTERM, 128 + signal.SIGTERM)
    status = json.loads((run / "status.json").read_text())
    assert (status["state"], status["batch"] > 0) == ("interrupted", True)
    assert list((run / "checkpoints").iterdir())


def test_training_in_a_terminal_that_is_closed_is_saved_before_it_ends(tmp_path: Path) -> None:
    tiny_run(tmp_path)
    run = tmp_path / "left"
    command = [sys.executable, "-m", "unroll", "train", tmp_path / "corpus.txt", "--batches", 100000, "--out", run]
    in_front = "import fcntl, os, signal, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    in_front += "signal.signal(signal.SIGHUP, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"  # even under nohup
    terminal, screen = pty.openpty()
    wrapped = [sys.executable, "-c", in_front, *map(str, command), *map(str, TINY)]
    process = subprocess.Popen(wrapped, stdin=screen, stdout=screen, stderr=screen)
    os.close(screen)
    shown = b""
    while b"batch" not in shown:
        shown += os.read(terminal, 4096)
    time.sleep(0.5)
    os.close(terminal)
    process.wait(timeout=30)
    status = json.loads((run / "status.json").read_text())
    assert (status["state"], status["batch"] > 0) == ("interrupted", True)
    assert list((run / "checkpoints").iterdir())


def test_a_last_word_that_cannot_be_said_changes_no_exit_code() -> None:
    command = [sys.executable, "-m", "unroll", "eval", "no-such-run"]
    with open("/dev/full", "w") as full:
        assert subprocess.run(command, stderr=full, check=False).returncode == unroll(*command[3:]).code


def test_a_command_whose_output_is_closed_does_its_work(tmp_path: Path) -> None:
    run, out = tiny_run(tmp_path), tmp_path / "sample.txt"
    for command in (f"sample {run} --length 5 >&-", f"sample {run} --length 5 --out {out} >&- 2>&-"):
        ended = subprocess.run(f"{sys.executable} -m unroll {command}", shell=True, stderr=subprocess.PIPE, text=True)
        assert (ended.returncode, "Traceback" in ended.stderr) == (0, False), ended.stderr
    assert out.exists()
