"""CPU seconds to a loss: `--preset small` as shipped, and a plain script on torch.nn.LSTM; one thread, in turns.

    python benchmarks/time_to_loss.py --data FOLDER      writes results/training/time_to_loss_PROCESSOR.json

The text is the first 1,115,394 characters of FOLDER/english.txt, plays by Shakespeare: as long as the text that
char-rnn is usually shown with. Our split decides for both: plain_script.py is given our train set and our test set as
files, so both learn from the same characters and are scored on the same 11,000. The script reads on (progressive); ours
is scored in both ways, windowed and progressive, and the later of the two crossings counts. The script has three
learning rates, and the fastest of them, by its mean over seeds, counts for each loss.

A contestant is a process. A round is one seed: each contestant trains once, in an order that turns from round to round.
What counts is the CPU time of all threads of the process, from before the model is made; evaluation is not counted, and
neither is reading the text or importing torch. Between two evaluations a crossing is interpolated: nats, linear in the
logarithm of the seconds. What has trained is kept in --parts, and not trained again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
SCRIPT = HERE / "plain_script.py"
RECORDS = HERE.parent / "results" / "training"
CHARACTERS = 1_115_394
LEVELS = (1.80, 1.72)  # nats a character
RATES = (0.004, 0.008, 0.016)
ENOUGH = 1.70  # below every level: there a training ends
SCORED = 11_000  # the last characters of the test set
FIRST, FURTHER = 100, 1.15  # the first batch that is evaluated, and how many times as many batches the next has
MOST_SECONDS = 150.0
OURS = "--preset small"
Curve = list[list[float]]  # batches, CPU seconds, nats; ours has two columns of nats, windowed and progressive


class Enough(Exception):
    """A training is below every level, or has taken long enough."""


def train_ours(path: str, seed: int) -> None:
    """Train the preset on the text, and print a line where the script would."""
    import torch

    import unroll
    from unroll.runs.perplexities import token_nll

    corpus = unroll.Corpus.open(path)
    test = torch.from_numpy(corpus.test_ids(0).astype(np.int64))
    small = unroll.PRESETS["small"]
    experiment = unroll.Experiment(corpus=path, seed=seed, device="cpu", threads=1, evaluations=2, **small)
    due = FIRST
    evaluating = 0.0
    began = last = time.process_time()

    def watch(event: Any) -> None:
        nonlocal due, evaluating, last
        if isinstance(event, unroll.Stepped):
            last = time.process_time()
            if event.batch < due:
                return
            due = event.batch * FURTHER
            nats = [
                float(token_nll(event.learner.model, [test], experiment.scheme.k2, reading)[0][-SCORED:].mean())
                for reading in ("windowed", "progressive")
            ]
            seconds = last - began - evaluating
            print(json.dumps([event.batch, round(seconds, 3), *(round(value, 5) for value in nats)]), flush=True)
            evaluating += time.process_time() - last
            if max(nats) < ENOUGH or seconds > MOST_SECONDS:
                raise Enough
        elif isinstance(event, unroll.Evaluated):  # its own evaluation, of the first batch
            evaluating += time.process_time() - last

    with tempfile.TemporaryDirectory() as folder, suppress(Enough):
        unroll.train(experiment, f"{folder}/run", corpus, progress=False, on_event=watch)


def curve_of(command: Sequence[object], kept: Path) -> Curve:
    """What a contestant prints, with one thread; what it printed, if it has trained already."""
    if kept.exists():
        return [json.loads(line) for line in kept.read_text().splitlines()]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    words = [sys.executable, *(str(word) for word in command)]
    output = subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(output)
    return [json.loads(line) for line in output.splitlines()]


def crossing(curve: Curve, level: float, column: int = 2) -> float | None:
    """CPU seconds until the loss is first at a level, between two evaluations; None if it never is."""
    for before, after in pairwise(curve):
        if after[column] <= level < before[column]:
            share = (before[column] - level) / (before[column] - after[column])
            return float(math.exp(math.log(before[1]) + share * math.log(after[1] / before[1])))
    return None


def seconds_to(curves: Sequence[Curve], level: float) -> list[float] | None:
    """The crossing of each seed, of the later reading where there are two; None unless all of them cross."""
    values = [crossing(curve, level, column) for curve in curves for column in range(2, len(curve[0]))]
    readings = len(curves[0][0]) - 2
    if None in values:
        return None
    return [max(v for v in values[at : at + readings] if v is not None) for at in range(0, len(values), readings)]


def verdicts(curves: dict[str, list[Curve]]) -> list[dict[str, Any]]:
    """For each level: mean seconds of ours and of every rate of the script, its best, and how many times faster."""
    results = []
    for level in LEVELS:
        reached = {name: seconds_to(of_seeds, level) for name, of_seeds in curves.items()}
        means = {name: round(statistics.mean(seconds), 2) for name, seconds in reached.items() if seconds}
        best = min((name for name in means if name != OURS), key=lambda name: means[name])
        results.append(
            {
                "nats": level,
                "seconds": means,
                "best_of_the_script": best,
                "times_faster": round(means[best] / means[OURS], 2),
                "slowest_of_ours": round(max(reached[OURS] or [math.nan]), 2),
                "fastest_of_the_script": round(min(reached[best] or [math.nan]), 2),
            }
        )
    return results


def texts(data: Path, folder: Path) -> tuple[Path, Path, Path]:
    """The text, and our train and test sets of it, as files."""
    import unroll

    whole, train, test = (folder / f"{name}.txt" for name in ("text", "train", "test"))
    text = (data / "english.txt").read_bytes().decode()[:CHARACTERS]
    whole.write_bytes(text.encode())
    corpus = unroll.Corpus.open(str(whole), kind="chars")
    for path, ids in ((train, corpus.train_ids(0)), (test, corpus.test_ids(0))):
        path.write_bytes("".join(corpus.vocabulary.symbols[i] for i in ids).encode())
    return whole, train, test


def main() -> None:
    """Train in turns, print and record; or be one of the contestants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder that holds english.txt")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="the record [results/training/time_to_loss_PROCESSOR.json]")
    parser.add_argument("--parts", type=Path, default=Path("runs/time_to_loss"), help="what was trained already")
    parser.add_argument("--ours", nargs=2, metavar=("TEXT", "SEED"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ours:
        path, number = options.ours
        train_ours(path, int(number))
        return
    if options.data is None:
        parser.error("--data is needed: the folder that holds english.txt")
    import torch
    from llvmlite import binding

    from unroll import PRESETS, Experiment
    from unroll.engines import devices

    run = devices.resolve(Experiment(device="cpu", threads=1, **PRESETS["small"]))
    preset = {**PRESETS["small"], "scheme": asdict(run.scheme)}
    processor = binding.get_host_cpu_name()
    curves: dict[str, list[Curve]] = {}
    with tempfile.TemporaryDirectory() as made:
        whole, train, test = texts(options.data, Path(made))
        digest = hashlib.sha256(whole.read_bytes()).hexdigest()
        for seed in range(options.seeds):
            turns: dict[str, list[object]] = {OURS: [HERE / "time_to_loss.py", "--ours", whole, seed]}
            for rate in RATES:
                options_of_script = [
                    "--learning-rate",
                    rate,
                    "--seed",
                    seed,
                    "--until",
                    ENOUGH,
                    "--seconds",
                    MOST_SECONDS,
                ]
                turns[f"plain script, {rate:g}"] = [SCRIPT, train, test, *options_of_script]
            names = list(turns)
            for name in names[seed % len(names) :] + names[: seed % len(names)]:
                what = [name, seed, digest, sorted(preset.items()) if name == OURS else SCRIPT.read_text()]
                key = hashlib.sha256(repr(what).encode()).hexdigest()[:16]
                curve = curve_of(turns[name], options.parts / f"{key}.jsonl")
                curves.setdefault(name, []).append(curve)
                last = [seconds_to([curve], level) for level in LEVELS]
                print(f"seed {seed}   {name:22} {last}   {curve[-1]}   load {os.getloadavg()[0]:.1f}", flush=True)
    record = {
        "what": f"CPU seconds to a loss on the first {CHARACTERS:,} characters of Shakespeare's plays, one thread",
        "processor": processor,
        "machine": f"{platform.machine()}, {platform.system()}, {torch.backends.cpu.get_cpu_capability()}",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "kernel": run.kernel,
        "text_sha256": digest,
        "script_sha256": hashlib.sha256(SCRIPT.read_bytes()).hexdigest(),
        "preset": preset,
        "columns": {
            "ours": "batches, CPU seconds, nats windowed, nats progressive",
            "script": "batches, CPU seconds, nats",
        },
        "levels": verdicts(curves),
        "curves": curves,
    }
    out = options.out or RECORDS / f"time_to_loss_{processor}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record) + "\n")
    for level in record["levels"]:
        print(level)


if __name__ == "__main__":
    main()
