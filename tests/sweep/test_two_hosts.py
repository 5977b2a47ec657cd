"""Two drivers on one folder from two hosts: one has a host name of its own, as a machine that shares the disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import unroll

from unroll.base import locks
from unroll.sweep.folder import SweepFolder
from unroll.sweep.standing import standing

OTHER = "other-host"
PATIENCE = 120.0  # seconds, on a busy machine
SETTINGS = (
    "--k2", 10, "--k1", 5, "--hidden", 8, "--dense", 12, "--rows", 4, "--threads", 1, "--batches", 2000, "--device",
    "cpu", "--seeds", 2, "--most", 1, "--save-every", 5, "--evaluations", 2, "--quiet",
)  # fmt: skip


def on_the_other_host(*words: object) -> subprocess.Popen[bytes]:
    """`unroll …` on a host of another name."""
    enter = ["unshare", "-u"] if os.geteuid() == 0 else ["unshare", "-ru"]
    script = ["sh", "-c", f'hostname {OTHER} && exec "$@"', "sh"]
    command = [*enter, *script, sys.executable, "-m", "unroll", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def wait_until(holds: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    """Return when something holds."""
    until = time.monotonic() + PATIENCE
    while not holds():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.slow
def test_a_second_driver_on_another_host_is_refused_with_the_name_of_the_first(tmp_path: Path) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "sweep"
    text.write_text("to be or not to be, that is the question. " * 50)
    with on_the_other_host("sweep", text, *SETTINGS, "--batches", 1_000_000, "--out", out) as first:
        try:
            wait_until(lambda: (out / "plan.json").exists() and standing(SweepFolder(out)).fleets[0].batch, first)
            for again in (("--resume", out), (text, *SETTINGS, "--batches", 1_000_000, "--out", out)):
                refused = unroll("sweep", *again)
                assert refused.code == 2
                assert f"process {first.pid} on {OTHER}, since 20" in refused.err
            known = json.loads(unroll("sweep", "--status", out, "--json").out)
            assert f"process {first.pid} on {OTHER}" in known["driver"]
            assert known["counts"] == {"running": 1, "waiting": 1}
            assert first.poll() is None, "the first goes on"
        finally:
            first.send_signal(signal.SIGKILL)
    # Nobody here can see that it is dead.
    assert f"delete {out / locks.NAME}" in unroll("sweep", "--resume", out).err


@pytest.mark.slow
def test_a_sweep_left_by_one_host_is_gone_on_with_by_another_to_the_same_table(tmp_path: Path) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "sweep"
    text.write_text("to be or not to be, that is the question. " * 50)
    asked = (text, *SETTINGS)
    assert unroll("sweep", *asked, "--out", tmp_path / "alone").code == 0
    with on_the_other_host("sweep", *asked, "--out", out) as first:
        wait_until(lambda: (out / "plan.json").exists() and standing(SweepFolder(out)).fleets[0].batch, first)
        first.send_signal(signal.SIGINT)
        assert first.wait(PATIENCE) == 130
    assert unroll("sweep", "--resume", out).code == 0
    assert (out / "table.csv").read_bytes() == (tmp_path / "alone" / "table.csv").read_bytes()
