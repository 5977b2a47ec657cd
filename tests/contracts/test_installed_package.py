"""A package outside the repository, installed, brings a cell, a loss weighting and a token kind: used like our own."""

from __future__ import annotations

import csv
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dropping import FOLDER
from helpers import check_identical
from safetensors.torch import load_file

from unroll.corpus.synthetic import Markov
from unroll.runs.folder import RunFolder

PROJECT = """[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "unroll-small"
version = "0.3.0"

[project.entry-points."unroll.cells"]
mingru = "unroll_small.mingru"

[project.entry-points."unroll.loss_weights"]
middle = "unroll_small.middle"

[project.entry-points."unroll.tokens"]
folded = "unroll_small.folded"

[project.entry-points."unroll.trackers"]
one-list = "unroll_small.one_list"
"""
FILES = ("cells/mingru.py", "loss_weights/middle.py", "tokens/folded.py", "trackers/one_list.py")
SHAPE = ["--k1", "5", "--k2", "10", "--hidden", "16", "--dense", "12", "--rows", "4", "--threads", "1"]
PLUGINS = ["--cell", "mingru", "--train", "loss=middle,state=learned", "--kind", "folded"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which pip installed the package."""
    source, target = tmp_path_factory.mktemp("small"), tmp_path_factory.mktemp("site")
    (source / "pyproject.toml").write_text(PROJECT)
    (source / "unroll_small").mkdir()
    (source / "unroll_small" / "__init__.py").write_text("")
    for file in FILES:
        shutil.copy(FOLDER / file, source / "unroll_small")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-index", "--no-deps"]
    command = [*pip, "--no-build-isolation", "--target", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target


def started(site: Path | None, *arguments: object) -> subprocess.Popen[str]:
    """`unroll …` in a process of its own, in which the package is installed, or is not."""
    path = os.environ.get("PYTHONPATH", "")
    environment = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{path}" if site else path}
    return subprocess.Popen(
        [sys.executable, "-m", "unroll", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip


def unroll(site: Path | None, *arguments: object) -> tuple[int, str, str]:
    """The same, to its end: its code, and what it wrote."""
    process = started(site, *arguments)
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def assert_same_weights(one: RunFolder, other: RunFolder) -> None:
    """Bit for bit, as their files have them: this process does not know the package."""
    check_identical(*(load_file(run.path / "weights.safetensors") for run in (one, other)))


@pytest.mark.slow
def test_a_package_outside_the_repository_is_trained_killed_resumed_sampled_and_swept(
    site: Path, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text(Markov().text(20_000).title())
    options = [corpus, *PLUGINS, *SHAPE, "--save-every", 5, "--evaluations", 3]

    code, _, said = unroll(site, "train", *options, "--batches", 400, "--out", tmp_path / "whole")
    assert code == 0, said
    assert "the fast engine here does not know the cell mingru" in said
    whole, killed = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "killed")
    text = (whole.path / "run.toml").read_text()
    assert [text.count(f'{setting} = "unroll-small 0.3.0, sha256 ') for setting in ("cell", "loss", "kind")] == [1] * 3

    process = started(site, "train", *options, "--batches", 400, "--out", killed.path)
    while not killed.checkpoints() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "it ended before it was killed"
    code, _, said = unroll(site, "train", "--resume", killed.path)
    assert code == 0, said
    assert_same_weights(killed, whole)

    code, out, said = unroll(site, "sample", whole.path, "--prompt", "ABC", "--length", 30)
    assert code == 0, said
    assert out.strip()
    assert out == out.lower()
    assert unroll(site, "check", "cells", "mingru")[0] == 0

    sweep = ["sweep", corpus, *PLUGINS[:4], "--kind", "folded", "--seeds", 2, "--batches", 5, *SHAPE, "--most", 1]
    code, _, said = unroll(site, *sweep, "--launcher", "processes", "--track", "one-list", "--out", tmp_path / "sweep")
    assert code == 0, said
    assert "tracker" not in said
    with open(tmp_path / "sweep" / "table.csv") as file:
        rows = list(csv.DictReader(file))
    assert {(row["cell"], row["training"], row["state"]) for row in rows} == {
        ("mingru", "loss=middle,state=learned", "finished")
    }

    for command in (
        ["sample", whole.path],
        ["train", "--resume", whole.path],
        ["sweep", "--resume", tmp_path / "sweep"],
    ):
        code, _, said = unroll(None, *command)
        assert code == 2
        for setting, name in (("cell", "mingru"), ("loss", "middle"), ("kind", "folded")):
            assert f"{setting} is '{name}'" in said
        assert "pip install unroll-small==0.3.0" in said
