"""A large text from disk to ids: speed, private memory, and the first batch from the cache.

python benchmarks/encoding.py [BYTES] writes results/bench/encoding.json. Each measurement is a process of its own.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

RECORD = Path(__file__).parent.parent / "results" / "bench" / "encoding.json"
GIGABYTE = 1_000_000_000


def write_text(path: Path, size: int) -> None:
    """Write generated text, repeated, with a character beyond ASCII in every stretch."""
    from unroll.corpus.synthetic import Markov

    stretch = (Markov(symbols=20, order=2).text(4_000_000) + "ä €\n").encode()
    with open(path, "wb") as file:
        for _ in range(size // len(stretch)):
            file.write(stretch)
        file.write(stretch[: size % len(stretch)].decode("utf-8", "ignore").encode())


class PrivateMemory:
    """The most anonymous memory that this process has while it is watched."""

    def __enter__(self) -> PrivateMemory:
        self.most = 0
        self._going = True
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._going = False
        self._thread.join()

    def _watch(self) -> None:
        while self._going:
            lines = Path("/proc/self/status").read_text().splitlines()
            kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
            self.most = max(self.most, kilobytes * 1024)
            time.sleep(0.01)


def encode(path: str) -> dict[str, float]:
    """Encode a file that the cache does not know; this runs in a process of its own."""
    from unroll.corpus.corpus import Corpus

    with PrivateMemory() as memory:
        began = time.perf_counter()
        corpus = Corpus.open(path)
        seconds = time.perf_counter() - began
    size = os.path.getsize(path)
    return {
        "bytes": size,
        "tokens": corpus.tokens,
        "unique": corpus.unique,
        "seconds": round(seconds, 3),
        "megabytes_a_second": round(size / seconds / 1e6, 1),
        "private_megabytes": round(memory.most / 1e6, 1),
    }


def first_batch(path: str) -> dict[str, float]:
    """Open a corpus from the cache and make the first batch, once torch is imported; in a process of its own."""
    import torch

    from unroll.corpus.batches import Batches
    from unroll.corpus.corpus import Corpus
    from unroll.experiment.experiment import Experiment

    began = time.perf_counter()
    corpus = Corpus.open(path)
    batch = Batches([Experiment()], [corpus], torch.device("cpu"))[0]
    return {"first_batch_seconds": round(time.perf_counter() - began, 3), "tokens_in_it": batch.inputs_MTB.numel()}


def measure(size: int) -> dict[str, object]:
    """Measure both, one after the other, with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "large.txt")
        write_text(path, size)
        record: dict[str, object] = {}
        for part in ("encode", "first_batch"):
            done = subprocess.run(
                [sys.executable, __file__, part, str(path)],
                env={**os.environ, "UNROLL_CACHE": f"{folder}/cache"},
                capture_output=True,
                text=True,
                check=True,
            )
            record |= json.loads(done.stdout)
    return record | {"cores": os.cpu_count(), "python": platform.python_version()}


def main() -> None:
    """Measure, print and record; or be one of the measured processes."""
    if len(sys.argv) > 2:
        print(json.dumps({"encode": encode, "first_batch": first_batch}[sys.argv[1]](sys.argv[2])))
        return
    record = measure(int(sys.argv[1]) if len(sys.argv) > 1 else GIGABYTE)
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
