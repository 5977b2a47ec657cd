"""Sorting a training set's suffixes and looking a sample up in them: seconds, memory, milliseconds.

python benchmarks/memorisation.py [--data FOLDER] writes results/bench/memorisation.json. It measures ten megabytes of
this Python's standard library, the worst texts there are, and every .txt of the folder; each in a process of its own,
with one thread, from the ids in a file. The last 2,000 tokens are held out and looked up.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unroll.runs.suffixes import longest_matches, occurrences, suffix_array

RECORD = Path(__file__).parent.parent / "results" / "bench" / "memorisation.json"
TOKENS = 10_000_000
SAMPLE = 2_000
TIMES = 7


def measure(path: str) -> dict[str, float]:
    """Sort and look up the ids of one file; this runs in a process of its own."""
    ids = np.load(path)
    train = ids[:-SAMPLE]
    sample = ids[-SAMPLE:]
    began = time.perf_counter()
    order = suffix_array(train)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    taken = []
    for _ in range(TIMES):
        began = time.perf_counter()
        lengths = longest_matches(train, order, sample)
        at = int(lengths.argmax())
        times = len(occurrences(train, order, sample[at : at + lengths[at]]))
        taken.append(time.perf_counter() - began)
    return {
        "tokens": len(train),
        "largest_id": int(train.max()),
        "build_seconds": round(seconds, 2),
        "peak_megabytes": round(peak * 1024 / 1e6),
        "query_milliseconds": round(statistics.median(taken) * 1e3, 1),
        "longest_match": int(lengths[at]),
        "which_stands_so_often": times,
    }


def texts(data: Path | None) -> dict[str, NDArray[np.integer[Any]]]:
    """The texts to sort, by name."""
    from unroll.corpus.corpus import Corpus

    stdlib = np.asarray(Corpus.open("stdlib", min_count=50).ids)
    # A library that is smaller is repeated from its start, which only makes it harder.
    made = {
        "stdlib, 10 M characters": np.resize(stdlib, TOKENS),
        "random ids below 2^31": np.random.default_rng(0).integers(2**31 - 1, size=TOKENS).astype(np.int32),
        "worst: one symbol": np.zeros(TOKENS, np.uint8),
        "worst: two copies of 5 M characters": np.tile(stdlib[: TOKENS // 2], 2),
    }
    given = sorted(data.glob("*.txt")) if data else []
    return made | {path.name: np.asarray(Corpus.open(str(path)).ids) for path in given}


def run(*options: str) -> str:
    """Run this script in a process of its own, and return what it printed."""
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, *options]
    return subprocess.run(command, env=one_thread, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Measure, print and record; or be one of the measured processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="a folder of texts to measure as well")
    parser.add_argument("--ids", help=argparse.SUPPRESS)
    parser.add_argument("--make", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ids:
        print(json.dumps(measure(options.ids)))
        return
    if options.make:
        for name, ids in texts(options.data).items():
            np.save(f"{options.make}/{name}.npy", ids)
            print(name)
        return
    record: dict[str, object] = {
        "sample_tokens": SAMPLE,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    with tempfile.TemporaryDirectory() as folder:
        # A process starts with its parent's peak of memory, so the texts are made elsewhere.
        names = run("--make", folder, *(["--data", str(options.data)] if options.data else []))
        for name in names.splitlines():
            record[name] = json.loads(run("--ids", f"{folder}/{name}.npy"))
            print(name, record[name], flush=True)
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
