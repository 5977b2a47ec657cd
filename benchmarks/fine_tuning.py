"""What a run gains from another's weights: fine-tuned on a text, against the same run from nothing, batch for batch.

python benchmarks/fine_tuning.py --text english.txt --work /tmp/fine_tuning

A small model is trained on Python's standard library; its weights begin a run on the first part of a text. Beside it
the same settings train from nothing on the same text. Three seeds of each; every curve goes into the record. Begun
again with the same folder, it goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path
from typing import Any

import torch

import unroll
from unroll import Corpus, Experiment, Run
from unroll.engines import devices

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "results" / "training" / "fine_tuning.json"
SEEDS = (0, 1, 2)
CHARACTERS = 300_000  # of the text: fine-tuning is for texts that are short
PARENT_BATCHES, BATCHES = 1_500, 400
DENSE = 256  # a quarter of the preset's, and of its time
SETTINGS: dict[str, Any] = {"rows": 32, "test_tokens": 5_100, "evaluations": 12, "device": "cpu", "threads": 1}


def curve(run: Run) -> list[dict[str, Any]]:
    """Each evaluation: the batch, the training loss since the one before, the perplexity of the test set."""
    procedure = run.experiment.scheme.sample
    return [
        {"batch": line["batch"], "loss": line["loss"], "perplexity": line["perplexity"][procedure]}
        for line in run.metrics
    ]


def measured(text: Corpus, work: Path) -> dict[str, Any]:
    """Train everything, and write down what came out."""
    small = unroll.PRESETS["small"]
    settings = {**SETTINGS, "hidden": small["hidden"], "dense": DENSE}
    runs = []
    for seed in SEEDS:
        first = Experiment(corpus="stdlib", batches=PARENT_BATCHES, seed=seed, **settings)
        parent = unroll.train(first, work / f"stdlib-{seed}", exist="resume")
        fine_tuned = unroll.train_from(
            parent, text, work / f"fine-tuned-{seed}", batches=BATCHES, new_symbols="add", exist="resume", **SETTINGS
        )
        alone = Experiment(batches=BATCHES, seed=seed, **settings)
        from_nothing = unroll.train(alone, work / f"from-nothing-{seed}", corpus=text, exist="resume")
        runs.append(
            {
                "seed": seed,
                "stdlib": curve(parent),
                "fine_tuned": curve(fine_tuned),
                "from_nothing": curve(from_nothing),
                "added_symbols": fine_tuned.experiment.added_symbols,
                "symbols": {"stdlib": len(parent.vocabulary), "text": text.unique},
                "seconds": {
                    name: run.status["seconds"]
                    for name, run in (("stdlib", parent), ("fine_tuned", fine_tuned), ("from_nothing", from_nothing))
                },
            }
        )
    return {
        "text": {"name": text.name, "tokens": text.tokens, "sha256": text.sha256},
        "settings": {**settings, "batches": BATCHES, "parent_batches": PARENT_BATCHES, "parent": "stdlib"},
        "processor": devices.describe(torch.device("cpu")),
        "python": platform.python_version(),
        "unroll": unroll.__version__,
        "runs": runs,
    }


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True, help="a text file, of which the first part is taken")
    parser.add_argument("--work", type=Path, required=True, help="a folder for the runs")
    parser.add_argument("--out", type=Path, default=RECORD)
    asked = parser.parse_args()
    text = Corpus.from_text(asked.text.read_text("utf-8")[:CHARACTERS], asked.text.stem)
    record = measured(text, asked.work)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
