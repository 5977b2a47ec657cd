"""Does the full run that `unroll advise` recommends end inside the interval that it gave?

python benchmarks/advice_corpora.py --data FOLDER [--budget 300] [--only english,stdlib]

FOLDER holds english.txt, finnish.txt, linux.txt, music.txt and the folder ptb. For each corpus: the advice, then the
very command that it gives. It goes on where it stopped: results/advice/corpora.json has a line for each corpus.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from unroll.runs.loaded import load
from unroll.sweep.advice.folder import AdviceFolder
from unroll.sweep.advice.shown import read

RECORD = Path(__file__).parent.parent / "results" / "advice" / "corpora.json"
CORPORA = {
    "english": "english.txt",
    "finnish": "finnish.txt",
    "linux": "linux.txt",
    "music": "music.txt",
    "ptb": "ptb",
    "stdlib": None,
}


def main() -> None:
    """Ask and train for each corpus that the record does not have."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--budget", type=int, default=300)
    parser.add_argument("--only", default=",".join(CORPORA))
    asked = parser.parse_args()
    lines = json.loads(RECORD.read_text("utf-8")) if RECORD.is_file() else []
    for name in asked.only.split(","):
        if any(line["corpus"] == name for line in lines):
            continue
        file = CORPORA[name]
        with tempfile.TemporaryDirectory() as place:
            lines.append(
                _tried(name, "stdlib" if file is None else str((asked.data / file).resolve()), asked.budget, place)
            )
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        RECORD.write_text(json.dumps(lines, indent=1, ensure_ascii=False) + "\n", "utf-8")
    print(f"{sum(line['inside'] for line in lines)} of {len(lines)} full runs ended inside the interval")


def _tried(name: str, corpus: str, budget: int, place: str) -> dict[str, Any]:
    """One corpus: the advice, then its command as it stands, in a folder of their own."""
    load_before, began = os.getloadavg()[0], time.monotonic()
    _run(["advise", corpus, "--budget", f"{budget}s", "--out", "pilot"], place)
    advised = time.monotonic() - began
    found = read(AdviceFolder(Path(place) / "pilot"))
    command = list(found.facts["command"])
    began = time.monotonic()
    _run(command[1:], place)
    trained = time.monotonic() - began
    run = load(Path(place) / command[command.index("--out") + 1])
    best = run.best
    assert best is not None
    assert found.expected is not None
    expected, low, high = found.expected
    reached = best.test_perplexity
    line = {
        "corpus": name,
        "budget": budget,
        "seconds": {"advice": round(advised, 1), "training": round(trained, 1)},
        "load": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "command": shlex.join(["CORPUS" if word == corpus else word for word in command]),
        "pilot": {"batches": found.facts["batches"], "perplexity": found.facts["reached"]},
        "expected": {"perplexity": expected, "low": low, "high": high, "turned": found.facts["expected"]["turned"]},
        "ended": {
            "batch": run.status["batch"],
            "best_batch": best.batch,
            "chosen_on": best.chosen_on,
            "perplexity": reached,
        },
        "inside": low <= reached <= high,
        "settings": [{"words": one["words"], "expected": one["expected"]} for one in found.settings],
    }
    print(f"{name}: {low:.3f} to {high:.3f} expected, {reached:.3f} reached", flush=True)
    return line


def _run(words: list[str], place: str) -> None:
    subprocess.run([sys.executable, "-m", "unroll", *words], check=True, cwd=place)


if __name__ == "__main__":
    main()
