"""Train small models as `unroll advise` does, in full, so that extrapolation.py has curves of this size to foretell.

    python benchmarks/pilots.py TEXTS [RUNS]        TEXTS has english.txt, finnish.txt and linux.txt of the paper

Every run is the preset small with other settings where named, on the beginning of a text, three seeds each. A setting
takes some minutes on one core; runs that RUNS has already are not trained again. Writes results/advice/pilots.json.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RECORD = Path(__file__).parent.parent / "results" / "advice" / "pilots.json"
SEEDS = (0, 1, 2)
FIXED = ("--preset", "small", "--batches", "3000", "--threads", "1", "--validation", "5000", "--test-tokens", "5000")
# A name, the text, how many of its bytes, and the settings.
SETTINGS: tuple[tuple[str, str, int, tuple[str, ...]], ...] = (
    ("lin-multi-008", "linux", 1_500_000, ()),
    ("lin-single-008", "linux", 1_500_000, ("--scheme", "2")),
    ("eng300-multi-016", "english", 300_000, ("--hidden", "64", "--learning-rate", "0.016")),
    ("eng300-cond-008", "english", 300_000, ("--hidden", "64", "--scheme", "4")),
    ("fin-multi-002", "finnish", 1_200_000, ("--learning-rate", "0.002")),
)


def main(texts: Path, runs: Path) -> None:
    """Train what is missing, and write the record."""
    lines = []
    for name, text, size, options in SETTINGS:
        corpus = runs / f"{text}-{size}.txt"
        corpus.write_bytes((texts / f"{text}.txt").read_bytes()[:size])
        for seed in SEEDS:
            folder = runs / f"{name}-s{seed}"
            if not (folder / "metrics.jsonl").exists():
                command = ["train", str(corpus), *FIXED, *options, "--seed", str(seed), "--out", str(folder), "--quiet"]
                subprocess.run([sys.executable, "-m", "unroll", *command], check=True)
            lines.append(
                {"setting": name, "text": text, "bytes": size, "options": options, "seed": seed, **_read(folder)}
            )
    content = {"what": "Small models trained in full: perplexity by batch.", "fixed": FIXED}
    rows = ",\n".join(json.dumps(line) for line in lines)
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(f'{json.dumps(content)[:-1]},\n"runs": [\n{rows}\n]}}\n', "utf-8")


def _read(folder: Path) -> dict[str, list[Any]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    (sample,) = rows[0]["perplexity"]  # the scheme's own procedure, and no other
    return {
        "batch": [row["batch"] for row in rows],
        "test": [_short(row["perplexity"][sample]) for row in rows],
        "validation": [_short(row["validation"][sample]) for row in rows],
    }


def _short(perplexity: float | None) -> float | None:
    return None if perplexity is None else float(f"{perplexity:.6g}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else temporary))
