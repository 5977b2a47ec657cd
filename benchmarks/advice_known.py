"""Does `unroll advise` give the right answer where that is known? Ten texts of each of four sources.

python benchmarks/advice_known.py [--budget 120] [--seeds 10] [--only copy,markov]

It goes on where it stopped: results/advice/known.json has a line for each text.

copy     a symbol comes back after a gap of up to 3·k2: the state must outlive the window, so it must be carried
markov   one letter decides the odds of the next: nothing more is to be known, so the cheapest setting is right
tiny     20,000 characters of a text: it is learned by heart, so training must stop in time, with dropout
far      gaps of up to 1.5 times the default k2 of 100: a longer window is right, or a carried state
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import unroll
from unroll import Advice, Corpus
from unroll.corpus.synthetic import Copy, Markov

RECORD = Path(__file__).parent.parent / "results" / "advice" / "known.json"
TINY = 20_000  # characters
WINDOW = 20  # k2 where the source fixes it


@dataclass(frozen=True)
class Source:
    """Texts of which the right answer is known."""

    text: Callable[[int], str]  # by seed
    settings: dict[str, Any]
    right: Callable[[Advice], bool]
    answer: str  # in words


def _stdlib(seed: int) -> str:
    """A stretch of Python's own source."""
    corpus = Corpus.open("stdlib")
    first = seed * (corpus.tokens // 20)
    symbols = corpus.vocabulary.symbols
    return "".join(symbols[id] for id in corpus.ids[first : first + TINY].tolist())


SOURCES = {
    "copy": Source(
        lambda seed: Copy(symbols=8, noise=2, gaps=(1, 3 * WINDOW)).text(400_000, seed),
        {"k2": WINDOW},
        lambda found: found.setting["carries"],
        "a carried state",
    ),
    "markov": Source(
        lambda seed: Markov(symbols=8, order=1).text(400_000, seed),
        {},
        lambda found: found.setting["hidden"] == 64 and found.setting["sample"] == "progressive",
        "the smallest model, sampled progressively",
    ),
    "tiny": Source(
        _stdlib,
        {},
        lambda found: bool(found.facts["expected"]["turned"]) and found.setting["dropout"] > 0,
        "stop in time, with dropout",
    ),
    "far": Source(
        lambda seed: Copy(symbols=4, noise=1, gaps=(1, 150)).text(600_000, seed),
        {},
        lambda found: found.setting["k2"] > 100 or found.setting["carries"],
        "k2 above 100, or a carried state",
    ),
}


def main() -> None:
    """Ask for advice on each text that the record does not have."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=120.0)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", default=",".join(SOURCES))
    parser.add_argument("--threads", type=int, default=None)
    asked = parser.parse_args()
    lines = json.loads(RECORD.read_text("utf-8")) if RECORD.is_file() else []
    for seed in range(asked.seeds):
        for name in asked.only.split(","):
            if not any((line["source"], line["seed"]) == (name, seed) for line in lines):
                lines.append(_asked(name, seed, asked.budget, asked.threads))
                RECORD.parent.mkdir(parents=True, exist_ok=True)
                ordered = sorted(lines, key=lambda line: (line["source"], line["seed"]))
                RECORD.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", "utf-8")
    for name in SOURCES:
        right = [line["right"] for line in lines if line["source"] == name]
        print(f"{name}: {sum(right)} of {len(right)} right")
    sys.exit(any(not line["right"] for line in lines))


def _asked(name: str, seed: int, budget: float, threads: int | None) -> dict[str, Any]:
    source = SOURCES[name]
    text = Corpus.from_text(source.text(seed))
    load, began = os.getloadavg()[0], time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        settings = {**source.settings, **({"threads": threads} if threads else {})}
        found = unroll.advise(text, budget, out=folder, progress=False, **settings)
        seconds = time.monotonic() - began
    line = {
        "source": name,
        "seed": seed,
        "budget": budget,
        "seconds": round(seconds, 1),
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "right": source.right(found),
        "answer": source.answer,
        "taken": found.setting["words"],
        "turned": found.facts["expected"]["turned"],
        "batches": found.facts["batches"],
        "settings": [
            {"words": one["words"], "pilot": one["pilot"], "expected": one["expected"], "sure": one["sure"]}
            for one in found.settings
        ],
        "sentences": found.sentences,
    }
    print(f"{name} {seed}: {'right' if line['right'] else 'WRONG'}, {line['taken']}, {seconds:.0f} s", flush=True)
    return line


if __name__ == "__main__":
    main()
