"""The choice of `--preset small`: candidates on three texts, by CPU seconds of training, one thread each.

    python benchmarks/preset_small.py --data FOLDER      writes results/training/preset_small.json

The texts are the first 1,115,394 characters of english.txt, finnish.txt and linux.txt. A training is a process; its
clock is its own CPU time, without evaluation. At each mark the model is scored on the 11,100 characters of its test
set, windowed and progressive. A training that is in the record already is not done again.

The rule, written before any candidate's last mark was seen: a candidate that diverges, or that is worse at the last
mark than the preset as it was on any of the texts, is out. Of the others the one with the lowest mean rank wins: the
windowed loss is ranked among the candidates, for each text and at each mark of `RANKED`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

RECORD = Path(__file__).parent.parent / "results" / "training" / "preset_small.json"
CHARACTERS = 1_115_394
TEXTS = ("english", "finnish", "linux")
MARKS = (10, 20, 30, 40)  # CPU seconds
RANKED = (20, 40)
BEFORE = "as it was"
CANDIDATES: dict[str, dict[str, Any]] = {  # k1 and k2 beside the experiment's settings; γ = 128 in all
    BEFORE: {},
    "16 rows, dense 256, 0.006": {"rows": 16, "dense": 256, "learning_rate": 0.006, "k1": 100},
    "16 rows, dense 128, 0.004": {"rows": 16, "dense": 128, "learning_rate": 0.004, "k1": 100},
    "16 rows, dense 128, 0.008": {"rows": 16, "dense": 128, "learning_rate": 0.008, "k1": 100},
}
Line = dict[str, Any]  # one mark of one training


def train(path: str, seed: int, settings: Mapping[str, Any]) -> None:
    """Train one candidate, and print a line a mark."""
    import torch

    import unroll
    from unroll.engines import devices
    from unroll.engines.choice import engine_of
    from unroll.runs.perplexities import token_nll
    from unroll.training.learner import Learner

    torch.set_num_threads(1)
    corpus = unroll.Corpus.open(path)
    scheme = unroll.Scheme(**{name: settings[name] for name in ("k1", "k2") if name in settings})
    others = {name: value for name, value in settings.items() if name not in ("k1", "k2")}
    asked = unroll.Experiment(scheme=scheme, hidden=128, device="cpu", threads=1, seed=seed, **others)
    experiment = devices.resolve(corpus.described_in(asked))
    learner = Learner([experiment], [corpus], engine_of(devices.find("cpu"), experiment.kernel))
    learner.prepare()
    test = torch.from_numpy(corpus.test_ids(0).astype(np.int64))
    spent = 0.0
    for mark in MARKS:
        while spent < mark:
            began = time.process_time()
            learner.step()
            spent += time.process_time() - began
        nats = {
            reading: round(float(token_nll(learner.model, [test], scheme.k2, reading)[0].mean()), 5)
            for reading in ("windowed", "progressive")
        }
        stopped = bool(learner.look().stopped_M[0])
        print(json.dumps({"mark": mark, "batch": learner.count, "stopped": stopped, **nats}), flush=True)


def trained(path: str, seed: int, settings: Mapping[str, Any]) -> list[Line]:
    """Train one candidate in a process of its own."""
    command = [sys.executable, __file__, "--train", path, str(seed), json.dumps(settings)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in output.splitlines()]


def judged(lines: Iterable[Line]) -> dict[str, Any]:
    """Mean losses at the last mark, mean ranks and the choice, by the rule."""
    first = [line for line in lines if line["seed"] == 0]
    loss = {(line["candidate"], line["text"], line["mark"]): line["windowed"] for line in first}
    stopped = {line["candidate"] for line in lines if line["stopped"]}
    names = [name for name in CANDIDATES if all((name, *at) in loss for at in product(TEXTS, MARKS))]
    worse = {
        name for name, text in product(names, TEXTS) if loss[name, text, MARKS[-1]] > loss[BEFORE, text, MARKS[-1]]
    }
    ranks = {
        name: statistics.mean(
            sum(loss[other, *at] < loss[name, *at] for other in names) + 1 for at in product(TEXTS, RANKED)
        )
        for name in names
    }
    able = [name for name in names if name not in stopped | worse]
    return {
        "mean_rank": {name: round(rank, 3) for name, rank in ranks.items()},
        "out": sorted(stopped | worse),
        "perplexity_at_the_last_mark": {
            name: {text: round(math.exp(loss[name, text, MARKS[-1]]), 3) for text in TEXTS} for name in names
        },
        "choice": min(able, key=lambda name: ranks[name]) if able else None,
    }


def main() -> None:
    """Train what is not in the record, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder that holds the texts")
    parser.add_argument("--seeds", type=int, default=1, help="of every candidate")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--train", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        path, seed, settings = options.train
        train(path, int(seed), json.loads(settings))
        return
    lines: list[Line] = json.loads(RECORD.read_text())["lines"] if RECORD.exists() else []
    done = {(line["candidate"], line["text"], line["seed"]) for line in lines}
    left = [job for job in product(CANDIDATES, TEXTS, range(options.seeds)) if job not in done]
    if left and options.data is None:
        parser.error("--data is needed: the folder that holds the texts")
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.processes) as pool:
        for text in TEXTS if left else ():
            content = (options.data / f"{text}.txt").read_bytes().decode()[:CHARACTERS]
            Path(folder, f"{text}.txt").write_bytes(content.encode())

        def do(job: tuple[str, str, int]) -> list[Line]:
            candidate, text, seed = job
            what = {"candidate": candidate, "text": text, "seed": seed}
            return [what | line for line in trained(f"{folder}/{text}.txt", seed, CANDIDATES[candidate])]

        for of_job in pool.map(do, left):
            lines += of_job
            print(of_job[-1], flush=True)
            write(lines)
    write(lines)
    print(json.dumps(judged(lines), indent=1))


def write(lines: list[Line]) -> None:
    """Write the record, whatever is in it so far."""
    from llvmlite import binding

    record = {
        "what": f"nats a character, {CHARACTERS:,} characters of three texts, by CPU seconds of training, one thread",
        "processor": binding.get_host_cpu_name(),
        "candidates": CANDIDATES,
        "ranked_at": RANKED,
        **judged(lines),
    }
    rows = ",\n".join(f"  {json.dumps(line)}" for line in lines)
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(record, indent=1)[:-2] + f',\n "lines": [\n{rows}\n ]\n}}\n')


if __name__ == "__main__":
    main()
