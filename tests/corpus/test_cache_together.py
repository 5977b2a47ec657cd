"""Twenty processes that start at once on a cold cache: all of them train, all to the same weights.

UNROLL_TEST_ROUNDS says how often that is tried: twice unless it is set.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unroll.base import atomic_files
from unroll.corpus import encoding
from unroll.corpus.synthetic import Markov

PROCESSES, VICTIMS = 20, 3
ROUNDS = int(os.environ.get("UNROLL_TEST_ROUNDS", "2"))
MODEL = ["--hidden", "8", "--dense", "16", "--k1", "4", "--k2", "8", "--rows", "4", "--batches", "3"]
MACHINE = ["--test-tokens", "60", "--threads", "1", "--device", "cpu", "--quiet"]
PATIENCE = 600  # seconds


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text just large enough for the cache."""
    path = tmp_path_factory.mktemp("together") / "big.txt"
    stretch = Markov(symbols=20, order=2).text(1_000_000) + "ä €\n"
    path.write_text(stretch * (encoding.CACHED_FROM // 1_000_000 + 1))
    assert path.stat().st_size > encoding.CACHED_FROM
    return path


def start(corpus: Path, folder: Path, number: int) -> subprocess.Popen[bytes]:
    """`unroll train` in a process of its own, with the folder's cache."""
    command = [
        sys.executable,
        "-m",
        "unroll",
        "train",
        str(corpus),
        *MODEL,
        *MACHINE,
        "--out",
        str(folder / f"run{number}"),
    ]
    environment = {**os.environ, "UNROLL_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def ended(processes: list[subprocess.Popen[bytes]]) -> list[int]:
    """Their exit statuses; what one that failed had to say is shown."""
    codes = []
    for process in processes:
        said, _ = process.communicate(timeout=PATIENCE)
        codes.append(process.returncode)
        if process.returncode:
            print(said.decode(errors="replace"))
        assert b"UNROLL_CACHE" not in said, said.decode(errors="replace")
    return codes


def killed_as_it_writes(process: subprocess.Popen[bytes], folder: Path) -> bool:
    """Kill a process as soon as it has a temporary file in the cache; False if another wrote the cache before it."""
    until = time.monotonic() + PATIENCE
    while not [*(folder / "cache" / "corpora").glob(f"*.{process.pid:x}-*.partial")]:
        if process.poll() is not None:
            assert ended([process]) == [0]
            return False
        assert time.monotonic() < until
        time.sleep(0.001)
    process.kill()
    process.communicate()
    return True


def weights(folder: Path) -> set[bytes]:
    """The different weights that the processes came to: each as the bytes of all tensors."""
    found = set()
    for number in range(PROCESSES):
        tensors, _ = atomic_files.unseal(folder / f"run{number}" / "weights.safetensors")
        found.add(b"".join(name.encode() + tensors[name].numpy().tobytes() for name in sorted(tensors)))
    return found


def names(folder: Path) -> list[str]:
    return sorted(path.suffix for path in (folder / "cache" / "corpora").iterdir())


@pytest.mark.slow
def test_twenty_processes_at_once_on_a_cold_cache_all_train_to_the_same_weights(corpus: Path, tmp_path: Path) -> None:
    found = set()
    for number in range(ROUNDS):
        folder = tmp_path / f"round{number}"
        began = time.monotonic()
        assert ended([start(corpus, folder, n) for n in range(PROCESSES)]) == [0] * PROCESSES
        found |= weights(folder)
        assert len(found) == 1, f"{len(found)} different weights"
        assert names(folder) == [".json", ".uint8"]
        print(f"round {number + 1} of {ROUNDS}: {PROCESSES} succeeded in {time.monotonic() - began:.0f} s")
        shutil.rmtree(folder)


@pytest.mark.slow
def test_processes_killed_while_they_write_the_cache_harm_no_other_and_leave_nothing(
    corpus: Path, tmp_path: Path
) -> None:
    found, killed = set(), 0
    for number in range(ROUNDS):
        folder = tmp_path / f"round{number}"
        victims = [start(corpus, folder, PROCESSES + n) for n in range(VICTIMS)]
        others = [start(corpus, folder, n) for n in range(PROCESSES)]
        killed += sum(killed_as_it_writes(victim, folder) for victim in victims)
        assert ended(others) == [0] * PROCESSES
        found |= weights(folder)
        assert len(found) == 1, f"{len(found)} different weights"
        # Who wrote last may have begun before a victim died: the next to write clears what is left.
        shutil.rmtree(folder / "run0")
        (index,) = (folder / "cache" / "corpora").glob("*.json")
        index.unlink()
        assert ended([start(corpus, folder, 0)]) == [0]
        assert names(folder) == [".json", ".uint8"]
        print(f"round {number + 1} of {ROUNDS}: {killed} killed so far, {PROCESSES} succeeded")
        shutil.rmtree(folder)
    assert killed >= ROUNDS * VICTIMS / 2, "on a busy machine some come too late, but not most"
