"""Run stranger.py and Unroll at the same settings, and record their curves: results/paper/stranger.json.

    python benchmarks/stranger_beside_unroll.py music.txt

Scheme 4 on notes, 128 units, k1 = k2 = 100, 64 rows, Adam at 0.004, no dense layer; the state reset each epoch, never,
and each row at random with probability 0.1; with the paper's peepholes and, reset never, without. The last 3,000 tokens
are the test set. What the record already holds is not run again.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import stranger
import torch

from unroll.base import atomic_files
from unroll.studies.benchmark.machine import facts

HERE = Path(__file__).parent
RECORD = HERE.parent / "results" / "paper" / "stranger.json"
BATCHES, AT_ONCE = 250, 2
# How the state is reset, with peepholes or without, and the seeds.
SETTINGS = (
    *((reset, True, seed) for seed in (0, 1, 2) for reset in ("never", "random")),
    ("never", False, 0), ("epoch", True, 0), ("never", False, 1), ("never", False, 2),
)  # fmt: skip
RESET = {"never": "never", "random": "0.1", "epoch": "epoch"}


def by_stranger(text: Path, reset: str, peepholes: bool, seed: int) -> list[list[float]]:
    """The stranger's lines, from a process of its own: it knows nothing of Unroll."""
    command = [sys.executable, HERE / "stranger.py", text, "--reset", reset, "--batches", BATCHES, "--seed", seed]
    command += ["--peepholes"] if peepholes else []
    done = subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def by_unroll(text: Path, reset: str, peepholes: bool, seed: int) -> list[list[float]]:
    """The same of Unroll: batch, nats of training, perplexity from zeros and from carried states, from batch 100 on."""
    tokens = text.read_text("utf-8").split()
    with tempfile.TemporaryDirectory() as folder:
        parts = {"train.txt": tokens[: -stranger.TEST], "test.txt": tokens[-stranger.TEST :]}
        for name, part in parts.items():
            (Path(folder) / name).write_text(" ".join(part), "utf-8")
        options: dict[str, Any] = {
            "train": f"conditional,reset={RESET[reset]}", "sample": "progressive", "kind": "ids", "dense": 0,
            "k1": stranger.LENGTH, "k2": stranger.LENGTH, "rows": stranger.ROWS, "hidden": stranger.HIDDEN,
            "learning-rate": stranger.RATE, "peepholes": "paper" if peepholes else "off", "batches": BATCHES,
            "seed": seed, "evaluations": 50, "threads": 1, "test-file": f"{folder}/test.txt", "out": f"{folder}/run",
        }  # fmt: skip
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        command = [sys.executable, "-m", "unroll", "train", f"{folder}/train.txt", *words, "--evaluate-carried", "-q"]
        subprocess.run(command, check=True, capture_output=True)
        lines = [json.loads(line) for line in (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()]
    return [
        [
            line["batch"],
            *(round(value, 5) for value in (line["loss"], line["perplexity"]["progressive"], line["carried"])),
        ]
        for line in lines
        if line["batch"] >= 100
    ]


WHO = {"stranger": by_stranger, "unroll": by_unroll}


def main(text: Path) -> None:
    """Run what is missing, and write the record after each run."""
    torch.set_num_threads(1)  # as each run has
    about = {
        "format": 1, "corpus": text.name, "sha256": hashlib.sha256(text.read_bytes()).hexdigest(),
        "script_sha256": hashlib.sha256((HERE / "stranger.py").read_bytes()).hexdigest(),
        "machine": facts(torch.device("cpu")),
        "batches": BATCHES, "test_tokens": stranger.TEST, "columns": ["batch", "loss", "zeros", "carried"],
    }  # fmt: skip
    known = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
    runs = known["runs"] if all(known.get(name) == about[name] for name in ("sha256", "script_sha256")) else []
    asked = [
        {"who": who, "reset": reset, "peepholes": peepholes, "seed": seed}
        for reset, peepholes, seed in SETTINGS
        for who in WHO
        if (who, reset, peepholes, seed) not in {(r["who"], r["reset"], r["peepholes"], r["seed"]) for r in runs}
    ]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for run in pool.map(lambda what: measured(text, what), asked):
            runs.append(run)
            lines = ",\n".join(json.dumps(each) for each in runs)
            head = json.dumps(about, indent=1)[:-2]
            atomic_files.write(RECORD, f'{head},\n "runs": [\n{lines}\n]}}\n'.encode())
            print(run["who"], run["reset"], run["peepholes"], run["seed"], run["points"][-1], flush=True)


def measured(text: Path, what: dict[str, Any]) -> dict[str, Any]:
    """One run, with its points."""
    return {**what, "points": WHO[what["who"]](text, what["reset"], what["peepholes"], what["seed"])}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
