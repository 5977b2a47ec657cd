"""Two versions of Unroll on one machine, in turns: training, sampling and start-up, as ratios.

    python benchmarks/in_turns.py --before ../old/src --after src --out results/bench/rooms.json

Each version has a process of its own, which does a piece of work on request and waits otherwise. A round is one piece
by each version, and the first of the two changes from round to round. A ratio is the median over the rounds of
`after / before`. The script uses public names only, so it can compare any two versions. It compares the weights and the
texts of the two as well: a version that computes something else is not merely slower.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

THREADS = 2
SHAPES: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {  # settings, scheme, batches
    "training, LSTM of 128, multi-loss": ({"hidden": 128}, {}, 60),
    "training, LSTM of 128, single-loss": ({"hidden": 128}, {"loss": "last"}, 200),
    "training, two layers of 128": ({"hidden": 128, "layers": 2}, {}, 40),
    "training, LSTM of 512, multi-loss": ({"hidden": 512}, {}, 12),
    "training, GRU of 128": ({"hidden": 128, "cell": "gru"}, {}, 60),
    "training, LSTM of 128, kernel host": ({"hidden": 128, "kernel": "host"}, {}, 40),
    "training, LSTM of 16, carried states": ({"hidden": 16, "dense": 32}, {"state": "carried"}, 400),
}
TEXTS = {"sampling, progressive": ("progressive", 4000), "sampling, windowed": ("windowed", 2500)}
COMMANDS = {"start-up, unroll --help": ["--help"], "start-up, unroll train --help": ["train", "--help"]}


def worker() -> None:
    """Do what each line of standard input asks for; answer with seconds and a digest of the result."""
    import torch

    import unroll

    torch.set_num_threads(THREADS)
    corpus = unroll.Corpus.open("markov")
    folder = Path(tempfile.mkdtemp())
    count = 0
    loaded = None

    def train(name: str) -> tuple[float, str]:
        nonlocal count
        settings, scheme, batches = SHAPES[name]
        experiment = unroll.Experiment(
            corpus="markov", scheme=unroll.Scheme(**scheme), batches=batches, evaluations=2, test_tokens=200,
            device="cpu", threads=THREADS, **settings,
        )  # fmt: skip
        out = folder / str(count)
        count += 1
        for _ in unroll.train_fleet([experiment], [corpus], [out]):
            pass
        seconds = json.loads((out / "status.json").read_text())["seconds"]
        values = unroll.load(out).model.parameters
        content = b"".join(name.encode() + values[name].detach().numpy().tobytes() for name in sorted(values))
        return seconds, hashlib.sha256(content).hexdigest()

    def draw(name: str) -> tuple[float, str]:
        nonlocal loaded
        if loaded is None:
            train("training, LSTM of 128, multi-loss")
            loaded = unroll.load(folder / str(count - 1))
        procedure, length = TEXTS[name]
        began = time.perf_counter()
        text = unroll.sample(loaded, prompt="abcd", length=length, seed=1, sample=procedure).text
        return time.perf_counter() - began, hashlib.sha256(text.encode()).hexdigest()

    for line in sys.stdin:
        name = line.strip()
        seconds, digest = train(name) if name in SHAPES else draw(name)
        print(json.dumps([seconds, digest]), flush=True)


class Version:
    """A source folder, and the process that computes with it."""

    def __init__(self, source: Path) -> None:
        self.environment = {**os.environ, "PYTHONPATH": str(source.resolve()), "OMP_NUM_THREADS": str(THREADS)}
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--worker"], env=self.environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def work(self, name: str) -> tuple[float, str]:
        """Do one piece of work: its seconds, and a digest of its result."""
        if name in COMMANDS:
            began = time.perf_counter()
            command = [sys.executable, "-m", "unroll", *COMMANDS[name]]
            subprocess.run(command, env=self.environment, stdout=subprocess.DEVNULL, check=True)
            return time.perf_counter() - began, ""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        seconds, digest = json.loads(self._process.stdout.readline())
        return seconds, digest


def compared(before: Version, after: Version, rounds: int) -> dict[str, Any]:
    """Do every piece of work `rounds` times by each version, after one time that does not count."""
    results = {}
    for name in (*SHAPES, *TEXTS, *COMMANDS):
        digests = {before.work(name)[1], after.work(name)[1]}
        times: dict[str, list[float]] = {"before": [], "after": []}
        for number in range(rounds):
            for version in ((before, after), (after, before))[number % 2]:
                seconds, digest = version.work(name)
                times["before" if version is before else "after"].append(seconds)
                digests.add(digest)
        ratios = sorted(b / a for a, b in zip(times["before"], times["after"], strict=True))
        results[name] = {
            "ratio": round(statistics.median(ratios), 4),
            "quartiles": [round(quartile, 4) for quartile in statistics.quantiles(ratios)[::2]],
            "same result": len(digests) == 1,
            **{version: [round(seconds, 5) for seconds in all_s] for version, all_s in times.items()},
        }
        low, high = results[name]["quartiles"]
        print(f"{name:38} {results[name]['ratio']:.3f}  ({low:.3f} to {high:.3f})  same result: {len(digests) == 1}")
    return results


def main() -> None:
    """Compare, print and record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--worker", action="store_true", help="what this program starts itself")
    parser.add_argument("--before", type=Path)
    parser.add_argument("--after", type=Path, default=Path(__file__).parent.parent / "src")
    parser.add_argument("--names", nargs=2, default=("before", "after"), help="what the versions are called")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.worker:
        worker()
        return
    if options.before is None:
        parser.error("--before is needed: the `src` folder of the other version")
    results = compared(Version(options.before), Version(options.after), options.rounds)
    if options.out:
        machine = f"{platform.machine()}, {platform.system()}, {os.cpu_count()} cores"
        record = {"before": options.names[0], "after": options.names[1], "machine": machine, "rounds": options.rounds}
        options.out.write_text(json.dumps(record | {"results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
